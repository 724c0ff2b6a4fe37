#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <vector>

namespace cuda_standin {

struct StreamState;
struct Waiter;

/// Chooses which stream goes on, so that what nothing orders comes in a bad order. It keeps a way
/// of choosing for a while, an epoch, for a wrong order often needs several bad choices in a row.
class Adversary {
 public:
  explicit Adversary(std::uint64_t seed) : random_(seed) { begin_epoch(); }

  /// Of streams whose next task can run; never null if there is one.
  StreamState* choose(const std::vector<StreamState*>& candidates,
                      const std::vector<const Waiter*>& waiters);

  /// For how long after the newest work nothing should run, as long as no thread of the host waits.
  /// Then: held().
  [[nodiscard]] std::chrono::microseconds hold() const { return hold_; }
  void held() { hold_ = {}; }

  bool coin() { return (random_() & 1) != 0; }

 private:
  enum class Way { needed_only, needed_last, starve, any };
  void begin_epoch();
  std::uint64_t random_hold();
  StreamState* first_by_rank(const std::vector<StreamState*>& streams) const;

  std::mt19937_64 random_;
  Way way_ = Way::any;
  std::uint64_t ranks_ = 0;  ///< of the streams, as a seed
  int left_ = 0;             ///< of the epoch, in tasks
  std::chrono::microseconds hold_{0};
};

}  // namespace cuda_standin
