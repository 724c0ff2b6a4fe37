#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "model/spec.hpp"
#include "model/weight_store.hpp"

using namespace stagecoach;

// HDF5 1.10 loses some memory when it refuses a damaged object header.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace {

model::ModelSpec small_spec() {
  model::ModelSpec spec;
  spec.layers = 1;
  spec.hidden = 4;
  spec.heads = spec.kv_heads = 1;
  spec.head_dim = 4;
  spec.ffn = 4;
  spec.vocab = 4;
  spec.max_positions = 2;
  return spec;
}

/// A whole store in a folder of its own, which inputs damage.
class Target {
 public:
  explicit Target(const model::WeightFormat& weights)
      : path_((std::filesystem::temp_directory_path() / "stagecoach-fuzz-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      std::abort();
    }
    path_ += "/model.h5";
    model::StoreWriter writer(path_, small_spec(), {"{}", "#version: 0.2\n", ""}, weights);
    write(writer, model::kEmbeddingGroup, model::embedding_tensors(small_spec(), weights));
    write(writer, model::layer_group(0), model::layer_tensors(small_spec(), weights));
    write(writer, model::kHeadGroup, model::head_tensors(small_spec(), weights));
    writer.finish();
    whole_ = read_text_file(path_);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  Target(Target&&) = delete;
  Target& operator=(Target&&) = delete;
  ~Target() {
    std::error_code ignored;
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path(), ignored);
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  /// The first four bytes say where, whether to cut, and which store; the others are written over
  /// it there.
  void damage(std::span<const std::uint8_t> input) {
    const File file(path_, File::Mode::truncate);
    auto bytes = whole_;
    if (input.size() >= 4) {
      const auto at =
          (std::size_t{input[0]} | std::size_t{input[1]} << 8 | std::size_t{input[2]} << 16) %
          bytes.size();
      const auto patch = input.subspan(4).first(std::min(input.size() - 4, bytes.size() - at));
      std::copy(patch.begin(), patch.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
      if ((input[3] & 1) != 0) {
        bytes.resize(at + patch.size());
      }
    }
    file.write_at(std::as_bytes(std::span(bytes)), 0);
  }

 private:
  static void write(model::StoreWriter& writer, const std::string& group,
                    const std::vector<model::TensorSpec>& tensors) {
    for (const auto& tensor : tensors) {
      writer.append(group, tensor.name,
                    std::vector<std::byte>(static_cast<std::size_t>(tensor.size_bytes())));
    }
  }

  std::string path_;
  std::string whole_;
};

}  // namespace

// A damaged store is refused with a ConfigError, or its index still describes a file that can be
// read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Target plain{{}};
  static Target packed{{{Packing::int4, 32}, true}};
  auto& target = size >= 4 && (data[3] & 2) != 0 ? packed : plain;
  target.damage({data, size});
  try {
    static_cast<void>(model::verify_store(model::read_store_index(target.path()), {}));
  } catch (const ConfigError&) {
  }
  return 0;
}
