#include "gpu/workbench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/cuda_device.hpp"

namespace stagecoach::bench::gpu {
namespace {

using device::cuda::check_cuda;

constexpr std::size_t kPatternBytes = std::size_t{1} << 22;
// What cuBLAS's documentation recommends for the newest GPUs; older ones are content with less.
constexpr std::size_t kCublasWorkspaceBytes = std::size_t{32} << 20;

void check_cublas(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw CudaError(fmt::format("cuBLAS: {}", cublasGetStatusString(status)));
  }
}

// Numbers of many values: a GPU's clock depends on the bits that it computes with.
std::vector<std::byte> pattern_of_floats() {
  std::vector<std::byte> bytes(kPatternBytes);
  for (std::size_t i = 0; i < kPatternBytes / sizeof(float); ++i) {
    const float value = static_cast<float>(mix_bits(i) >> 40) * 0x1p-23f - 1.0f;
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof value);
  }
  return bytes;
}

std::vector<std::byte> pattern_of_halves() {
  std::vector<std::byte> bytes(kPatternBytes);
  for (std::size_t i = 0; i < kPatternBytes / sizeof(Half); ++i) {
    const Half value = to_half(static_cast<float>(mix_bits(i) >> 40) * 0x1p-27f - 0.0625f);
    std::memcpy(bytes.data() + i * sizeof(Half), &value, sizeof value);
  }
  return bytes;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(const Work& work, int count) {
  const double start = now();
  for (int i = 0; i < count; ++i) {
    work.enqueue();
  }
  work.finish();
  return now() - start;
}

/// How often `work` goes into one measurement. Runs it a few times, which warms it up.
int repetitions(const Work& work, double seconds) {
  (void)seconds_of(work, 1);
  const double once = seconds_of(work, 2) / 2;
  return static_cast<int>(std::clamp(seconds / once, 1.0, 2000.0));
}

}  // namespace

Sizes::Sizes(bool small)
    : copy_bytes(small ? std::size_t{1} << 20 : std::size_t{256} << 20),
      rows(small ? 33 : 8192),
      width(small ? 80 : 7168),
      ffn(small ? 96 : 28672),
      vocab(small ? 500 : 50272),
      positions(small ? 64 : 2050),
      sampled_rows(small ? 3 : 1024),
      heads(small ? 4 : 32),
      head_dim(small ? 32 : 128),
      sequences(small ? 3 : 64),
      contexts(small ? std::vector<std::int64_t>{20, 40}
                     : std::vector<std::int64_t>{512, 1024, 2048}),
      prefill_rows(small ? 20 : 512),
      prefill_sequences(small ? 2 : 4),
      gemm(small ? 64 : 8192),
      most_in_features(small ? 512 : 28672),
      most_heads(small ? 4 : 56) {}

std::int64_t Sizes::longest() const { return *std::max_element(contexts.begin(), contexts.end()); }

Workbench::Workbench(const Settings& settings)
    : settings_(settings),
      sizes_(settings.small),
      device_(device::make_cuda_device(
          {.index = settings.gpu, .memory_bytes = settings.memory_bytes}, abort_)),
      float_pattern_(pattern_of_floats()),
      half_pattern_(pattern_of_halves()) {
  const auto page_tokens = settings_.page_tokens;
  device_->reserve_scratch(
      {.max_in_features = sizes_.most_in_features,
       .head_dim = sizes_.head_dim,
       .page_tokens = page_tokens,
       .vocab = sizes_.vocab,
       .sparse_tokens = 0,
       .heads = sizes_.most_heads,
       .kv_heads = sizes_.most_heads,
       .max_rows = std::max(sizes_.prefill_rows * sizes_.prefill_sequences, sizes_.sampled_rows),
       .max_sequences = sizes_.sequences,
       .longest_pages = (sizes_.longest() + page_tokens - 1) / page_tokens});
  stream_ = device_->create_stream("bench");
  copy_from_ = device_->allocate(sizes_.copy_bytes, "the copy that is a yardstick");
  copy_to_ = device_->allocate(sizes_.copy_bytes, "the copy that is a yardstick");
  cublas_workspace_ = device_->allocate(kCublasWorkspaceBytes, "cuBLAS as a yardstick");
  check_cuda(cudaSetDevice(settings_.gpu), "choose the GPU");
  check_cuda(cudaStreamCreateWithFlags(&raw_stream_, cudaStreamNonBlocking), "make a stream");
  check_cublas(cublasCreate(&cublas_));
  check_cublas(cublasSetStream(cublas_, raw_stream_));
  check_cublas(cublasSetWorkspace(cublas_, cublas_workspace_.data(), kCublasWorkspaceBytes));
}

