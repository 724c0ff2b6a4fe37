#include "support/cuda_standin/engine.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>

#include "support/cuda_standin/calls.hpp"

namespace cuda_standin {

using namespace std::chrono_literals;

bool runnable(const Task& task) {
  return task.kind != Task::Kind::wait || task.event->completed >= task.generation;
}

bool Waiter::over() const {
  return event != nullptr ? event->completed >= generation : stream->finished >= finished;
}

// Never destroyed: threads may still be in it when the program ends.
Engine& Engine::get() {
  static auto* const one = new Engine;
  return *one;
}

cudaError_t Engine::status() const {
  return failure_.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

std::shared_ptr<StreamState> Engine::create_stream(int device) {
  const std::uint64_t seed = settings().adversary_seed;
  std::unique_lock lock(mutex_);
  reap(lock);
  if (seed != 0 && adversary_ == nullptr) {
    adversary_ = std::make_unique<Adversary>(seed);
    ending_ = false;
    executor_ = std::thread([this] { serve_all(); });
  }
  auto stream = std::make_shared<StreamState>();
  stream->number = streams_made_++;
  stream->device = device;
  streams_.push_back(stream);
  if (adversary_ == nullptr) {
    stream->thread = std::thread([this, stream] { serve(stream); });
  }
  return stream;
}

std::shared_ptr<StreamState> Engine::find(cudaStream_t stream, int device) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& known : streams_) {
      if (reinterpret_cast<cudaStream_t>(known.get()) == stream && !known->closing) {
        return known;
      }
    }
    if (stream != nullptr) {
      return nullptr;
    }
    for (const auto& known : default_streams_) {
      if (known->device == device) {
        return known;
      }
    }
  }
  auto made = create_stream(device);
  const std::lock_guard lock(mutex_);
  default_streams_.push_back(made);
  return made;
}

// As in CUDA the stream still does what it was given.
void Engine::destroy_stream(const std::shared_ptr<StreamState>& stream) {
  std::unique_lock lock(mutex_);
  stream->closing = true;
  stream->changed.notify_all();
  executor_wake_.notify_all();
  reap(lock);
}

void Engine::reap(std::unique_lock<std::mutex>& lock) {
  std::vector<std::shared_ptr<StreamState>> ended;
  for (auto it = streams_.begin(); it != streams_.end();) {
    const bool over = adversary_ != nullptr ? (*it)->closing && (*it)->tasks.empty() : (*it)->ended;
    if (over) {
      ended.push_back(*it);
      it = streams_.erase(it);
    } else {
      ++it;
    }
  }
  lock.unlock();
  for (const auto& stream : ended) {
    if (stream->thread.joinable()) {
      stream->thread.join();
    }
  }
  lock.lock();
}

std::shared_ptr<EventState> Engine::create_event(bool timed) {
  const std::lock_guard lock(mutex_);
  auto event = std::make_shared<EventState>();
  event->number = events_made_++;
  event->timed = timed;
  return event;
}

void Engine::count_event(int change) {
  const std::lock_guard lock(mutex_);
  events_alive_ += change;
}

bool Engine::backwards() {
  const std::lock_guard lock(mutex_);
  return adversary_ != nullptr && adversary_->coin();
}

cudaError_t Engine::add(const std::shared_ptr<StreamState>& stream, Task task) {
  stream->tasks.push_back(std::move(task));
  ++stream->submitted;
  stream->changed.notify_all();
  executor_wake_.notify_all();
  return cudaSuccess;
}

cudaError_t Engine::submit(const std::shared_ptr<StreamState>& stream, std::function<bool()> step) {
  const std::lock_guard lock(mutex_);
  if (status() != cudaSuccess) {
    return status();
  }
  Task task;
  task.step = std::move(step);
  return add(stream, std::move(task));
}

