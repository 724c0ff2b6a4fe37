#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "model/safetensors.hpp"

using namespace stagecoach;

// Any header is refused with a FormatError or gives tensors that lie within the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kDataBytes = 4096;
  const std::string_view header(reinterpret_cast<const char*>(data), size);
  const auto data_offset = 8 + size;
  try {
    for (const auto& [name, entry] : model::parse_safetensors_header(
             header, data_offset, data_offset + kDataBytes, "fuzz.safetensors")) {
      if (entry.offset_bytes < data_offset || entry.size_bytes > kDataBytes ||
          entry.offset_bytes - data_offset > kDataBytes - entry.size_bytes) {
        std::abort();
      }
    }
  } catch (const FormatError&) {
  }
  return 0;
}
