#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/abort_signal.hpp"
#include "base/half.hpp"
#include "device/device.hpp"
#include "gpu/table.hpp"

namespace stagecoach::bench::gpu {

struct Settings {
  int gpu = 0;
  std::size_t memory_bytes = std::size_t{15} << 30;  ///< the device's arena
  int repeats = 7;                                   ///< measurements of each thing; odd
  double seconds = 0.05;                             ///< of one measurement, about
  std::int64_t page_tokens = 16;
  bool small = false;  ///< shapes that show that everything runs, and no rates
  std::string csv;     ///< also written here, unless empty
};

/// The largest shapes of a run; see Settings::small.
struct Sizes {
  explicit Sizes(bool small);

  std::size_t copy_bytes;     ///< of one direction; larger than a GPU's cache
  std::int64_t rows;          ///< of what works row by row
  std::int64_t width;         ///< of these rows
  std::int64_t ffn;           ///< outputs of products
  std::int64_t vocab;         ///< of tables and logits
  std::int64_t positions;     ///< of position tables
  std::int64_t sampled_rows;  ///< of logits
  std::int64_t heads;
  std::int64_t head_dim;
  std::int64_t sequences;              ///< that decode together
  std::vector<std::int64_t> contexts;  ///< their tokens
  std::int64_t prefill_rows;           ///< of one sequence
  std::int64_t prefill_sequences;      ///< at once
  std::int64_t gemm;                   ///< side of the square product that is a yardstick
  std::int64_t most_in_features;       ///< of the layers
  std::int64_t most_heads;             ///< of the layers
  [[nodiscard]] std::int64_t longest() const;
};

/// Something to be timed: `enqueue` hands it over once, `finish` waits for all that was.
struct Work {
  double amount = 0;  ///< bytes or floating-point operations of one `enqueue`
  std::function<void()> enqueue;
  std::function<void()> finish;
};

/// m rows times a matrix [n, k], in f16 with sums in f32.
struct Gemm {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

/// A CUDA device with a stream, memory full of numbers, yardsticks beside it, and the table. Device
/// memory lasts until `forget`.
class Workbench {
 public:
  explicit Workbench(const Settings& settings);
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;
  Workbench(Workbench&&) = delete;
  Workbench& operator=(Workbench&&) = delete;
  ~Workbench();

  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const Sizes& sizes() const { return sizes_; }
  [[nodiscard]] device::Device& device() const { return *device_; }
  [[nodiscard]] device::Stream& stream() const { return *stream_; }
  [[nodiscard]] cudaStream_t raw_stream() const { return raw_stream_; }
  [[nodiscard]] Table& table() { return table_; }

  /// Numbers below 1, of either sign. f16 patterns are good for packed rows and pages as well.
  float* floats(std::int64_t count);
  Half* halves(std::int64_t count);
  std::byte* packed_bytes(std::int64_t count);
  void forget() { buffers_.clear(); }

  /// Work of this device: one operation, or several, on its stream.
  Work work(double amount, std::function<void()> enqueue) const;
  /// CUDA's own copy within the device that reads and writes `bytes` together (at most what fits
  /// the workbench's buffers; the rate is what counts).
  Work copy(double bytes) const;
  /// cuBLAS's own products, with `weights` for all their matrices. Takes memory for the rest.
  Work gemms(const std::vector<Gemm>& shapes, const Half* weights);

  /// Times `work` and `yardstick` in turns, and adds a line with the medians of both rates and
  /// their ratio. `aim`: of the ratio, 0: none.
  void compare(const std::string& group, const std::string& name, const char* unit,
               const Work& work, const std::string& yardstick_name, const Work& yardstick,
               double aim);

 private:
  std::byte* take(std::int64_t bytes, std::span<const std::byte> pattern);

  Settings settings_;
  Sizes sizes_;
  AbortSignal abort_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<std::byte> float_pattern_;
  std::vector<std::byte> half_pattern_;
  std::vector<device::Buffer> buffers_;
  device::Buffer copy_from_;
  device::Buffer copy_to_;
  device::Buffer cublas_workspace_;
  cudaStream_t raw_stream_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
  Table table_;
};

}  // namespace stagecoach::bench::gpu
