#include "offload/weight_source.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "model/dummy_weights.hpp"

namespace stagecoach::offload {
namespace {

class StoreSource final : public WeightSource {
 public:
  explicit StoreSource(model::StoreIndex index)
      : index_(std::move(index)),
        file_(index_.path, File::Mode::read),
        direct_file_(DirectFile::open_for_reading(index_.path)) {}

  void read(const std::string& group, const model::TensorSpec& tensor, std::uint64_t first_byte,
            std::span<std::byte> out) const override {
    file_.read_at(out, index_.find(group, tensor.name).offset_bytes + first_byte);
  }

  [[nodiscard]] const DirectFile* file() const override { return &direct_file_; }
  [[nodiscard]] std::uint64_t file_offset(const std::string& group,
                                          const std::string& tensor) const override {
    return index_.find(group, tensor).offset_bytes;
  }

 private:
  model::StoreIndex index_;
  File file_;
  DirectFile direct_file_;
};

class DummySource final : public WeightSource {
 public:
  explicit DummySource(std::uint64_t seed) : seed_(seed) {}

  void read(const std::string& group, const model::TensorSpec& tensor, std::uint64_t first_byte,
            std::span<std::byte> out) const override {
    model::fill_dummy(seed_, group, tensor, static_cast<std::int64_t>(first_byte / sizeof(Half)),
                      {reinterpret_cast<Half*>(out.data()), out.size() / sizeof(Half)});
  }

  [[nodiscard]] const DirectFile* file() const override { return nullptr; }
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
