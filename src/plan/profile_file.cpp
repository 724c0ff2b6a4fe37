#include "plan/node_profile.hpp"
