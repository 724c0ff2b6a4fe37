#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "model/hdf5.hpp"
#include "model/store_format.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::model {
namespace {

static_assert(std::endian::native == std::endian::little, "the store is little-endian");

/// One tensor being written: its place is fixed, its bytes arrive in order.
struct OpenTensor {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t written_bytes = 0;
  StreamingHash hash;
};

/// HDF5 calls on one file that is being made; every failure is an IoError that names it.
class StoreFile {
 public:
  StoreFile(const std::string& path, hid_t id) : path_(path), file_(checked(id)) {}

  template <typename Result>
  Result checked(Result result) const {
    if (result < 0) {
      throw IoError(fmt::format("cannot write {}: {}", path_, hdf5_reason()));
    }
    return result;
  }

  void make_group(const std::string& name) const {
    const Hdf5Properties creation(checked(H5Pcreate(H5P_GROUP_CREATE)));
    checked(H5Pset_obj_track_times(creation.id(), false));
    const Hdf5Group group(
        checked(H5Gcreate2(file_.id(), name.c_str(), H5P_DEFAULT, creation.id(), H5P_DEFAULT)));
  }

  /// Contiguous and allocated now; contents undefined until written. Same input, same file: no
  /// times.
  Hdf5Dataset make_dataset(const std::string& name, hid_t type,
                           const std::vector<hsize_t>& shape) const {
    const Hdf5Properties creation(checked(H5Pcreate(H5P_DATASET_CREATE)));
    checked(H5Pset_layout(creation.id(), H5D_CONTIGUOUS));
    checked(H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY));
    checked(H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER));
    checked(H5Pset_obj_track_times(creation.id(), false));
    const Hdf5Space space(
        checked(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr)));
    return Hdf5Dataset(checked(H5Dcreate2(file_.id(), name.c_str(), type, space.id(), H5P_DEFAULT,
                                          creation.id(), H5P_DEFAULT)));
  }

  void make_number(hid_t object, const char* name, std::uint64_t value) const {
    const Hdf5Space scalar(checked(H5Screate(H5S_SCALAR)));
    const Hdf5Attribute attribute(
        checked(H5Acreate2(object, name, H5T_STD_U64LE, scalar.id(), H5P_DEFAULT, H5P_DEFAULT)));
    checked(H5Awrite(attribute.id(), H5T_NATIVE_UINT64, &value));
  }

  void set_number(const std::string& path, const char* name, std::uint64_t value) const {
    const Hdf5Object object(checked(H5Oopen(file_.id(), path.c_str(), H5P_DEFAULT)));
    const Hdf5Attribute attribute(checked(H5Aopen(object.id(), name, H5P_DEFAULT)));
    checked(H5Awrite(attribute.id(), H5T_NATIVE_UINT64, &value));
  }

  void make_text(hid_t object, const char* name, const std::string& text) const {
    const Hdf5Type type(checked(H5Tcopy(H5T_C_S1)));
    checked(H5Tset_size(type.id(), text.size()));
    checked(H5Tset_strpad(type.id(), H5T_STR_NULLPAD));
    checked(H5Tset_cset(type.id(), H5T_CSET_UTF8));
    const Hdf5Space scalar(checked(H5Screate(H5S_SCALAR)));
    const Hdf5Attribute attribute(
        checked(H5Acreate2(object, name, type.id(), scalar.id(), H5P_DEFAULT, H5P_DEFAULT)));
    checked(H5Awrite(attribute.id(), type.id(), text.data()));
  }

  [[nodiscard]] hid_t id() const noexcept { return file_.id(); }

  /// Writes HDF5's metadata out; what does not fit the disk shows here.
  void close() { checked(H5Fclose(file_.release())); }

 private:
  std::string path_;
  Hdf5File file_;
};

std::size_t smallest_tensor_bytes(const std::vector<GroupTensors>& layout) {
  std::size_t least = 65536;
  for (const auto& group : layout) {
    for (const auto& tensor : group.tensors) {
      least = std::min(least, static_cast<std::size_t>(tensor.size_bytes()));
    }
  }
  return least;
}

hid_t create_file(const std::string& path, std::size_t alignment_threshold) {
  const auto access = make_file_access(alignment_threshold);
  const Hdf5Properties creation(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_obj_track_times(creation.id(), false);
  return H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id());
}

void write_header(const StoreFile& file, const ModelSpec& spec, const WeightFormat& weights) {
  const auto spec_json = spec_to_json(spec);
  file.make_text(file.id(), kFormatAttribute, kFormatName);
  file.make_number(file.id(), kVersionAttribute,
                   weights.packed() ? kPackedFormatVersion : kFormatVersion);
  if (weights.packed()) {
    file.make_text(file.id(), kPackingAttribute, to_string(weights.layers.packing));
    file.make_number(file.id(), kGroupAttribute, static_cast<std::uint64_t>(weights.layers.group));
    file.make_number(file.id(), kEmbeddingsAttribute, weights.embeddings ? 1 : 0);
  }
  file.make_text(file.id(), kSpecAttribute, spec_json);
  file.make_number(file.id(), kSpecChecksumAttribute, hash_string(spec_json));
  file.make_number(file.id(), kCompleteAttribute, 0);
}

