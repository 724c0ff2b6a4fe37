#include "model/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <span>
#include <tuple>

#include "base/error.hpp"
#include "base/file.hpp"
#include "model/json_fields.hpp"

namespace stagecoach::model {
namespace {

// The limit of the reference implementation.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kMaxRank = 16;

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

struct Dtype {
  std::string_view name;
  std::uint64_t size_bytes;
  std::optional<NumberType> type;
};

constexpr std::array<Dtype, 17> kDtypes{{{"F16", 2, NumberType::f16},
                                         {"BF16", 2, NumberType::bf16},
                                         {"F32", 4, NumberType::f32},
                                         {"F64", 8, {}},
                                         {"I64", 8, {}},
                                         {"I32", 4, {}},
                                         {"I16", 2, {}},
                                         {"I8", 1, {}},
                                         {"U64", 8, {}},
                                         {"U32", 4, {}},
                                         {"U16", 2, {}},
                                         {"U8", 1, {}},
                                         {"BOOL", 1, {}},
                                         {"F8_E4M3", 1, {}},
                                         {"F8_E5M2", 1, {}},
                                         {"F8_E8M0", 1, {}},
                                         {"C64", 8, {}}}};

/// Where an error is: the file and the tensor, whose name may hold anything.
class Place {
 public:
  Place(const std::string& path, const std::string& tensor) : path_(path), tensor_(tensor) {}
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(fmt::format("{}: tensor {}: {}", path_, describe_json(tensor_), what));
  }

 private:
  const std::string& path_;
  const std::string& tensor_;
};

std::uint64_t unsigned_of(const nlohmann::json& value, const Place& place, const char* key) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost) {
    place.fail(fmt::format("{} holds {}, not a size", key, describe_json(value)));
  }
  return value.get<std::uint64_t>();
}

const nlohmann::json& member(const nlohmann::json& object, const char* key, const Place& place) {
  const auto found = object.find(key);
  if (found == object.end()) {
    place.fail(fmt::format("has no {}", key));
  }
  return *found;
}

void set_dtype(SafetensorsEntry& entry, const nlohmann::json& object, const Place& place) {
  const auto& dtype = member(object, "dtype", place);
  if (!dtype.is_string()) {
    place.fail(fmt::format("dtype is {}, not a string", describe_json(dtype)));
  }
  entry.dtype = dtype.get<std::string>();
}

std::uint64_t set_shape(SafetensorsEntry& entry, const nlohmann::json& object, const Place& place) {
  const auto& shape = member(object, "shape", place);
  if (!shape.is_array() || shape.size() > kMaxRank) {
    place.fail(fmt::format("shape is {}, not a short list", describe_json(shape)));
  }
  std::uint64_t elements = 1;
  for (const auto& extent : shape) {
    const auto value = unsigned_of(extent, place, "shape");
    if (__builtin_mul_overflow(elements, value, &elements)) {
      place.fail(fmt::format("shape {} is impossibly large", describe_json(shape)));
    }
    entry.shape.push_back(static_cast<std::int64_t>(value));
  }
  return elements;
}

void set_range(SafetensorsEntry& entry, const nlohmann::json& object, std::uint64_t data_offset,
               std::uint64_t file_size, const Place& place) {
  const auto& offsets = member(object, "data_offsets", place);
  if (!offsets.is_array() || offsets.size() != 2) {
    place.fail(fmt::format("data_offsets is {}, not two numbers", describe_json(offsets)));
  }
  const auto begin = unsigned_of(offsets[0], place, "data_offsets");
  const auto end = unsigned_of(offsets[1], place, "data_offsets");
  const auto data_bytes = file_size - data_offset;
  if (begin > end || end > data_bytes) {
    place.fail(fmt::format("its bytes {} to {} are not within the {} data bytes of the file", begin,
                           end, data_bytes));
  }
  entry.offset_bytes = data_offset + begin;
  entry.size_bytes = end - begin;
}

// A dtype that is newer than this list is an error only when its tensor is needed.
void check_size(SafetensorsEntry& entry, std::uint64_t elements, const Place& place) {
  const auto* dtype = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const Dtype& known) { return known.name == entry.dtype; });
  if (dtype == kDtypes.end()) {
    return;
  }
  entry.type = dtype->type;
  std::uint64_t wanted_bytes = 0;
  if (__builtin_mul_overflow(elements, dtype->size_bytes, &wanted_bytes) ||
      wanted_bytes != entry.size_bytes) {
    place.fail(fmt::format("has {} bytes, its shape [{}] and type {} want another number",
                           entry.size_bytes, fmt::join(entry.shape, ", "), entry.dtype));
  }
}

void check_no_overlap(const std::map<std::string, SafetensorsEntry>& tensors,
                      const std::string& path) {
  std::vector<std::tuple<std::uint64_t, std::uint64_t, const std::string*>> ranges;
  for (const auto& [name, entry] : tensors) {
    if (entry.size_bytes > 0) {
      ranges.emplace_back(entry.offset_bytes, entry.offset_bytes + entry.size_bytes, &name);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (std::get<0>(ranges[i]) < std::get<1>(ranges[i - 1])) {
      Place(path, *std::get<2>(ranges[i]))
          .fail(fmt::format("shares bytes with tensor {}",
                            describe_json(*std::get<2>(ranges[i - 1]))));
    }
  }
}

std::uint64_t read_header_length(const File& file) {
  const auto file_size = file.size_bytes();
  if (file_size < kLengthBytes) {
    throw FormatError(
        fmt::format("{}: {} bytes are too few for a safetensors file", file.path(), file_size));
  }
  std::uint64_t length = 0;
  file.read_at(std::as_writable_bytes(std::span(&length, 1)), 0);
  if (length > kMaxHeaderBytes || length > file_size - kLengthBytes) {
    throw FormatError(
        fmt::format("{}: no safetensors file: a header of {} bytes cannot be in a file of {} bytes",
                    file.path(), length, file_size));
  }
  return length;
}

}  // namespace

std::map<std::string, SafetensorsEntry> parse_safetensors_header(std::string_view header,
                                                                 std::uint64_t data_offset,
                                                                 std::uint64_t file_size,
                                                                 const std::string& path) {
  const auto json = parse_json(header, path + " (header)");
  if (!json.is_object()) {
    throw FormatError(fmt::format("{}: the header must be a JSON object", path));
  }
  std::map<std::string, SafetensorsEntry> tensors;
  for (const auto& [name, object] : json.items()) {
    if (name == "__metadata__") {
      continue;
    }
    const Place place(path, name);
    if (!object.is_object()) {
      place.fail(fmt::format("is {}, not an object", describe_json(object)));
    }
    SafetensorsEntry entry;
    set_dtype(entry, object, place);
    const auto elements = set_shape(entry, object, place);
    set_range(entry, object, data_offset, file_size, place);
    check_size(entry, elements, place);
    tensors.emplace(name, std::move(entry));
  }
  check_no_overlap(tensors, path);
  return tensors;
}

SafetensorsFile read_safetensors(const std::string& path) {
  if (std::error_code code; !std::filesystem::is_regular_file(path, code)) {
    throw ConfigError(fmt::format("there is no file {}", path));
  }
  const File file(path, File::Mode::read);
  std::string header(read_header_length(file), '\0');
  file.read_at(std::as_writable_bytes(std::span(header)), kLengthBytes);
  return {path,
          parse_safetensors_header(header, kLengthBytes + header.size(), file.size_bytes(), path)};
}

}  // namespace stagecoach::model
