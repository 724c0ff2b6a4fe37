#include "plan/stage_program.hpp"
