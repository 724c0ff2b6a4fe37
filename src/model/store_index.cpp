#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "model/hdf5.hpp"
#include "model/store_format.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::model {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
constexpr std::uint64_t kMaxTokenizerBytes = std::uint64_t{1} << 30;

/// HDF5 calls on an open store; every failure is a FormatError that names the file.
class StoreReader {
 public:
  explicit StoreReader(const std::string& path) : path_(path), file_size_(check_is_hdf5(path)) {
    const auto access = make_file_access(1);
    file_ = Hdf5File(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()));
    if (file_.id() < 0) {
      fail(hdf5_reason());
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(fmt::format("{} is damaged: {}; convert the checkpoint again", path_, what));
  }

  [[nodiscard]] hid_t id() const noexcept { return file_.id(); }

  std::optional<std::string> text(hid_t object, const char* name) const {
    if (checked(H5Aexists(object, name), name) == 0) {
      return std::nullopt;
    }
    const auto attribute = open_scalar(object, name);
    const Hdf5Type type(checked(H5Aget_type(attribute.id()), name));
    const auto size = H5Tget_size(type.id());
    if (H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) != 0 ||
        size > kMaxTextBytes) {
      fail(fmt::format("attribute {} is no text", name));
    }
    std::string value(size, '\0');
    checked(H5Aread(attribute.id(), type.id(), value.data()), name);
    return value;
  }

  std::uint64_t number(hid_t object, const char* name) const {
    const auto attribute = open_scalar(object, name);
    const Hdf5Type type(checked(H5Aget_type(attribute.id()), name));
    if (H5Tequal(type.id(), H5T_STD_U64LE) <= 0) {
      fail(fmt::format("attribute {} is no 64-bit number", name));
    }
    std::uint64_t value = 0;
    checked(H5Aread(attribute.id(), H5T_NATIVE_UINT64, &value), name);
    return value;
  }

  StoredTensor tensor(const std::string& name, const TensorSpec& wanted, hid_t half) const {
    const auto dataset = open_dataset(name);
    if (wanted.format.packed()) {
      check_type(dataset, name, H5T_STD_U8LE, "byte");
    } else {
      check_type(dataset, name, half, "16-bit float");
    }
    const auto shape = dataset_shape(wanted);
    if (shape_of(dataset, name) != shape) {
      fail(fmt::format("{} has shape [{}], the model wants [{}]", name,
                       fmt::join(shape_of(dataset, name), ", "), fmt::join(shape, ", ")));
    }
    const auto offset = offset_of(dataset, name);
    const auto size = static_cast<std::uint64_t>(wanted.size_bytes());
    if (offset % kPageBytes != 0) {
      fail(fmt::format("{} is not page-aligned", name));
    }
    if (offset > file_size_ || size > file_size_ - offset) {
      fail(fmt::format("{} reaches past the end of the file", name));
    }
    return {wanted, offset, number(dataset.id(), kChecksumAttribute)};
  }

  /// A small byte dataset, checksum verified; empty if there is none.
  std::string bytes(const std::string& name) const {
    if (checked(H5Lexists(file_.id(), name.c_str(), H5P_DEFAULT), name) == 0) {
      return {};
    }
    const auto dataset = open_dataset(name);
    check_type(dataset, name, H5T_STD_U8LE, "byte");
    const auto shape = shape_of(dataset, name);
    if (shape.size() != 1 || static_cast<std::uint64_t>(shape[0]) > kMaxTokenizerBytes ||
        static_cast<std::uint64_t>(shape[0]) > file_size_) {
      fail(fmt::format("{} has an impossible size", name));
    }
    std::string value(static_cast<std::size_t>(shape[0]), '\0');
    checked(H5Dread(dataset.id(), H5T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, value.data()), name);
    if (hash_string(value) != number(dataset.id(), kChecksumAttribute)) {
      fail(fmt::format("{} does not match its checksum", name));
    }
    return value;
  }

 private:
  static std::uint64_t check_is_hdf5(const std::string& path) {
    std::error_code code;
    if (!std::filesystem::is_regular_file(path, code)) {
      throw ConfigError(
          fmt::format("there is no model file {}: make one with 'stagecoach convert'", path));
    }
    if (H5Fis_hdf5(path.c_str()) <= 0) {
      throw ConfigError(
          fmt::format("{} is not a weight store: make one with 'stagecoach convert'", path));
    }
    return std::filesystem::file_size(path);
  }

  template <typename Result>
  Result checked(Result result, const std::string& what) const {
    if (result < 0) {
      fail(fmt::format("cannot read {}: {}", what, hdf5_reason()));
    }
    return result;
  }

  Hdf5Attribute open_scalar(hid_t object, const char* name) const {
    Hdf5Attribute attribute(checked(H5Aopen(object, name, H5P_DEFAULT), name));
    const Hdf5Space space(checked(H5Aget_space(attribute.id()), name));
    if (H5Sget_simple_extent_npoints(space.id()) != 1) {
      fail(fmt::format("attribute {} is not one value", name));
    }
    return attribute;
  }

  Hdf5Dataset open_dataset(const std::string& name) const {
    return Hdf5Dataset(checked(H5Dopen2(file_.id(), name.c_str(), H5P_DEFAULT), name));
  }

  void check_type(const Hdf5Dataset& dataset, const std::string& name, hid_t wanted,
                  const char* type_name) const {
    const Hdf5Type type(checked(H5Dget_type(dataset.id()), name));
    if (H5Tequal(type.id(), wanted) <= 0) {
      fail(fmt::format("{} is not of the {} type", name, type_name));
    }
  }

  std::vector<std::int64_t> shape_of(const Hdf5Dataset& dataset, const std::string& name) const {
    const Hdf5Space space(checked(H5Dget_space(dataset.id()), name));
    const int rank = checked(H5Sget_simple_extent_ndims(space.id()), name);
    std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
    checked(H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr), name);
    return {extents.begin(), extents.end()};
  }

  std::uint64_t offset_of(const Hdf5Dataset& dataset, const std::string& name) const {
    const Hdf5Properties creation(checked(H5Dget_create_plist(dataset.id()), name));
    if (H5Pget_layout(creation.id()) != H5D_CONTIGUOUS ||
        H5Pget_external_count(creation.id()) != 0) {
      fail(fmt::format("{} is not contiguous", name));
    }
    const auto offset = H5Dget_offset(dataset.id());
    if (offset == HADDR_UNDEF) {
      fail(fmt::format("{} has no data", name));
    }
    return offset;
  }

  std::string path_;
  std::uint64_t file_size_ = 0;
  Hdf5File file_;
};

