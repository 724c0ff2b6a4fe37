#include "plan/curve.hpp"

#include <gtest/gtest.h>
