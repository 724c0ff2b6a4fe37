#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/cuda_standin/engine.hpp"
#include "support/cuda_standin/mesh.hpp"

namespace cuda_standin {

/// What a ncclComm_t stands for. Slow calls are done by a thread of its own, one after the other.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(const ncclUniqueId& id, int ranks, int rank, int device, bool blocking);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  Communicator(Communicator&&) = delete;
  Communicator& operator=(Communicator&&) = delete;
  ~Communicator();

  /// Connects to the other ranks. Like all that follow: a communicator that blocks gives how it
  /// ended, any other ncclInProgress.
  ncclResult_t begin();
  /// Enqueues transfers that go on together.
  ncclResult_t enqueue(std::vector<Transfer> transfers, const std::shared_ptr<StreamState>& stream);
  /// Waits until everything enqueued is done.
  ncclResult_t finalize();
  /// Releases whatever waits; peers find this rank gone.
  void abort();
  /// The thread ends after what it has been given; nothing may be begun any more.
  void end();

  /// ncclInProgress while a call is, or the first error.
  [[nodiscard]] ncclResult_t state();
  [[nodiscard]] std::string last_error();
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] bool finalized() const { return finalized_; }

 private:
  ncclResult_t post(std::function<void()> job);
  void serve();
  void connect();
  bool advance(std::vector<Transfer>& transfers);
  void fail(ncclResult_t result, const std::string& why);

  const std::string name_;
  const int ranks_;
  const int rank_;
  const int device_;
  const bool blocking_;
  std::optional<Mesh> mesh_;
  std::atomic<bool> aborted_ = false;
  std::atomic<int> unfinished_ = 0;  ///< of what was enqueued
  std::atomic<bool> finalized_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool working_ = false;
  bool ending_ = false;
  ncclResult_t error_ = ncclSuccess;
  std::string last_error_;
  std::thread thread_;
};

}  // namespace cuda_standin