void check_header(const StoreReader& reader, const std::string& path) {
  if (reader.text(reader.id(), kFormatAttribute) != kFormatName) {
    throw ConfigError(fmt::format(
        "{} is an HDF5 file but not a weight store: make one with 'stagecoach convert'", path));
  }
  const auto version = reader.number(reader.id(), kVersionAttribute);
  if (version != kFormatVersion && version != kPackedFormatVersion) {
    throw ConfigError(
        fmt::format("{} is a weight store of version {}, this program reads versions {} and {}: "
                    "convert the checkpoint again",
                    path, version, kFormatVersion, kPackedFormatVersion));
  }
  if (reader.number(reader.id(), kCompleteAttribute) != 1) {
    reader.fail("its conversion was not finished");
  }
}

ModelSpec read_spec(const StoreReader& reader, const std::string& path) {
  const auto text = reader.text(reader.id(), kSpecAttribute);
  if (!text || hash_string(*text) != reader.number(reader.id(), kSpecChecksumAttribute)) {
    reader.fail("the model description does not match its checksum");
  }
  return spec_from_json(*text, path);
}

PackFormat read_pack_format(const StoreReader& reader, const std::string& packing) {
  const auto group = static_cast<std::int64_t>(reader.number(reader.id(), kGroupAttribute));
  if (std::count(kPackGroups.begin(), kPackGroups.end(), group) == 0) {
    reader.fail(fmt::format("{} is {}, it must be one of {}", kGroupAttribute, group,
                            fmt::join(kPackGroups, ", ")));
  }
  for (const auto known : {Packing::int4, Packing::int8}) {
    if (packing == to_string(known)) {
      return {known, group};
    }
  }
  reader.fail(fmt::format("{} is no packing of this program", kPackingAttribute));
}

