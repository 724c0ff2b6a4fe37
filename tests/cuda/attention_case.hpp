#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "device/cuda/attention.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/operation.hpp"
#include "unit/device/attention_cases.hpp"

namespace stagecoach::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Memory of a GPU, full of NaN at first.
class GpuMemory {
 public:
  GpuMemory(cudaStream_t stream, std::size_t size_bytes)
      : size_bytes_(std::max<std::size_t>(size_bytes, 1)) {
    device::cuda::check_cuda(cudaMalloc(&data_, size_bytes_), "take memory");
    device::cuda::check_cuda(cudaMemsetAsync(data_, 0xff, size_bytes_, stream), "fill memory");
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory() { cudaFree(data_); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t size_bytes_;
};

/// An operation with the memory that `attention_bytes` promises to be enough, and no more.
class CaseOperation final : public device::cuda::Operation {
 public:
  CaseOperation(cudaStream_t stream, const device::cuda::OperationBytes& bytes)
      : stream_(stream),
        bytes_(bytes),
        scratch_(stream, bytes.scratch + kBehind),
        upload_(stream, bytes.upload) {}

  [[nodiscard]] cudaStream_t stream() const override { return stream_; }
  [[nodiscard]] std::byte* scratch() const override { return scratch_.data(); }
  const std::byte* upload_bytes(std::span<const std::byte> bytes) override {
    std::byte* const to = upload_.data() + used_;
    constexpr auto kAlignment = device::cuda::kOperationAlignment;
    used_ += (bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
    if (used_ > bytes_.upload) {
      throw InternalError(fmt::format("{} bytes of uploads, {} promised", used_, bytes_.upload));
    }
    device::cuda::check_cuda(
        cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_), "upload");
    return to;
  }
  void download(const void* /*from*/, std::size_t /*size_bytes*/,
                std::function<void(const std::byte*)> /*then*/) override {
    throw InternalError("attention downloads nothing");
  }

  /// Whether what lies behind the scratch is as it was.
  [[nodiscard]] bool kept_within() const {
    std::vector<std::byte> behind(kBehind);
    device::cuda::check_cuda(cudaMemcpyAsync(behind.data(), scratch_.data() + bytes_.scratch,
                                             kBehind, cudaMemcpyDeviceToHost, stream_),
                             "copy");
    device::cuda::check_cuda(cudaStreamSynchronize(stream_), "wait");
    return std::all_of(behind.begin(), behind.end(),
                       [](std::byte byte) { return byte == std::byte{0xff}; });
  }

 private:
  static constexpr std::size_t kBehind = 4096;
  cudaStream_t stream_;
  device::cuda::OperationBytes bytes_;
  GpuMemory scratch_;
  GpuMemory upload_;
  std::size_t used_ = 0;
};

/// The attention operations of the CUDA device by themselves: a stream, and memory that lives as
/// long as the case. The host never touches the GPU's memory.
class AttentionCase {
 public:
  AttentionCase() {
    device::cuda::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                             "make a stream");
  }
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;
  ~AttentionCase() { cudaStreamDestroy(stream_); }

  template <typename T>
  T* take(std::size_t count) {
    memory_.push_back(std::make_unique<GpuMemory>(stream_, count * sizeof(T)));
    return reinterpret_cast<T*>(memory_.back()->data());
  }
  template <typename T>
  T* put(const T* items, std::size_t count) {
    T* const to = take<T>(count);
    copy(to, items, count * sizeof(T), cudaMemcpyHostToDevice);
    return to;
  }
  template <typename T>
  T* put(const std::vector<T>& items) {
    return put(items.data(), items.size());
  }
  template <typename T>
  [[nodiscard]] std::vector<T> get(const T* from, std::size_t count) const {
    std::vector<T> items(count);
    copy(items.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost);
    return items;
  }

  /// Runs an operation with exactly the scratch and uploads of the smallest shape that fits.
  void run(void (*operation)(device::cuda::Operation&, const AttentionArgs&),
           const AttentionArgs& args) const {
    CaseOperation memory(stream_, device::cuda::attention_bytes(shape_of(args)));
    operation(memory, args);
    device::cuda::check_cuda(cudaStreamSynchronize(stream_), "wait");
    EXPECT_TRUE(memory.kept_within());
  }

  /// The same arguments with their query, key, value and pages on the GPU. `out` and what
  /// sequences have besides is left to the caller.
  [[nodiscard]] AttentionArgs copy_args(const AttentionModel& model, const Tokens& tokens,
                                        const AttentionArgs& host) {
    AttentionArgs args = host;
    const float* const data = put(tokens.data);
    args.query = data + (host.query - tokens.data.data());
    args.key = args.query + tokens.key_at;
    args.value = args.query + tokens.value_at;
    for (auto& sequence : args.sequences) {
      for (auto& page : sequence.pages) {
        page = page == nullptr ? nullptr : put(page, model.page_bytes());
      }
    }
    return args;
  }

 private:
  static device::ScratchShape shape_of(const AttentionArgs& args) {
    device::ScratchShape shape;
    shape.head_dim = args.head_dim;
    shape.page_tokens = args.page_tokens;
    shape.heads = args.heads;
    shape.kv_heads = args.kv_heads;
    for (const auto& sequence : args.sequences) {
      shape.max_rows += sequence.num_rows;
      ++shape.max_sequences;
      const auto pages = static_cast<std::int64_t>(sequence.pages.size());
      shape.longest_pages = std::max(shape.longest_pages, pages);
      if (sequence.sparse) {
        const auto tokens = std::int64_t{sequence.first_position} + sequence.num_rows;
        shape.sparse_tokens = std::max(shape.sparse_tokens, tokens);
      }
    }
    return shape;
  }
  void copy(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind kind) const {
    if (size_bytes > 0) {
      device::cuda::check_cuda(cudaMemcpyAsync(to, from, size_bytes, kind, stream_), "copy");
      device::cuda::check_cuda(cudaStreamSynchronize(stream_), "wait");
    }
  }

  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<GpuMemory>> memory_;
};

/// What one sequence of a batch brings.
struct BatchPiece {
  std::int64_t earlier = 0;  ///< tokens in the pages already
  std::int64_t rows = 0;
};

/// A batch whose pages the host device has filled. Row 0 is nobody's.
class BatchScene {
 public:
  BatchScene(const AttentionModel& model, std::vector<BatchPiece> pieces, unsigned seed,
             float spread = 1.0f)
      : model_(model), pieces_(std::move(pieces)), tokens_(model, count_rows(pieces_), seed) {
    for (auto& value : tokens_.data) {
      value *= spread;
    }
    for (const auto& piece : pieces_) {
      caches_.emplace_back(model, piece.earlier + piece.rows);
      store_earlier(piece, caches_.back(), seed + static_cast<unsigned>(caches_.size()));
    }
    TestDevice().run(&device::Device::store_kv, args());
  }