cudaError_t Engine::record(const std::shared_ptr<EventState>& event,
                           const std::shared_ptr<StreamState>& stream) {
  const std::lock_guard lock(mutex_);
  if (status() != cudaSuccess) {
    return status();
  }
  Task task;
  task.kind = Task::Kind::record;
  task.event = event;
  task.generation = ++event->recorded;
  event->recorder = stream;
  if (logging_) {
    log_.push_back({OrderEvent::Kind::record, stream->number, event->number, task.generation});
  }
  return add(stream, std::move(task));
}

cudaError_t Engine::wait_in(const std::shared_ptr<StreamState>& stream,
                            const std::shared_ptr<EventState>& event) {
  const std::lock_guard lock(mutex_);
  if (status() != cudaSuccess) {
    return status();
  }
  if (logging_) {
    log_.push_back({OrderEvent::Kind::wait, stream->number, event->number, event->recorded});
  }
  Task task;
  task.kind = Task::Kind::wait;
  task.event = event;
  task.generation = event->recorded;
  task.recorder = event->recorder;
  return add(stream, std::move(task));
}

cudaError_t Engine::wait(std::unique_lock<std::mutex>& lock, Waiter waiter) {
  waiters_.push_back(std::move(waiter));
  const auto own = std::prev(waiters_.end());
  executor_wake_.notify_all();
  progress_.wait(lock, [&] { return own->over(); });
  waiters_.erase(own);
  return status();
}

cudaError_t Engine::wait_for(const std::shared_ptr<StreamState>& stream) {
  std::unique_lock lock(mutex_);
  return wait(lock, {stream, stream->submitted, nullptr, 0});
}

cudaError_t Engine::wait_for(const std::shared_ptr<EventState>& event) {
  std::unique_lock lock(mutex_);
  return wait(lock, {event->recorder, 0, event, event->recorded});
}

cudaError_t Engine::wait_for_device(int device) {
  std::unique_lock lock(mutex_);
  const auto streams = streams_;
  for (const auto& stream : streams) {
    if (stream->device == device) {
      wait(lock, {stream, stream->submitted, nullptr, 0});
    }
  }
  return status();
}