WeightFormat read_weight_format(const StoreReader& reader) {
  const bool packed = reader.number(reader.id(), kVersionAttribute) == kPackedFormatVersion;
  const auto packing = reader.text(reader.id(), kPackingAttribute);
  if (packed != packing.has_value()) {
    reader.fail(
        fmt::format("its version and its attribute {} contradict each other: stores of "
                    "version {} have it, others not",
                    kPackingAttribute, kPackedFormatVersion));
  }
  if (!packed) {
    return {};
  }
  const auto embeddings = reader.number(reader.id(), kEmbeddingsAttribute);
  if (embeddings > 1) {
    reader.fail(fmt::format("{} is {}, it must be 0 or 1", kEmbeddingsAttribute, embeddings));
  }
  return {read_pack_format(reader, *packing), embeddings == 1};
}

void read_groups(StoreIndex& index, const StoreReader& reader) {
  const auto half = make_half_type();
  for (const auto& [group, tensors] : store_layout(index.spec, index.weights)) {
    auto& stored = index.groups[group];
    stored.reserve(tensors.size());
    for (const auto& tensor : tensors) {
      stored.push_back(reader.tensor(group + "/" + tensor.name, tensor, half.id()));
    }
  }
}

void check_no_overlap(const StoreIndex& index, const StoreReader& reader) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const auto& [group, tensors] : index.groups) {
    for (const auto& stored : tensors) {
      const auto size = static_cast<std::uint64_t>(stored.tensor.size_bytes());
      ranges.emplace_back(stored.offset_bytes, stored.offset_bytes + size);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      reader.fail(fmt::format("two tensors share byte {}", ranges[i].first));
    }
  }
}

}  // namespace

StoreIndex read_store_index(const std::string& path) {
  const Hdf5Session session;
  const StoreReader reader(path);
  check_header(reader, path);
  StoreIndex index;
  index.path = path;
  index.spec = read_spec(reader, path);
  index.weights = read_weight_format(reader);
  for (const auto& [name, member] : kTokenizerMembers) {
    index.tokenizer.*member = reader.bytes(fmt::format("{}/{}", kTokenizerGroup, name));
  }
  read_groups(index, reader);
  check_no_overlap(index, reader);
  return index;
}

const StoredTensor& StoreIndex::find(const std::string& group, const std::string& name) const {
  const auto found = groups.find(group);
  if (found != groups.end()) {
    for (const auto& stored : found->second) {
      if (stored.tensor.name == name) {
        return stored;
      }
    }
  }
  throw ConfigError(fmt::format("{} has no tensor {}/{}", path, group, name));
}

std::uint64_t StoreIndex::digest() const {
  std::string text = spec_to_json(spec);
  if (weights.packed()) {
    text += fmt::format("\n{} {} {}", to_string(weights.layers.packing), weights.layers.group,
                        weights.embeddings ? 1 : 0);
  }
  for (const auto& [name, member] : kTokenizerMembers) {
    text += fmt::format("\n{} {:016x}", name, hash_string(tokenizer.*member));
  }
  for (const auto& [group, tensors] : groups) {
    for (const auto& stored : tensors) {
      text += fmt::format("\n{}/{} {:016x}", group, stored.tensor.name, stored.checksum);
    }
  }
  return hash_string(text);
}

}  // namespace stagecoach::model
