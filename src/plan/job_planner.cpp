#include "plan/job_planner.hpp"
