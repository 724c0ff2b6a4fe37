#include "model/convert.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/staged_file.hpp"
#include "base/system.hpp"
#include "model/checkpoint.hpp"
#include "model/dummy_weights.hpp"
#include "model/narrow.hpp"
#include "model/pack_rows.hpp"
#include "model/store_format.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::model {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;

/// Rows of a tensor that are handled together: a piece in f16, and no more when they are packed.
std::int64_t piece_rows(const TensorSpec& tensor) {
  const auto row_bytes = std::max(2 * tensor.columns(), tensor.row_bytes());
  return std::clamp(kPieceBytes / row_bytes, std::int64_t{1}, tensor.rows());
}

/// Yields a tensor's elements from `first` on.
using Fill = std::function<void(std::int64_t first, std::span<Half> out)>;
/// Prepares one tensor; `finish` of it is called when all elements were yielded, with the number of
/// groups that are NaN throughout.
struct TensorSource {
  Fill fill;
  std::function<void(std::int64_t nan_groups)> finish;
};
using OpenTensor = std::function<TensorSource(const std::string& group, const TensorSpec& tensor)>;

/// Writes a whole store, tensor by tensor in file order.
class StoreCopy {
 public:
  StoreCopy(const std::string& path, const ModelSpec& spec, const WeightFormat& weights,
            const TokenizerFiles& tokenizer, const ConvertProgress& progress)
      : layout_(store_layout(spec, weights)),
        writer_(path, spec, tokenizer, weights),
        progress_(progress),
        total_bytes_(static_cast<std::uint64_t>(weight_bytes(spec, weights))),
        threads_(static_cast<int>(usable_cpus().size())) {}

  void run(const OpenTensor& open) {
    for (const auto& [group, tensors] : layout_) {
      for (const auto& tensor : tensors) {
        copy(group, tensor, open(group, tensor));
      }
    }
    writer_.finish();
  }

 private:
  void copy(const std::string& group, const TensorSpec& tensor, const TensorSource& source) {
    const auto columns = tensor.columns();
    const auto rows = piece_rows(tensor);
    nan_groups_ = 0;
    for (std::int64_t row = 0; row < tensor.rows(); row += rows) {
      const auto count = static_cast<std::size_t>(std::min(rows, tensor.rows() - row) * columns);
      values_.resize(std::max(values_.size(), count));
      const auto values = std::span(values_).first(count);
      source.fill(row * columns, values);
      const auto bytes = stored(tensor, values);
      writer_.append(group, tensor.name, bytes);
      done_bytes_ += bytes.size();
      if (progress_) {
        progress_(done_bytes_, total_bytes_);
      }
    }
    if (source.finish) {
      source.finish(nan_groups_);
    }
  }

  /// Whole rows as the tensor's format has them.
  std::span<const std::byte> stored(const TensorSpec& tensor, std::span<const Half> values) {
    if (!tensor.format.packed()) {
      return std::as_bytes(values);
    }
    const auto rows = static_cast<std::int64_t>(values.size()) / tensor.columns();
    const auto size = static_cast<std::size_t>(rows * tensor.row_bytes());
    packed_.resize(std::max(packed_.size(), size));
    const auto packed = std::span(packed_).first(size);
    nan_groups_ += pack_rows(tensor.format, values, tensor.columns(), packed, threads_);
    return packed;
  }

  const std::vector<GroupTensors> layout_;
  StoreWriter writer_;
  const ConvertProgress& progress_;
  const std::uint64_t total_bytes_;
  const int threads_;
  std::vector<Half> values_;
  std::vector<std::byte> packed_;
  std::int64_t nan_groups_ = 0;  // of the tensor
  std::uint64_t done_bytes_ = 0;
};

/// Reads one checkpoint tensor after the other and narrows it.
class CheckpointReader {
 public:
  CheckpointReader(const Checkpoint& checkpoint, std::vector<std::string>& warnings)
      : checkpoint_(checkpoint), warnings_(warnings) {}

  TensorSource open(const std::string& group, const TensorSpec& tensor) {
    source_ = checkpoint_.find(group, tensor.name);
    counts_ = {};
    if (file_.path() != source_.path) {
      file_ = File(source_.path, File::Mode::read);
    }
    return {[this](std::int64_t first, std::span<Half> out) { fill(first, out); },
            [this](std::int64_t nan_groups) { report(nan_groups); }};
  }

 private:
  void fill(std::int64_t first, std::span<Half> out) {
    const auto element_bytes = bytes_of(source_.type);
    raw_.resize(std::max(raw_.size(), out.size() * element_bytes));
    const auto raw = std::span(raw_).first(out.size() * element_bytes);
    file_.read_at(raw, source_.offset_bytes + static_cast<std::uint64_t>(first) * element_bytes);
    counts_ += narrow_to_half(source_.type, raw, out);
  }

  void report(std::int64_t nan_groups) const {
    if (counts_.overflowed > 0) {
      throw ConfigError(fmt::format(
          "{}: tensor {}: {} finite values are too large for f16 (up to {:g}, the most is 65504)",
          source_.path, source_.name, counts_.overflowed, counts_.largest));
    }
    if (counts_.nan > 0 || counts_.infinite > 0) {
      const auto groups =
          nan_groups == 0
              ? std::string{}
              : fmt::format(": {} groups with not finite numbers are NaN throughout", nan_groups);
      warnings_.push_back(fmt::format("{}: tensor {} has {} NaN and {} infinite values{}",
                                      source_.path, source_.name, counts_.nan, counts_.infinite,
                                      groups));
    }
  }

  const Checkpoint& checkpoint_;
  std::vector<std::string>& warnings_;
  CheckpointTensor source_;
  NarrowCounts counts_;
  File file_;
  std::vector<std::byte> raw_;
};

ConvertReport make_store(const ModelSpec& spec, const WeightFormat& weights,
                         const TokenizerFiles& tokenizer, const std::string& to, bool overwrite,
                         const ConvertProgress& progress, const OpenTensor& open) {
  const auto start = std::chrono::steady_clock::now();
  StagedFile file(to, overwrite);
  StoreCopy(file.temporary_path(), spec, weights, tokenizer, progress).run(open);
  file.commit();
  ConvertReport report;
  report.spec = spec;
  report.weights = weights;
  report.size_bytes = std::filesystem::file_size(to);
  report.has_tokenizer = !tokenizer.vocab_json.empty();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace

ConvertReport convert_checkpoint(const std::string& from, const std::string& to, bool overwrite,
                                 const ConvertProgress& progress, const WeightFormat& weights) {
  const Checkpoint checkpoint(from);
  std::vector<std::string> warnings;
  CheckpointReader reader(checkpoint, warnings);
  auto report = make_store(checkpoint.spec(), weights, checkpoint.tokenizer(), to, overwrite,
                           progress, [&](const std::string& group, const TensorSpec& tensor) {
                             return reader.open(group, tensor);
                           });
  report.warnings = std::move(warnings);
  return report;
}

ConvertReport convert_dummy(const ModelSpec& spec, std::uint64_t seed, const std::string& to,
                            bool overwrite, const ConvertProgress& progress,
                            const WeightFormat& weights) {
  return make_store(spec, weights, {}, to, overwrite, progress,
                    [&](const std::string& group, const TensorSpec& tensor) {
                      return TensorSource{[&, group](std::int64_t first, std::span<Half> out) {
                                            fill_dummy(seed, group, tensor, first, out);
                                          },
                                          {}};
                    });
}

}  // namespace stagecoach::model
