#include "offload/weight_source.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "model/dummy_weights.hpp"
#include "offload/io_transfer.hpp"

namespace stagecoach::offload {
namespace {

class StoreSource final : public WeightSource {
 public:
  explicit StoreSource(model::StoreIndex index)
      : index_(std::move(index)),
        file_(index_.path, File::Mode::read),
        direct_file_(DirectFile::open_for_reading(index_.path)) {}

  void read(const std::string& group, const model::TensorSpec& tensor, std::uint64_t first_byte,
            std::span<std::byte> out, std::span<std::byte> /*scratch*/) const override {
    const auto& stored = index_.find(group, tensor.name);
    STAGECOACH_CHECK(stored.tensor == tensor, "{}/{} is {}, not {}", group, tensor.name,
                     describe(stored.tensor.format), describe(tensor.format));
    const auto offset = stored.offset_bytes + first_byte;
    if (direct_file_.direct() && aligned(offset) && aligned(address_of(out))) {
      read_directly(offset, out);
    } else {
      file_.read_at(out, offset);
    }
  }

  [[nodiscard]] const DirectFile* file() const override { return &direct_file_; }
  [[nodiscard]] std::uint64_t file_offset(const std::string& group,
                                          const std::string& tensor) const override {
    return index_.find(group, tensor).offset_bytes;
  }

 private:
  static bool aligned(std::uint64_t value) { return value % kDiskAlignment == 0; }
  static std::uint64_t address_of(std::span<std::byte> bytes) {
    return reinterpret_cast<std::uintptr_t>(bytes.data());
  }

  /// Whole blocks into place, the rest by way of a block.
  void read_directly(std::uint64_t offset, std::span<std::byte> out) const {
    const auto whole = out.size() / kDiskAlignment * kDiskAlignment;
    if (whole > 0) {
      transfer_now({&direct_file_, false, offset, out.data(), whole, whole});
    }
    if (const auto rest = out.subspan(whole); !rest.empty()) {
      alignas(kDiskAlignment) std::array<std::byte, kDiskAlignment> block;
      transfer_now({&direct_file_, false, offset + whole, block.data(), block.size(), rest.size()});
      std::copy_n(block.begin(), rest.size(), rest.begin());
    }
  }

  model::StoreIndex index_;
  File file_;
  DirectFile direct_file_;
};

class DummySource final : public WeightSource {
 public:
  explicit DummySource(std::uint64_t seed) : seed_(seed) {}

  void read(const std::string& group, const model::TensorSpec& tensor, std::uint64_t first_byte,
            std::span<std::byte> out, std::span<std::byte> /*scratch*/) const override {
    STAGECOACH_CHECK(!tensor.format.packed(), "{}/{}", group, tensor.name);
    model::fill_dummy(seed_, group, tensor, static_cast<std::int64_t>(first_byte / sizeof(Half)),
                      {reinterpret_cast<Half*>(out.data()), out.size() / sizeof(Half)});
  }

  [[nodiscard]] const DirectFile* file() const override { return nullptr; }
  [[nodiscard]] std::string why_no_file() const override {
    return "--dummy weights are in no file: make a store with 'stagecoach convert --dummy' and "
           "give it with --model";
  }
  [[nodiscard]] std::uint64_t file_offset(const std::string& group,
                                          const std::string& tensor) const override {
    throw InternalError(fmt::format("{}/{} is in no file", group, tensor));
  }

 private:
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<WeightSource> open_store_source(model::StoreIndex index) {
  return std::make_unique<StoreSource>(std::move(index));
}

std::unique_ptr<WeightSource> make_dummy_source(std::uint64_t seed) {
  return std::make_unique<DummySource>(seed);
}

}  // namespace stagecoach::offload
