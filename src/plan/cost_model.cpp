#include "plan/cost_model.hpp"
