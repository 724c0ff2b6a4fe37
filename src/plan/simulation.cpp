#include "plan/simulation.hpp"
