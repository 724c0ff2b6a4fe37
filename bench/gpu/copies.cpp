#include <fmt/format.h>

#include <memory>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "device/cuda/check.hpp"
#include "gpu/cases.hpp"

namespace stagecoach::bench::gpu {
namespace {

using device::cuda::check_cuda;

/// CUDA's own copies between memory that it pinned itself and the device: the yardstick.
class RawCopies {
 public:
  RawCopies(Workbench& bench, std::size_t bytes, std::byte* in, std::byte* out)
      : bytes_(bytes), in_(in), out_(out), down_(bench.raw_stream()) {
    check_cuda(cudaMallocHost(&from_, bytes), "pin host memory");
    check_cuda(cudaMallocHost(&to_, bytes), "pin host memory");
    check_cuda(cudaStreamCreateWithFlags(&up_, cudaStreamNonBlocking), "make a stream");
  }
  RawCopies(const RawCopies&) = delete;
  RawCopies& operator=(const RawCopies&) = delete;
  RawCopies(RawCopies&&) = delete;
  RawCopies& operator=(RawCopies&&) = delete;
  ~RawCopies() {
    cudaStreamDestroy(up_);
    cudaFreeHost(from_);
    cudaFreeHost(to_);
  }

  [[nodiscard]] Work work(bool to_device, bool to_host) const {
    return {static_cast<double>(bytes_) * (to_device && to_host ? 2 : 1),
            [this, to_device, to_host] {
              if (to_device) {
                check_cuda(cudaMemcpyAsync(in_, from_, bytes_, cudaMemcpyHostToDevice, up_),
                           "copy to the device");
              }
              if (to_host) {
                check_cuda(cudaMemcpyAsync(to_, out_, bytes_, cudaMemcpyDeviceToHost, down_),
                           "copy to the host");
              }
            },
            [this] {
              check_cuda(cudaStreamSynchronize(up_), "wait for a copy");
              check_cuda(cudaStreamSynchronize(down_), "wait for a copy");
            }};
  }

 private:
  std::size_t bytes_;
  std::byte* in_;
  std::byte* out_;
  void* from_ = nullptr;
  void* to_ = nullptr;
  cudaStream_t up_ = nullptr;
  cudaStream_t down_;
};

/// The device's copies, a stream for each direction.
class DeviceCopies {
 public:
  DeviceCopies(Workbench& bench, std::byte* in, std::byte* out, bool pinned)
      : bytes_(bench.sizes().copy_bytes),
        in_(in),
        out_(out),
        device_(bench.device()),
        from_(bytes_, "a benchmark of copies"),
        to_(bytes_, "a benchmark of copies"),
        up_(device_.create_stream("up")),
        down_(device_.create_stream("down")) {
    if (pinned) {
      pinned_from_ = device_.pin(from_.bytes());
      pinned_to_ = device_.pin(to_.bytes());
      if (pinned_from_ == nullptr || pinned_to_ == nullptr) {
        throw OutOfMemory("the system refuses to pin memory for a benchmark of copies");
      }
    }
  }

  [[nodiscard]] Work work(bool to_device, bool to_host) const {
    return {static_cast<double>(bytes_) * (to_device && to_host ? 2 : 1),
            [this, to_device, to_host] {
              if (to_device) {
                device_.copy_from_host(*up_, in_, from_.data(), bytes_);
              }
              if (to_host) {
                device_.copy_to_host(*down_, to_.data(), out_, bytes_);
              }
            },
            [this] {
              up_->record().wait();
              down_->record().wait();
            }};
  }

 private:
  std::size_t bytes_;
  std::byte* in_;
  std::byte* out_;
  device::Device& device_;
  AlignedMemory from_;
  AlignedMemory to_;
  std::unique_ptr<device::Pinned> pinned_from_;
  std::unique_ptr<device::Pinned> pinned_to_;
  std::unique_ptr<device::Stream> up_;
  std::unique_ptr<device::Stream> down_;
};

}  // namespace

void measure_copies(Workbench& bench) {
  const auto bytes = bench.sizes().copy_bytes;
  std::byte* const in = bench.packed_bytes(static_cast<std::int64_t>(bytes));
  std::byte* const out = bench.packed_bytes(static_cast<std::int64_t>(bytes));
  const RawCopies raw(bench, bytes, in, out);
  for (const bool pinned : {true, false}) {
    const DeviceCopies copies(bench, in, out, pinned);
    const auto compare = [&](const char* name, bool to_device, bool to_host) {
      bench.compare("copies", fmt::format("{} ({})", name, pinned ? "pinned" : "not pinned"),
                    "GB/s", copies.work(to_device, to_host), "CUDA's own",
                    raw.work(to_device, to_host), pinned ? kAim : 0);
    };
    compare("to the device", true, false);
    compare("to the host", false, true);
    compare("both together", true, true);
  }
  bench.forget();
}

}  // namespace stagecoach::bench::gpu
