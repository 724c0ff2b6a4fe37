#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"
#include "device/device.hpp"
#include "plan/node_profile.hpp"

namespace stagecoach::plan {

/// The shapes that are measured with. Weights and pages lie in `device_data_bytes` and are gone
/// through in turns, since a job's layers do not stay in a cache.
struct MeasureSizes {
  std::vector<std::int64_t> widths{1024, 4096};  ///< of the products: inputs of a matrix
  std::vector<std::int64_t> rows{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};  ///< of the products
  std::int64_t heads = 32;
  std::int64_t kv_heads = 32;
  std::int64_t head_dim = 128;
  std::int64_t vocab = 50272;
  std::int64_t context = 512;      ///< tokens of a sequence
  std::int64_t sequences = 256;    ///< that attend at once, at most
  std::int64_t prompt_rows = 256;  ///< of them, what one visit brings of a prompt
  std::vector<std::int64_t> page_tokens{16, 64};
  std::int64_t norm_rows = 256;
  std::int64_t sampled_rows = 8;
  std::size_t device_data_bytes = std::size_t{320} << 20;
  std::size_t dram_bytes = std::size_t{272} << 20;
  std::size_t copy_bytes = std::size_t{8} << 20;  ///< of one copy between DRAM and device
  std::vector<std::size_t> disk_transfers{std::size_t{64} << 10, std::size_t{256} << 10,
                                          std::size_t{1} << 20, std::size_t{8} << 20,
                                          std::size_t{64} << 20};
  std::uint64_t disk_bytes = std::uint64_t{2} << 30;  ///< of the file; at most a tenth of the disk
  std::size_t message_bytes = std::size_t{16} << 20;  ///< between stages
};

/// Shapes that show that everything runs, and no rates.
MeasureSizes quick_sizes();
/// The same shapes with at most so much memory, of device and of DRAM, where they ask for more.
MeasureSizes fit_memory(MeasureSizes sizes, std::size_t device_bytes, std::size_t dram_bytes);

/// What the device must have scratch for.
device::ScratchShape measure_scratch(const MeasureSizes& sizes);
/// Memory of the device that measuring takes beside its scratch.
std::size_t measure_device_bytes(const MeasureSizes& sizes);

/// How a node is measured. What is pointed to must outlive the measurement.
struct MeasureOptions {
  device::Device* device = nullptr;  ///< of the stage, with scratch for measure_scratch()
  device::Device* cpu = nullptr;     ///< stores and attends in DRAM, likewise
  AbortSignal* abort = nullptr;      ///< of both
  bool gpu = false;                  ///< the device has memory of its own
  int threads = 1;
  std::string folder{};  ///< whose disk is measured; empty: no disk
  double seconds = 0.5;  ///< a figure takes about this long
  MeasureSizes sizes{};
  std::string host{};  ///< ranks with one name share a node; empty: this machine's name
};

class MeasureKit;

/// Measures what a stage reaches while the job's other ranks do the same.
class Measurement {
 public:
  /// Takes memory and disk space. OutOfMemory; ConfigError naming --folder.
  explicit Measurement(const MeasureOptions& options);
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;
  Measurement(Measurement&&) = delete;
  Measurement& operator=(Measurement&&) = delete;
  ~Measurement();

  /// Every rank calls it with the same sizes, and they begin each figure together. A figure is the
  /// mean of what the node's ranks reach, so that they have one profile; what the node has as a
  /// whole is their sum. Sizes of memory, watts and date are left to the caller. `tell` is called
  /// with each figure, for people. Once an exception has left it other ranks may wait for this one.
  NodeProfile run(comm::Transport& transport, const std::function<void(const std::string&)>& tell);

  /// What the reader of a profile had better know of how it was measured: a line each.
  [[nodiscard]] const std::vector<std::string>& notes() const;

 private:
  std::unique_ptr<MeasureKit> kit_;
};

}  // namespace stagecoach::plan
