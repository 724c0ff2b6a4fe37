#include "offload/stage_weights.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::offload {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{8} << 20;

/// One tensor of the stage and where it goes.
struct Placed {
  std::string group;
  model::TensorSpec tensor;
  std::size_t offset_bytes = 0;
};

std::vector<Placed> place_tensors(const model::ModelSpec& spec, const StageContents& contents) {
  std::vector<Placed> placed;
  std::size_t offset = 0;
  const auto add = [&](const std::string& group, const std::vector<model::TensorSpec>& tensors) {
    for (const auto& tensor : tensors) {
      placed.push_back({group, tensor, offset});
      offset += round_up(static_cast<std::size_t>(tensor.size_bytes()), kPageBytes);
    }
  };
  if (contents.embedding) {
    add(model::kEmbeddingGroup, model::embedding_tensors(spec));
  } else if (contents.head && spec.tied_head) {
    add(model::kEmbeddingGroup, {model::embedding_tensors(spec).front()});
  }
  for (std::int64_t i = 0; i < contents.layers; ++i) {
    add(model::layer_group(contents.first_layer + i), model::layer_tensors(spec));
  }
  if (contents.head) {
    add(model::kHeadGroup, model::head_tensors(spec));
  }
  return placed;
}

std::size_t end_of(const std::vector<Placed>& placed) {
  return placed.empty() ? 0
                        : round_up(placed.back().offset_bytes +
                                       static_cast<std::size_t>(placed.back().tensor.size_bytes()),
                                   kPageBytes);
}

/// A part of one tensor, small enough for a staging buffer.
struct Piece {
  const Placed* placed = nullptr;
  std::uint64_t first_byte = 0;
  std::size_t size_bytes = 0;
};

std::vector<Piece> cut(const std::vector<Placed>& placed) {
  std::vector<Piece> pieces;
  for (const auto& item : placed) {
    const auto size = static_cast<std::uint64_t>(item.tensor.size_bytes());
    for (std::uint64_t first = 0; first < size; first += kPieceBytes) {
      pieces.push_back(
          {&item, first,
           static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, size - first))});
    }
  }
  return pieces;
}

/// Threads that take pieces in turn: each reads into its own staging memory, then copies to the
/// device under a lock, since a device takes calls from one thread at a time.
class Loader {
 public:
  Loader(const std::vector<Piece>& pieces, const WeightSource& source, device::Device& device,
         std::byte* base, const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : pieces_(pieces),
        source_(source),
        device_(device),
        base_(base),
        progress_(progress),
        stream_(device.create_stream("load")) {
    for (const auto& piece : pieces) {
      total_bytes_ += piece.size_bytes;
    }
  }

  void run(int threads) {
    {
      std::vector<std::jthread> readers;
      readers.reserve(static_cast<std::size_t>(threads));
      for (int i = 0; i < threads; ++i) {
        readers.emplace_back([this] { read_pieces(); });
      }
    }
    if (failure_ != nullptr) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  void read_pieces() noexcept {
    try {
      const AlignedMemory staging(kPieceBytes, "reading weights");
      while (!failed_) {
        const std::size_t i = next_++;
        if (i >= pieces_.size()) {
          return;
        }
        const auto bytes = staging.bytes().first(pieces_[i].size_bytes);
        source_.read(pieces_[i].placed->group, pieces_[i].placed->tensor, pieces_[i].first_byte,
                     bytes);
        copy(pieces_[i], bytes);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (failure_ == nullptr) {
        failure_ = std::current_exception();
      }
      failed_ = true;
    }
  }

  void copy(const Piece& piece, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    device_.copy_from_host(*stream_, base_ + piece.placed->offset_bytes + piece.first_byte,
                           bytes.data(), bytes.size());
    stream_->record().wait();
    done_bytes_ += bytes.size();
    if (progress_) {
      progress_(done_bytes_, total_bytes_);
    }
  }

  const std::vector<Piece>& pieces_;
  const WeightSource& source_;
  device::Device& device_;
  std::byte* base_;
  const std::function<void(std::uint64_t, std::uint64_t)>& progress_;
  std::unique_ptr<device::Stream> stream_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::uint64_t done_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace

std::size_t StageWeights::size_bytes(const model::ModelSpec& spec, const StageContents& contents) {
  return end_of(place_tensors(spec, contents));
}

std::size_t StageWeights::staging_bytes(int reader_threads) {
  return static_cast<std::size_t>(reader_threads) * kPieceBytes;
}

StageWeights::StageWeights(const model::ModelSpec& spec, const StageContents& contents,
                           const WeightSource& source, device::Device& device, int reader_threads,
                           const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const auto placed = place_tensors(spec, contents);
  buffer_ = device.allocate(end_of(placed), "weights");
  const auto pieces = cut(placed);
  Loader(pieces, source, device, buffer_.data(), progress).run(reader_threads);

  std::map<std::pair<std::string, std::string>, const Half*> address;
  for (const auto& item : placed) {
    address[{item.group, item.tensor.name}] =
        reinterpret_cast<const Half*>(buffer_.data() + item.offset_bytes);
  }
  const auto pair = [&](const std::string& group, const std::string& name) {
    return WeightAndBias{address.at({group, name + ".weight"}),
                         address.at({group, name + ".bias"})};
  };
  for (std::int64_t i = 0; i < contents.layers; ++i) {
    const auto group = model::layer_group(contents.first_layer + i);
    layers_.push_back({pair(group, "attn_norm"), pair(group, "q"), pair(group, "k"),
                       pair(group, "v"), pair(group, "o"), pair(group, "mlp_norm"),
                       pair(group, "up"), pair(group, "down")});
  }
  if (contents.embedding) {
    token_table_ = address.at({model::kEmbeddingGroup, "token.weight"});
    position_table_ = address.at({model::kEmbeddingGroup, "position.weight"});
  }
  if (contents.head) {
    final_norm_ = pair(model::kHeadGroup, "final_norm");
    head_ = spec.tied_head ? address.at({model::kEmbeddingGroup, "token.weight"})
                           : address.at({model::kHeadGroup, "weight"});
  }
}

}  // namespace stagecoach::offload
