#include <algorithm>
#include <utility>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "model/store_format.hpp"
#include "offload/weight_source.hpp"

namespace stagecoach::offload {
namespace {

/// About so much f16 is read at once.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

std::size_t plain_row_bytes(const model::TensorSpec& tensor) {
  return static_cast<std::size_t>(tensor.columns()) * sizeof(Half);
}

std::string convert_flags(const model::WeightFormat& format) {
  auto flags = "--quantize " + to_string(format.layers.packing);
  if (format.layers.group != PackFormat{}.group) {
    flags += fmt::format(" --quantize-group {}", format.layers.group);
  }
  return flags + (format.embeddings ? " --quantize-embeddings" : "");
}

class PackingSource final : public WeightSource {
 public:
  PackingSource(std::unique_ptr<const WeightSource> source, const model::ModelSpec& spec,
                const model::WeightFormat& format)
      : source_(std::move(source)), format_(format) {
    for (const auto& [group, tensors] : model::store_layout(spec, format)) {
      for (const auto& tensor : tensors) {
        if (tensor.format.packed()) {
          chunk_bytes_ = std::max(chunk_bytes_, round_up(plain_row_bytes(tensor), kPageBytes));
          row_bytes_ = std::max(row_bytes_, static_cast<std::size_t>(tensor.row_bytes()));
        }
      }
    }
  }

  void read(const std::string& group, const model::TensorSpec& tensor, std::uint64_t first_byte,
            std::span<std::byte> out, std::span<std::byte> scratch) const override {
    const auto of_source = scratch.subspan(chunk_bytes_ + row_bytes_);
    if (!tensor.format.packed()) {
      source_->read(group, tensor, first_byte, out, of_source);
      return;
    }
    const model::TensorSpec plain{tensor.name, tensor.shape, {}};
    const auto plain_bytes = plain_row_bytes(tensor);
    const auto row_bytes = static_cast<std::size_t>(tensor.row_bytes());
    const auto chunk_rows = chunk_bytes_ / plain_bytes;
    const auto end = (first_byte + out.size() + row_bytes - 1) / row_bytes;
    for (auto first = first_byte / row_bytes; first < end; first += chunk_rows) {
      const auto chunk = scratch.first(std::min(chunk_rows, end - first) * plain_bytes);
      source_->read(group, plain, first * plain_bytes, chunk, of_source);
      for (std::size_t i = 0; i * plain_bytes < chunk.size(); ++i) {
        const auto* const row = reinterpret_cast<const Half*>(chunk.data() + i * plain_bytes);
        pack({tensor.format, {row, plain_bytes / sizeof(Half)}, (first + i) * row_bytes, row_bytes},
             first_byte, out, scratch.subspan(chunk_bytes_, row_bytes));
      }
    }
  }

  [[nodiscard]] std::size_t scratch_bytes() const override {
    return chunk_bytes_ + row_bytes_ + source_->scratch_bytes();
  }
  [[nodiscard]] const DirectFile* file() const override { return nullptr; }
  [[nodiscard]] std::string why_no_file() const override {
    const auto flags = convert_flags(format_);
    if (source_->file() == nullptr) {
      return fmt::format(
          "--dummy weights are in no file: make a store with 'stagecoach convert --dummy {}' and "
          "give it with --model",
          flags);
    }
    return fmt::format(
        "the weights are packed while they are read and are in no file: make a packed store with "
        "'stagecoach convert {}' and give it with --model",
        flags);
  }
  [[nodiscard]] std::uint64_t file_offset(const std::string& group,
                                          const std::string& tensor) const override {
    throw InternalError(fmt::format("{}/{} is packed in no file", group, tensor));
  }

 private:
  /// One row, and where it begins in its packed tensor.
  struct Row {
    const PackFormat& format;
    std::span<const Half> values;
    std::size_t begin = 0;
    std::size_t size_bytes = 0;
  };

  /// Puts what of the packed row is in `out`, the tensor's bytes from `first_byte` on.
  static void pack(const Row& row, std::size_t first_byte, std::span<std::byte> out,
                   std::span<std::byte> spare) {
    const auto begin = std::max(row.begin, first_byte);
    const auto end = std::min(row.begin + row.size_bytes, first_byte + out.size());
    auto* const to = out.data() + (begin - first_byte);
    if (end - begin == row.size_bytes) {
      pack_row(row.format, row.values, to);
      return;
    }
    pack_row(row.format, row.values, spare.data());
    const auto part = spare.subspan(begin - row.begin, end - begin);
    std::copy(part.begin(), part.end(), to);
  }

  std::unique_ptr<const WeightSource> source_;
  model::WeightFormat format_;
  std::size_t chunk_bytes_ = kChunkBytes;  // of f16; whole rows
  std::size_t row_bytes_ = 0;              // of a packed row
};

}  // namespace

std::unique_ptr<WeightSource> make_packing_source(std::unique_ptr<const WeightSource> source,
                                                  const model::ModelSpec& spec,
                                                  const model::WeightFormat& format) {
  return std::make_unique<PackingSource>(std::move(source), spec, format);
}

}  // namespace stagecoach::offload
