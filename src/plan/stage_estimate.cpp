#include "plan/stage_estimate.hpp"
