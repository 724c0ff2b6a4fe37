#include "offload/disk_stream.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "device/host/stream_queue.hpp"
#include "offload/async_io.hpp"

namespace stagecoach::offload {
namespace {

constexpr std::uint64_t kMostDelayMicroseconds = 2000;

struct Backend {
  std::unique_ptr<AsyncIo> io;
  std::string description;
};

Backend make_uring(const DiskOptions& options) {
  auto io = make_uring_io(options.depth);
  auto description =
      fmt::format("{} of {}", io->description(), format_bytes(options.request_bytes));
  return {std::move(io), std::move(description)};
}

Backend make_threads(const DiskOptions& options, const std::string& reason) {
  auto io = make_thread_io(options.depth);
  auto description = io->description() + (reason.empty() ? "" : " (" + reason + ")");
  return {std::move(io), std::move(description)};
}

Backend make_backend(const DiskOptions& options) {
  if (options.backend == DiskBackend::threads) {
    return make_threads(options, "");
  }
  try {
    return make_uring(options);
  } catch (const IoError& error) {
    if (options.backend == DiskBackend::uring) {
      throw;
    }
    return make_threads(options, error.what());
  }
}

void check_aligned(std::uint64_t offset, const std::byte* data, std::size_t size_bytes) {
  STAGECOACH_CHECK(offset % kDiskAlignment == 0, "offset {}", offset);
  STAGECOACH_CHECK(size_bytes % kDiskAlignment == 0, "size {}", size_bytes);
  STAGECOACH_CHECK(reinterpret_cast<std::uintptr_t>(data) % kDiskAlignment == 0);
}

class AsyncDiskStream final : public DiskStream {
 public:
  AsyncDiskStream(std::string name, const DiskOptions& options, AbortSignal& abort)
      : name_(std::move(name)),
        options_(options),
        abort_(abort),
        backend_(make_backend(options)),
        // The thread that began transfers must be there until they have ended.
        queue_(
            name_, {options.delay_seed, 1, kMostDelayMicroseconds},
            [this](Queue::Item& item) { execute(item); }, [this] { ledger_.wait_until_idle(); }) {}

  void read(const DirectFile& file, std::uint64_t offset, std::span<std::byte> out,
            std::size_t least_bytes) override {
    check_aligned(offset, out.data(), out.size());
    STAGECOACH_CHECK(least_bytes <= out.size());
    push_transfer({&file, false, offset, out.data(), out.size(), least_bytes});
  }

  void write(const DirectFile& file, std::uint64_t offset,
             std::span<const std::byte> data) override {
    check_aligned(offset, data.data(), data.size());
    push_transfer({&file, true, offset, const_cast<std::byte*>(data.data()), data.size(), 0});
  }

  void enqueue(std::function<void()> work) override {
    queue_.push({[this, work = std::move(work)] {
                   ledger_.wait_until_idle();
                   if (!abort_.raised()) {
                     work();
                   }
                 },
                 nullptr});
  }

  void wait(const device::Event& event) override {
    if (!event.passed()) {
      queue_.push({[event] { event.wait(); }, nullptr});
    }
  }

  [[nodiscard]] device::Event record() override {
    auto event = std::make_shared<device::HostEvent>(name_, abort_);
    queue_.push({nullptr, event});
    return device::Event(std::move(event));
  }

  [[nodiscard]] DiskCounters counters() const override { return ledger_.counters(); }
  [[nodiscard]] std::string description() const override { return backend_.description; }

 private:
  using Queue = device::StreamQueue;

  void push_transfer(const IoRequest& whole) {
    queue_.push({[this, whole] { begin_transfer(whole); }, nullptr});
  }

  void execute(Queue::Item& item) noexcept {
    if (abort_.raised()) {
      ledger_.fail();
    }
    if (item.event != nullptr) {
      ledger_.add(std::move(item.event));
      return;
    }
    if (abort_.raised()) {
      return;
    }
    try {
      item.work();
    } catch (...) {
      abort_.raise(std::current_exception());
    }
  }

  void begin_transfer(const IoRequest& whole) {
    for (std::size_t done = 0; done < whole.size_bytes && !abort_.raised();) {
      auto piece = whole;
      piece.offset += done;
      piece.data += done;
      piece.size_bytes = std::min(whole.size_bytes - done, options_.request_bytes);
      piece.least_bytes =
          std::min(whole.least_bytes - std::min(whole.least_bytes, done), piece.size_bytes);
      begin_request(piece);
      done += piece.size_bytes;
    }
  }

  void begin_request(const IoRequest& request) {
    auto* span = ledger_.begin();
    backend_.io->submit(request, [this, span, size_bytes = request.size_bytes,
                                  write = request.write](std::exception_ptr error) {
      if (error != nullptr) {
        abort_.raise(std::move(error));
        ledger_.fail();
      }
      ledger_.end(span, size_bytes, write);
    });
  }

  const std::string name_;
  const DiskOptions options_;
  AbortSignal& abort_;
  TransferLedger ledger_;
  Backend backend_;
  Queue queue_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<DiskStream> make_disk_stream(const std::string& name, const DiskOptions& options,
                                             AbortSignal& abort) {
  STAGECOACH_CHECK(options.depth > 0);
  STAGECOACH_CHECK(options.request_bytes > 0 && options.request_bytes % kDiskAlignment == 0);
  return std::make_unique<AsyncDiskStream>(name, options, abort);
}

}  // namespace stagecoach::offload
