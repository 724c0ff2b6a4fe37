#include "plan/cluster.hpp"