Workbench::~Workbench() {
  cublasDestroy(cublas_);
  cudaStreamDestroy(raw_stream_);
}

std::byte* Workbench::take(std::int64_t bytes, std::span<const std::byte> pattern) {
  auto buffer = device_->allocate(static_cast<std::size_t>(bytes), "a benchmark");
  for (std::size_t at = 0; at < buffer.size_bytes(); at += pattern.size()) {
    device_->copy_from_host(*stream_, buffer.data() + at, pattern.data(),
                            std::min(pattern.size(), buffer.size_bytes() - at));
  }
  stream_->record().wait();
  buffers_.push_back(std::move(buffer));
  return buffers_.back().data();
}

float* Workbench::floats(std::int64_t count) {
  return reinterpret_cast<float*>(
      take(count * static_cast<std::int64_t>(sizeof(float)), float_pattern_));
}

Half* Workbench::halves(std::int64_t count) {
  return reinterpret_cast<Half*>(
      take(count * static_cast<std::int64_t>(sizeof(Half)), half_pattern_));
}

std::byte* Workbench::packed_bytes(std::int64_t count) { return take(count, half_pattern_); }

Work Workbench::work(double amount, std::function<void()> enqueue) const {
  return {amount, std::move(enqueue), [this] { stream_->record().wait(); }};
}

Work Workbench::copy(double bytes) const {
  const auto size = std::min(sizes_.copy_bytes, static_cast<std::size_t>(bytes / 2) + 1);
  return {2.0 * static_cast<double>(size),
          [this, size] {
            check_cuda(cudaMemcpyAsync(copy_to_.data(), copy_from_.data(), size,
                                       cudaMemcpyDeviceToDevice, raw_stream_),
                       "copy within the device");
          },
          [this] { check_cuda(cudaStreamSynchronize(raw_stream_), "wait for a copy"); }};
}

Work Workbench::gemms(const std::vector<Gemm>& shapes, const Half* weights) {
  std::int64_t most_x = 0;
  std::int64_t most_out = 0;
  double flops = 0;
  for (const auto& shape : shapes) {
    most_x = std::max(most_x, shape.m * shape.k);
    most_out = std::max(most_out, shape.m * shape.n);
    flops += 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
             static_cast<double>(shape.k);
  }
  const Half* const x = halves(most_x);
  float* const out = floats(most_out);
  return {flops,
          [this, shapes, weights, x, out] {
            const float one = 1;
            const float zero = 0;
            for (const auto& shape : shapes) {
              const auto m = static_cast<int>(shape.m);
              const auto n = static_cast<int>(shape.n);
              const auto k = static_cast<int>(shape.k);
              check_cublas(cublasGemmEx(cublas_, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, weights,
                                        CUDA_R_16F, k, x, CUDA_R_16F, k, &zero, out, CUDA_R_32F, n,
                                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
            }
          },
          [this] { check_cuda(cudaStreamSynchronize(raw_stream_), "wait for products"); }};
}

void Workbench::compare(const std::string& group, const std::string& name, const char* unit,
                        const Work& work, const std::string& yardstick_name, const Work& yardstick,
                        double aim) {
  const int count = repetitions(work, settings_.seconds);
  const int yardstick_count = repetitions(yardstick, settings_.seconds);
  std::vector<double> rates;
  std::vector<double> yardstick_rates;
  const double scale = std::strcmp(unit, "GB/s") == 0 ? 1e-9 : 1e-12;
  for (int i = 0; i < settings_.repeats; ++i) {
    yardstick_rates.push_back(yardstick.amount * yardstick_count * scale /
                              seconds_of(yardstick, yardstick_count));
    rates.push_back(work.amount * count * scale / seconds_of(work, count));
  }
  table_.add({.group = group,
              .name = name,
              .unit = unit,
              .rate = median(std::move(rates)),
              .yardstick = yardstick_name,
              .yardstick_rate = median(std::move(yardstick_rates)),
              // Small shapes measure what it costs to issue something.
              .aim = settings_.small ? 0 : aim});
}

}  // namespace stagecoach::bench::gpu
