#include "device/host/isa.hpp"

#include <hwy/targets.h>

#include <algorithm>

#include "base/error.hpp"

namespace stagecoach::device {

const char* isa_name(Isa isa) { return isa == Isa::avx512 ? "avx512" : "avx2"; }

std::vector<Isa> supported_isas() {
  const auto targets = hwy::SupportedTargets();
  std::vector<Isa> isas;
  if ((targets & HWY_AVX3) != 0) {
    isas.push_back(Isa::avx512);
  }
  if ((targets & HWY_AVX2) != 0) {
    isas.push_back(Isa::avx2);
  }
  return isas;
}

Isa select_isa(const std::string& name) {
  const auto supported = supported_isas();
  if (supported.empty()) {
    throw ConfigError("this CPU has no AVX2 with FMA and F16C, which the host device needs");
  }
  if (name == "auto") {
    return supported.front();
  }
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    if (name == isa_name(isa)) {
      if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
        throw ConfigError(fmt::format("this CPU has no {}: use auto or avx2", name));
      }
      return isa;
    }
  }
  throw ConfigError(fmt::format("unknown instruction set '{}': use auto, avx2 or avx512", name));
}

}  // namespace stagecoach::device
