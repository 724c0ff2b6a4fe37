#include "support/cuda_standin/communicator.hpp"

#include <chrono>
#include <utility>

namespace cuda_standin {
namespace {

using namespace std::chrono_literals;

std::string hexadecimal(const ncclUniqueId& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<unsigned char>(id.internal[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

ncclResult_t result_of(const MeshError& error) {
  switch (error.kind) {
    case MeshError::Kind::peer_left:
      return ncclRemoteError;
    case MeshError::Kind::mismatch:
    case MeshError::Kind::same_device:
      return ncclInvalidUsage;
    case MeshError::Kind::system:
      break;
  }
  return ncclSystemError;
}

}  // namespace

Communicator::Communicator(const ncclUniqueId& id, int ranks, int rank, int device, bool blocking)
    : name_(hexadecimal(id)), ranks_(ranks), rank_(rank), device_(device), blocking_(blocking) {}

Communicator::~Communicator() {
  abort();
  end();
}

ncclResult_t Communicator::begin() {
  thread_ = std::thread([this] { serve(); });
  return post([this] { connect(); });
}

void Communicator::connect() {
  try {
    mesh_.emplace(name_, ranks_, rank_, device_);
    while (!aborted_ && !mesh_->connect()) {
      std::this_thread::sleep_for(200us);
    }
  } catch (const MeshError& error) {
    fail(result_of(error), error.what());
  }
}

ncclResult_t Communicator::enqueue(std::vector<Transfer> transfers,
                                   const std::shared_ptr<StreamState>& stream) {
  auto shared = std::make_shared<std::vector<Transfer>>(std::move(transfers));
  return post([this, self = shared_from_this(), shared, stream] {
    ++unfinished_;
    const auto error = Engine::get().submit(stream, [self, shared] {
      const bool done = self->advance(*shared);
      if (done) {
        --self->unfinished_;
      }
      return done;
    });
    if (error != cudaSuccess) {
      --unfinished_;
      fail(ncclUnhandledCudaError, cudaGetErrorString(error));
    }
  });
}

// One step of a group, in its stream. After an error nothing goes on, as in NCCL: until the abort.
bool Communicator::advance(std::vector<Transfer>& transfers) {
  if (aborted_) {
    return true;
  }
  bool done = true;
  try {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      Transfer& transfer = transfers[i];
      bool turn = !transfer.done();
      for (std::size_t before = 0; turn && before < i; ++before) {
        const Transfer& earlier = transfers[before];
        turn = earlier.done() || earlier.peer() != transfer.peer() ||
               earlier.sends() != transfer.sends();
      }
      if (turn) {
        transfer.advance(*mesh_);
      }
      done = done && transfer.done();
    }
  } catch (const MeshError& error) {
    if (!aborted_) {
      fail(result_of(error), error.what());
    }
    return false;
  }
  return done;
}

ncclResult_t Communicator::finalize() {
  return post([this] {
    while (unfinished_ > 0 && !aborted_ && Engine::get().failure().empty()) {
      std::this_thread::sleep_for(100us);
    }
    finalized_ = true;
  });
}

void Communicator::abort() {
  aborted_ = true;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !working_; });
  if (mesh_.has_value()) {
    mesh_->hang_up();
  }
}

void Communicator::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  // The last owner may be the thread itself.
  if (thread_.joinable()) {
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }
}

ncclResult_t Communicator::post(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  if (error_ != ncclSuccess) {
    return error_;
  }
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  if (!blocking_) {
    return ncclInProgress;
  }
  changed_.wait(lock, [this] { return jobs_.empty() && !working_; });
  return error_;
}

void Communicator::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !jobs_.empty() || ending_; });
    if (jobs_.empty()) {
      return;
    }
    {
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      working_ = true;
      lock.unlock();
      job();
    }
    lock.lock();
    working_ = false;
    changed_.notify_all();
  }
}

ncclResult_t Communicator::state() {
  const std::lock_guard lock(mutex_);
  if (error_ != ncclSuccess) {
    return error_;
  }
  return jobs_.empty() && !working_ ? ncclSuccess : ncclInProgress;
}

std::string Communicator::last_error() {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

void Communicator::fail(ncclResult_t result, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (error_ == ncclSuccess) {
    error_ = result;
    last_error_ = why;
  }
}

}  // namespace cuda_standin
