#include "plan/curve.hpp"
