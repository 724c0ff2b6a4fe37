#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "base/ini_file.hpp"
#include "model/spec.hpp"

using namespace stagecoach;

// Any ini file is refused with a ConfigError or gives settings, and these a model or another one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto settings = parse_ini(text, "fuzz.ini");
    model::spec_from_settings(settings, "fuzz.ini").validate();
  } catch (const ConfigError&) {
  }
  return 0;
}
