#pragma once

#include <string>
#include <vector>

namespace stagecoach::device {

/// Widths of the host kernels. Both compute the same bits: every sum runs over 16 lanes whatever
/// the width of a register is.
enum class Isa { avx2, avx512 };

const char* isa_name(Isa isa);

/// What this CPU (and its operating system) can run, the widest first; may be empty.
std::vector<Isa> supported_isas();

/// "auto" (the widest), "avx2" or "avx512". ConfigError if the CPU lacks it, or lacks AVX2
/// altogether.
Isa select_isa(const std::string& name);

}  // namespace stagecoach::device
