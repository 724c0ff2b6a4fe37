#include "model/convert.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/staged_file.hpp"
#include "model/checkpoint.hpp"
#include "model/dummy_weights.hpp"
#include "model/narrow.hpp"
#include "model/store_format.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::model {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{4} << 20;  // 8 MiB of f16

/// Yields a tensor's elements from `first` on.
using Fill = std::function<void(std::int64_t first, std::span<Half> out)>;
/// Prepares one tensor; `finish` of it is called when all elements were yielded.
struct TensorSource {
  Fill fill;
  std::function<void()> finish;
};
using OpenTensor = std::function<TensorSource(const std::string& group, const TensorSpec& tensor)>;

/// Writes a whole store, tensor by tensor in file order.
class StoreCopy {
 public:
  StoreCopy(const std::string& path, const ModelSpec& spec, const TokenizerFiles& tokenizer,
            const ConvertProgress& progress)
      : spec_(spec),
        writer_(path, spec, tokenizer),
        progress_(progress),
        piece_(piece_elements()) {}

  void run(const OpenTensor& open) {
    for (const auto& [group, tensors] : store_layout(spec_)) {
      for (const auto& tensor : tensors) {
        copy(group, tensor, open(group, tensor));
      }
    }
    writer_.finish();
  }

 private:
  [[nodiscard]] std::size_t piece_elements() const {
    std::int64_t largest = 0;
    for (const auto& group :
         {embedding_tensors(spec_), layer_tensors(spec_), head_tensors(spec_)}) {
      for (const auto& tensor : group) {
        largest = std::max(largest, tensor.elements());
      }
    }
    return static_cast<std::size_t>(std::min(largest, kPieceElements));
  }

  void copy(const std::string& group, const TensorSpec& tensor, const TensorSource& source) {
    const auto elements = static_cast<std::size_t>(tensor.elements());
    for (std::size_t at = 0; at < elements; at += piece_.size()) {
      const auto out = std::span(piece_).first(std::min(piece_.size(), elements - at));
      source.fill(static_cast<std::int64_t>(at), out);
      writer_.append(group, tensor.name, out);
      done_bytes_ += out.size_bytes();
      if (progress_) {
        progress_(done_bytes_, weight_bytes(spec_));
      }
    }
    if (source.finish) {
      source.finish();
    }
  }

  const ModelSpec& spec_;
  StoreWriter writer_;
  const ConvertProgress& progress_;
  std::vector<Half> piece_;
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
            [this] { report(); }};
  }

 private:
  void fill(std::int64_t first, std::span<Half> out) {
    const auto element_bytes = bytes_of(source_.type);
    raw_.resize(std::max(raw_.size(), out.size() * element_bytes));
    const auto raw = std::span(raw_).first(out.size() * element_bytes);
    file_.read_at(raw, source_.offset_bytes + static_cast<std::uint64_t>(first) * element_bytes);
    counts_ += narrow_to_half(source_.type, raw, out);
  }

  void report() const {
    if (counts_.overflowed > 0) {
      throw ConfigError(fmt::format(
          "{}: tensor {}: {} finite values are too large for f16 (up to {:g}, the most is 65504)",
          source_.path, source_.name, counts_.overflowed, counts_.largest));
    }
    if (counts_.nan > 0 || counts_.infinite > 0) {
      warnings_.push_back(fmt::format("{}: tensor {} has {} NaN and {} infinite values",
                                      source_.path, source_.name, counts_.nan, counts_.infinite));
    }
  }

  const Checkpoint& checkpoint_;
  std::vector<std::string>& warnings_;
  CheckpointTensor source_;
  NarrowCounts counts_;
  File file_;
  std::vector<std::byte> raw_;
};

ConvertReport make_store(const ModelSpec& spec, const TokenizerFiles& tokenizer,
                         const std::string& to, bool overwrite, const ConvertProgress& progress,
                         const OpenTensor& open) {
  const auto start = std::chrono::steady_clock::now();
  StagedFile file(to, overwrite);
  StoreCopy(file.temporary_path(), spec, tokenizer, progress).run(open);
  file.commit();
  ConvertReport report;
  report.spec = spec;
  report.size_bytes = std::filesystem::file_size(to);
  report.has_tokenizer = !tokenizer.vocab_json.empty();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace

ConvertReport convert_checkpoint(const std::string& from, const std::string& to, bool overwrite,
                                 const ConvertProgress& progress) {
  const Checkpoint checkpoint(from);
  std::vector<std::string> warnings;
  CheckpointReader reader(checkpoint, warnings);
  auto report = make_store(checkpoint.spec(), checkpoint.tokenizer(), to, overwrite, progress,
                           [&](const std::string& group, const TensorSpec& tensor) {
                             return reader.open(group, tensor);
                           });
  report.warnings = std::move(warnings);
  return report;
}

ConvertReport convert_dummy(const ModelSpec& spec, std::uint64_t seed, const std::string& to,
                            bool overwrite, const ConvertProgress& progress) {
  return make_store(spec, {}, to, overwrite, progress,
                    [&](const std::string& group, const TensorSpec& tensor) {
                      return TensorSource{[&, group](std::int64_t first, std::span<Half> out) {
                                            fill_dummy(seed, group, tensor, first, out);
                                          },
                                          {}};
                    });
}

}  // namespace stagecoach::model
