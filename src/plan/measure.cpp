#include "plan/measure.hpp"
