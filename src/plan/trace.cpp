#include "plan/trace.hpp"
