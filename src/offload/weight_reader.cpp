#include "offload/weight_reader.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace stagecoach::offload {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{8} << 20;

/// Of one thread: a piece on its way to the device, then what the source works in.
std::size_t staging_bytes(const WeightSource& source) {
  return read_staging_bytes(source.scratch_bytes(), 1);
}

std::vector<WeightRead> cut(const std::vector<WeightRead>& reads) {
  std::vector<WeightRead> pieces;
  for (const auto& read : reads) {
    for (std::size_t done = 0; done < read.size_bytes; done += kPieceBytes) {
      auto piece = read;
      piece.first_byte += done;
      piece.size_bytes = std::min(kPieceBytes, read.size_bytes - done);
      piece.to += done;
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

/// Threads that take pieces in turn. Copies to the device go one at a time, since a device takes
/// calls from one thread at a time.
class Reader {
 public:
  Reader(std::vector<WeightRead> pieces, const WeightSource& source, device::Device& device,
         MemoryBudget& dram, const std::function<void(std::uint64_t, std::uint64_t)>& progress)
      : pieces_(std::move(pieces)),
        source_(source),
        device_(device),
        dram_(dram),
        progress_(progress),
        stream_(device.create_stream("load")) {
    for (const auto& piece : pieces_) {
      total_bytes_ += piece.size_bytes;
    }
  }

  std::uint64_t run(int threads) {
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
    return done_bytes_;
  }

 private:
  void read_pieces() noexcept {
    try {
      const BudgetedMemory staging(dram_, staging_bytes(source_), "reading weights");
      while (!failed_) {
        const std::size_t i = next_++;
        if (i >= pieces_.size()) {
          return;
        }
        read(pieces_[i], staging);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (failure_ == nullptr) {
        failure_ = std::current_exception();
      }
      failed_ = true;
    }
  }

  void read(const WeightRead& piece, const BudgetedMemory& staging) {
    const auto bytes = piece.to_device ? staging.bytes().first(piece.size_bytes)
                                       : std::span(piece.to, piece.size_bytes);
    source_.read(piece.group, piece.tensor, piece.first_byte, bytes,
                 staging.bytes().subspan(kPieceBytes));
    const std::lock_guard lock(mutex_);
    if (piece.to_device) {
      device_.copy_from_host(*stream_, piece.to, bytes.data(), bytes.size());
      stream_->record().wait();
    }
    done_bytes_ += bytes.size();
    if (progress_) {
      progress_(done_bytes_, total_bytes_);
    }
  }

  const std::vector<WeightRead> pieces_;
  const WeightSource& source_;
  device::Device& device_;
  MemoryBudget& dram_;
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

std::size_t read_staging_bytes(const WeightSource& source, int threads) {
  return read_staging_bytes(source.scratch_bytes(), threads);
}

std::size_t read_staging_bytes(std::size_t source_scratch_bytes, int threads) {
  return static_cast<std::size_t>(threads) * (kPieceBytes + source_scratch_bytes);
}

std::uint64_t read_weights(const std::vector<WeightRead>& reads, const WeightSource& source,
                           device::Device& device, MemoryBudget& dram, int threads,
                           const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  return Reader(cut(reads), source, device, dram, progress).run(threads);
}

}  // namespace stagecoach::offload