cudaError_t Engine::query(const std::shared_ptr<StreamState>& stream) {
  const std::lock_guard lock(mutex_);
  if (status() != cudaSuccess) {
    return status();
  }
  return stream->finished < stream->submitted ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t Engine::query(const std::shared_ptr<EventState>& event) {
  const std::lock_guard lock(mutex_);
  if (status() != cudaSuccess) {
    return status();
  }
  return event->completed < event->recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t Engine::elapsed(const EventState& begin, const EventState& end, float* milliseconds) {
  const std::lock_guard lock(mutex_);
  if (!begin.timed || !end.timed || begin.recorded == 0 || end.recorded == 0) {
    return cudaErrorInvalidResourceHandle;
  }
  if (begin.completed < begin.recorded || end.completed < end.recorded) {
    return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end.when - begin.when).count();
  return status();
}

void Engine::serve(const std::shared_ptr<StreamState>& stream) {
  std::unique_lock lock(mutex_);
  for (;;) {
    stream->changed.wait(lock, [&] {
      return stream->tasks.empty() ? stream->closing : runnable(stream->tasks.front());
    });
    if (stream->tasks.empty()) {
      stream->ended = true;
      return;
    }
    const std::int64_t before = stream->finished;
    run_head(*stream, lock);
    if (stream->finished == before) {
      stream->changed.wait_for(lock, 50us);  // a step that waits for something outside
    }
  }
}

std::vector<StreamState*> Engine::candidates() const {
  std::vector<StreamState*> found;
  for (const auto& stream : streams_) {
    if (!stream->tasks.empty() && runnable(stream->tasks.front())) {
      found.push_back(stream.get());
    }
  }
  return found;
}

// Without threads that need not wait any more and have not woken yet.
std::vector<const Waiter*> Engine::waiting() const {
  std::vector<const Waiter*> found;
  for (const Waiter& waiter : waiters_) {
    if (!waiter.over()) {
      found.push_back(&waiter);
    }
  }
  return found;
}

void Engine::serve_all() {
  std::unique_lock lock(mutex_);
  auto hold_began = Clock::time_point::max();
  while (!ending_) {
    const auto runnable_streams = candidates();
    if (runnable_streams.empty()) {
      hold_began = Clock::time_point::max();
      executor_wake_.wait(lock);
      continue;
    }
    const auto waiters = waiting();
    if (const auto hold = adversary_->hold(); waiters.empty() && hold > 0us) {
      const auto now = Clock::now();
      hold_began = std::min(hold_began, now);
      const auto end = std::min(now + hold, hold_began + 8 * hold);
      if (executor_wake_.wait_until(lock, end) == std::cv_status::no_timeout) {
        continue;  // with what has been added
      }
      adversary_->held();
    }
    hold_began = Clock::time_point::max();
    StreamState& stream = *adversary_->choose(runnable_streams, waiters);
    const std::int64_t before = stream.finished;
    run_head(stream, lock);
    if (stream.finished == before) {
      executor_wake_.wait_for(lock, 20us);
    }
  }
}

void Engine::run_head(StreamState& stream, std::unique_lock<std::mutex>& lock) {
  Task& task = stream.tasks.front();
  if (task.kind == Task::Kind::work) {
    run_step(stream, task, lock);
    return;
  }
  if (task.kind == Task::Kind::record) {
    EventState& event = *task.event;
    event.completed = std::max(event.completed, task.generation);
    event.when = Clock::now();
    for (const auto& other : streams_) {
      if (!other->tasks.empty() && other->tasks.front().event == task.event) {
        other->changed.notify_all();
      }
    }
  }
  finish_head(stream);
}

void Engine::run_step(StreamState& stream, Task& task, std::unique_lock<std::mutex>& lock) {
  bool done = true;
  if (failure_.empty()) {
    stream.busy = true;
    lock.unlock();
    std::string why;
    try {
      done = task.step();
      if (done) {
        task.step = nullptr;  // what it holds may need the mutex to go
      }
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (!why.empty()) {
      fail(why);
    }
    lock.lock();
    stream.busy = false;
  }
  if (done) {
    finish_head(stream);
  }
}

void Engine::finish_head(StreamState& stream) {
  stream.tasks.pop_front();
  ++stream.finished;
  if (!waiters_.empty()) {
    progress_.notify_all();
  }
}

void Engine::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = why;
    std::fprintf(stderr, "cuda_standin: a kernel failed: %s\n", why.c_str());
  }
}

std::string Engine::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Engine::log_order(bool on) {
  const std::lock_guard lock(mutex_);
  logging_ = on;
  if (on) {
    log_.clear();
  }
}

std::vector<OrderEvent> Engine::order_log() {
  const std::lock_guard lock(mutex_);
  return log_;
}

void Engine::restart() {
  std::unique_lock lock(mutex_);
  for (const auto& stream : default_streams_) {
    stream->closing = true;
    stream->changed.notify_all();
  }
  default_streams_.clear();
  executor_wake_.notify_all();
  const auto closing = [](const auto& stream) { return stream->closing; };
  if (!std::all_of(streams_.begin(), streams_.end(), closing) || events_alive_ != 0) {
    throw std::logic_error("cuda_standin::reset: there are still streams or events");
  }
  const auto deadline = Clock::now() + 20s;
  while (!streams_.empty()) {
    reap(lock);
    if (Clock::now() > deadline) {
      throw std::logic_error("cuda_standin::reset: a stream does not come to its end");
    }
    progress_.wait_for(lock, 100us);
  }
  ending_ = true;
  executor_wake_.notify_all();
  std::thread executor = std::move(executor_);
  lock.unlock();
  if (executor.joinable()) {
    executor.join();
  }
  lock.lock();
  adversary_.reset();
  streams_made_ = 0;
  events_made_ = 0;
  failure_.clear();
  logging_ = false;
  log_.clear();
}

void log_order(bool on) { Engine::get().log_order(on); }
std::vector<OrderEvent> order_log() { return Engine::get().order_log(); }
std::string failure() { return Engine::get().failure(); }

}  // namespace cuda_standin
