#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct CUevent_st;

/// Controls of the stand-ins for CUDA, cuBLAS and NCCL, for tests. Whole programs take the same
/// settings from environment variables (in brackets).
namespace cuda_standin {

struct Settings {
  int devices = 1;                        ///< [STAGECOACH_STANDIN_DEVICES]
  std::size_t memory_bytes = 1ull << 30;  ///< of each [STAGECOACH_STANDIN_MEMORY]
  double pcie_bytes_per_second = 0;       ///< each direction; 0: no limit [STAGECOACH_STANDIN_PCIE]
  std::size_t pinnable_bytes = 1ull << 40;  ///< [STAGECOACH_STANDIN_PINNABLE]
  /// Not 0: whatever no event orders is delayed and reordered, by this seed
  /// [STAGECOACH_STANDIN_ADVERSARY]
  std::uint64_t adversary_seed = 0;
  /// The n-th call (from 1) of CUDA, cuBLAS and NCCL together fails; 0: none
  /// [STAGECOACH_STANDIN_FAIL_CALL]
  std::int64_t fail_call = 0;
  int no_device_error =
      0;  ///< 35 or 100: what every call gives, as without a GPU [STAGECOACH_STANDIN_NO_DEVICE]
};

/// Replaces the settings and begins to count calls anew. While nothing of CUDA's exists.
void reset(const Settings& settings);

/// Calls since the last reset, and the name of the one that failed (empty: none did).
std::int64_t calls();
std::string failed_call();

/// Why a kernel failed (empty: none did). Calls then give cudaErrorLaunchFailure until the next
/// reset.
std::string failure();

/// Fresh and freed memory is filled with this, f16 and f32 NaN.
inline constexpr std::uint8_t kPoison = 0xff;

/// One entry of the log of what orders streams. Streams and events are numbered as they were made.
struct OrderEvent {
  enum class Kind { record, wait } kind;
  int stream;
  int event;
  std::int64_t generation;  ///< which record of the event: the newest one, for a wait
};
/// Begins a new log, or ends logging.
void log_order(bool on);
std::vector<OrderEvent> order_log();
/// The number that the log has of an event.
int event_number(const CUevent_st* event);

}  // namespace cuda_standin
