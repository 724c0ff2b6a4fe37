#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/narrow.hpp"

namespace stagecoach::model {

/// One tensor of a safetensors file, checked to lie within it.
struct SafetensorsEntry {
  std::string dtype;               ///< as written: "F16", "BF16", "F32", "I64", ...
  std::optional<NumberType> type;  ///< if it can be stored as f16
  std::vector<std::int64_t> shape;
  std::uint64_t offset_bytes = 0;  ///< from the start of the file
  std::uint64_t size_bytes = 0;
};

/// What a safetensors file says of itself (https://github.com/huggingface/safetensors): 8 bytes of
/// header length, little-endian, a JSON header, then the tensors' bytes.
struct SafetensorsFile {
  std::string path;
  std::map<std::string, SafetensorsEntry> tensors;
};

/// Reads the header only. FormatError names the file and the tensor: ranges outside the file, sizes
/// that do not fit dtype and shape, overlaps. ConfigError when there is no such file.
SafetensorsFile read_safetensors(const std::string& path);

/// The same for a header in memory; the tensors' bytes start at `data_offset` of a file of
/// `file_size` bytes (data_offset <= file_size).
std::map<std::string, SafetensorsEntry> parse_safetensors_header(std::string_view header,
                                                                 std::uint64_t data_offset,
                                                                 std::uint64_t file_size,
                                                                 const std::string& path);

}  // namespace stagecoach::model