  /// With pointers to the host's memory.
  [[nodiscard]] AttentionArgs args() {
    auto args = make_args(model_, tokens_, 0, nullptr);
    std::int32_t row = 1;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const auto rows = static_cast<std::int32_t>(pieces_[i].rows);
      args.sequences.push_back(
          {row, rows, static_cast<std::int32_t>(pieces_[i].earlier), caches_[i].pages()});
      row += rows;
    }
    return args;
  }
  [[nodiscard]] const Tokens& tokens() const { return tokens_; }
  [[nodiscard]] Tokens& tokens() { return tokens_; }
  [[nodiscard]] std::size_t out_size() const {
    return static_cast<std::size_t>(count_rows(pieces_) * model_.heads * model_.head_dim);
  }

 private:
  static std::int64_t count_rows(const std::vector<BatchPiece>& pieces) {
    std::int64_t rows = 1;
    for (const auto& piece : pieces) {
      rows += piece.rows;
    }
    return rows;
  }
  void store_earlier(const BatchPiece& piece, Cache& cache, unsigned seed) const {
    const Tokens history(model_, piece.earlier, seed + 1000);
    auto args = make_args(model_, history, 0, nullptr);
    args.sequences = {{0, static_cast<std::int32_t>(piece.earlier), 0, cache.pages()}};
    TestDevice().run(&device::Device::store_kv, args);
  }

  AttentionModel model_;
  std::vector<BatchPiece> pieces_;
  Tokens tokens_;
  std::vector<Cache> caches_;
};

/// Runs `attention`, and compares with `expected`; row 0 must stay as it was.
inline void expect_attention(AttentionCase& gpu, AttentionArgs args,
                             const std::vector<double>& expected, double tolerance,
                             const std::string& what) {
  args.out = gpu.take<float>(expected.size());
  gpu.run(device::cuda::attention, args);
  const auto out = gpu.get(args.out, expected.size());
  const auto width = static_cast<std::size_t>(args.heads * args.head_dim);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i < width) {
      ASSERT_TRUE(std::isnan(out[i])) << what << ": row 0 is nobody's";
    } else {
      ASSERT_NEAR(out[i], expected[i], tolerance)
          << what << ", row " << i / width << ", element " << i % width;
    }
  }
}

/// A few head counts, widths and page sizes, in each format.
inline std::vector<AttentionModel> cuda_models() {
  return {{4, 4, 64, 16, KvType::f16},         {2, 2, 80, 32, KvType::f16},
          {6, 2, 100, 16, KvType::f16},        {8, 1, 128, 64, KvType::f16},
          {3, 3, 8, 16, KvType::f32},          {4, 2, 33, 5, KvType::f16},
          {2, 1, 256, 16, KvType::f32},        {1, 1, 1, 1, KvType::f32},
          {10, 1, 20, 128, KvType::f16},       {4, 4, 64, 16, {KvType::int4, 64}},
          {2, 2, 128, 32, {KvType::int4, 32}}, {6, 2, 80, 16, {KvType::int4, 128}},
          {4, 4, 64, 16, {KvType::int8, 64}},  {2, 2, 40, 5, {KvType::int4, 32}},
          {3, 3, 80, 32, {KvType::int8, 32}},  {2, 1, 256, 64, {KvType::int4, 128}},
          {4, 2, 33, 16, {KvType::int8, 128}}, {1, 1, 1, 1, {KvType::int4, 64}}};
}

}  // namespace stagecoach::test
