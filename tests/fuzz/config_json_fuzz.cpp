#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "model/spec.hpp"

using namespace stagecoach;

// Any config.json is refused with a ConfigError or gives a model of sane sizes, which the store's
// own JSON gives back exactly.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto spec = model::spec_from_hf_config(text, "config.json");
    const bool same = model::spec_from_json(model::spec_to_json(spec), "store") == spec;
    if (!same || model::parameter_count(spec) <= 0) {
      std::abort();
    }
  } catch (const ConfigError&) {
  }
  try {
    static_cast<void>(model::spec_from_json(text, "store"));
  } catch (const ConfigError&) {
  }
  return 0;
}