void write_tokenizer(const StoreFile& file, const TokenizerFiles& tokenizer) {
  file.make_group(kTokenizerGroup);
  for (const auto& [name, member] : kTokenizerMembers) {
    const auto& text = tokenizer.*member;
    if (text.empty()) {
      continue;
    }
    const auto dataset =
        file.make_dataset(fmt::format("{}/{}", kTokenizerGroup, name), H5T_STD_U8LE, {text.size()});
    file.checked(H5Dwrite(dataset.id(), H5T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()));
    file.make_number(dataset.id(), kChecksumAttribute, hash_string(text));
  }
}

void make_groups(const StoreFile& file, const std::vector<GroupTensors>& layout) {
  file.make_group(kLayersGroup);
  for (const auto& group : layout) {
    file.make_group(group.group);
  }
}

// A full disk should show before hours of writing; a file system without fallocate shows it later.
void reserve(const File& file) {
  const auto size = static_cast<off_t>(file.size_bytes());
  if (::fallocate(file.descriptor(), 0, 0, size) != 0 && errno != EOPNOTSUPP && errno != ENOSYS &&
      errno != EINTR) {
    throw IoError(
        fmt::format("cannot reserve {} bytes for {}: {}", size, file.path(), std::strerror(errno)));
  }
}

}  // namespace

struct StoreWriter::Impl {
  std::string path;
  std::map<std::string, OpenTensor> tensors;  // by group/name
  File data;
  std::size_t alignment_threshold = 1;

  void make_dataset(const StoreFile& file, const std::string& name, const TensorSpec& tensor,
                    hid_t half) {
    const auto shape = dataset_shape(tensor);
    const auto dataset = file.make_dataset(name, tensor.format.packed() ? H5T_STD_U8LE : half,
                                           {shape.begin(), shape.end()});
    file.make_number(dataset.id(), kChecksumAttribute, 0);
    const auto offset = H5Dget_offset(dataset.id());
    STAGECOACH_CHECK(offset != HADDR_UNDEF && offset % 4096 == 0, "{} lies at {}", name, offset);
    tensors[name].offset_bytes = offset;
    tensors[name].size_bytes = static_cast<std::uint64_t>(tensor.size_bytes());
  }

  void create(const ModelSpec& spec, const TokenizerFiles& tokenizer, const WeightFormat& weights) {
    const Hdf5Session session;
    const auto layout = store_layout(spec, weights);
    alignment_threshold = smallest_tensor_bytes(layout);
    StoreFile file(path, create_file(path, alignment_threshold));
    const auto half = make_half_type();
    write_header(file, spec, weights);
    make_groups(file, layout);
    write_tokenizer(file, tokenizer);
    for (const auto& group : layout) {
      for (const auto& tensor : group.tensors) {
        make_dataset(file, group.group + "/" + tensor.name, tensor, half.id());
      }
    }
    file.close();
  }
};

StoreWriter::StoreWriter(const std::string& path, const ModelSpec& spec,
                         const TokenizerFiles& tokenizer, const WeightFormat& weights)
    : impl_(std::make_unique<Impl>()) {
  spec.validate();
  STAGECOACH_CHECK(!weights.packed() ||
                   std::count(kPackGroups.begin(), kPackGroups.end(), weights.layers.group) == 1);
  impl_->path = path;
  // HDF5 lays the file out; the weights then go in beside it, as every reader takes them out.
  impl_->data = File(path, File::Mode::truncate);
  impl_->create(spec, tokenizer, weights);
  reserve(impl_->data);
}

StoreWriter::~StoreWriter() = default;

void StoreWriter::append(const std::string& group, const std::string& name,
                         std::span<const std::byte> bytes) {
  const auto found = impl_->tensors.find(group + "/" + name);
  STAGECOACH_CHECK(found != impl_->tensors.end(), "{} has no tensor {}/{}", impl_->path, group,
                   name);
  auto& tensor = found->second;
  STAGECOACH_CHECK(bytes.size() <= tensor.size_bytes - tensor.written_bytes, "{}/{} is full", group,
                   name);
  impl_->data.write_at(bytes, tensor.offset_bytes + tensor.written_bytes);
  tensor.hash.update(bytes);
  tensor.written_bytes += bytes.size();
}

void StoreWriter::finish() {
  for (const auto& [name, tensor] : impl_->tensors) {
    STAGECOACH_CHECK(tensor.written_bytes == tensor.size_bytes, "{}: {} of {} bytes written", name,
                     tensor.written_bytes, tensor.size_bytes);
  }
  impl_->data = File();
  const Hdf5Session session;
  const auto access = make_file_access(impl_->alignment_threshold);
  StoreFile file(impl_->path, H5Fopen(impl_->path.c_str(), H5F_ACC_RDWR, access.id()));
  for (const auto& [name, tensor] : impl_->tensors) {
    file.set_number(name, kChecksumAttribute, tensor.hash.digest());
  }
  file.set_number("/", kCompleteAttribute, 1);
  file.close();
}

}  // namespace stagecoach::model
