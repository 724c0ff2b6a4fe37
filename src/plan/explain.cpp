#include "plan/explain.hpp"
