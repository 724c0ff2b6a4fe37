#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime_api.h"
#include "support/cuda_standin/adversary.hpp"
#include "support/cuda_standin/standin.hpp"

namespace cuda_standin {

using Clock = std::chrono::steady_clock;

struct StreamState;

/// A cudaEvent_t; whatever refers to it keeps it alive. All under the engine's mutex.
struct EventState {
  int number = 0;
  bool timed = false;
  std::int64_t recorded = 0;              ///< the newest record, from 1
  std::int64_t completed = 0;             ///< the newest one a stream has come to
  std::shared_ptr<StreamState> recorder;  ///< of the newest record
  Clock::time_point when;
};

/// One entry of a stream.
struct Task {
  enum class Kind { work, record, wait } kind = Kind::work;
  /// work: false if it has to be called again later.
  std::function<bool()> step;
  std::shared_ptr<EventState> event;
  std::int64_t generation = 0;
  std::shared_ptr<StreamState> recorder;  ///< wait: the stream that will come to the record
};

/// A cudaStream_t. All under the engine's mutex.
struct StreamState {
  int number = 0;
  int device = 0;
  std::deque<Task> tasks;
  bool busy = false;
  bool closing = false;  ///< ends when it has no more tasks
  bool ended = false;
  std::int64_t submitted = 0;
  std::int64_t finished = 0;
  std::condition_variable changed;
  std::thread thread;  ///< none with an adversary
};

/// What a thread of the host waits for.
struct Waiter {
  std::shared_ptr<StreamState> stream;
  std::int64_t finished = 0;          ///< of the stream, or
  std::shared_ptr<EventState> event;  ///< if not null, its generation
  std::int64_t generation = 0;
  [[nodiscard]] bool over() const;
};

/// Runs what is in the streams: each by a thread of its own, or with an adversary all by one, in
/// the worst order that their waits allow.
class Engine {
 public:
  static Engine& get();

  std::shared_ptr<StreamState> create_stream(int device);
  void destroy_stream(const std::shared_ptr<StreamState>& stream);
  /// `nullptr` is the device's default stream.
  std::shared_ptr<StreamState> find(cudaStream_t stream, int device);
  std::shared_ptr<EventState> create_event(bool timed);

  /// Each gives cudaErrorLaunchFailure once a kernel has failed.
  cudaError_t submit(const std::shared_ptr<StreamState>& stream, std::function<bool()> step);
  cudaError_t record(const std::shared_ptr<EventState>& event,
                     const std::shared_ptr<StreamState>& stream);
  cudaError_t wait_in(const std::shared_ptr<StreamState>& stream,
                      const std::shared_ptr<EventState>& event);
  cudaError_t wait_for(const std::shared_ptr<StreamState>& stream);
  cudaError_t wait_for(const std::shared_ptr<EventState>& event);
  cudaError_t wait_for_device(int device);
  cudaError_t query(const std::shared_ptr<StreamState>& stream);
  cudaError_t query(const std::shared_ptr<EventState>& event);
  cudaError_t elapsed(const EventState& begin, const EventState& end, float* milliseconds);

  /// Nothing runs any more after this; the first reason is kept and printed.
  void fail(const std::string& why);
  [[nodiscard]] std::string failure();

  void log_order(bool on);
  std::vector<OrderEvent> order_log();

  /// Begins anew. std::logic_error while there are streams or events.
  void restart();
  void count_event(int change);
  /// Whether a grid should begin with its last thread.
  bool backwards();

 private:
  void serve(const std::shared_ptr<StreamState>& stream);
  void serve_all();
  [[nodiscard]] std::vector<StreamState*> candidates() const;
  [[nodiscard]] std::vector<const Waiter*> waiting() const;
  void run_head(StreamState& stream, std::unique_lock<std::mutex>& lock);
  void run_step(StreamState& stream, Task& task, std::unique_lock<std::mutex>& lock);
  void finish_head(StreamState& stream);
  void reap(std::unique_lock<std::mutex>& lock);
  cudaError_t add(const std::shared_ptr<StreamState>& stream, Task task);
  cudaError_t wait(std::unique_lock<std::mutex>& lock, Waiter waiter);
  [[nodiscard]] cudaError_t status() const;

  std::mutex mutex_;
  std::condition_variable progress_;  ///< for waiting threads of the host
  std::list<std::shared_ptr<StreamState>> streams_;
  std::vector<std::shared_ptr<StreamState>> default_streams_;
  std::list<Waiter> waiters_;
  std::unique_ptr<Adversary> adversary_;
  std::thread executor_;
  std::condition_variable executor_wake_;
  bool ending_ = false;
  int streams_made_ = 0;
  int events_made_ = 0;
  int events_alive_ = 0;
  std::string failure_;
  bool logging_ = false;
  std::vector<OrderEvent> log_;
};

/// False for a wait whose record no stream has come to.
bool runnable(const Task& task);

}  // namespace cuda_standin
