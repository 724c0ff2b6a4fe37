#pragma once

#include <functional>
#include <memory>

namespace stagecoach::device {

/// A point in a stream's work. Copies name the same point. A default-made event has passed already.
class Event {
 public:
  struct State {
    virtual ~State() = default;
    [[nodiscard]] virtual bool passed() const = 0;
    virtual void wait() const = 0;
  };

  Event() = default;
  explicit Event(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  [[nodiscard]] bool passed() const { return state_ == nullptr || state_->passed(); }
  /// Blocks the calling thread until the point is reached. Throws JobAborted if the stream failed.
  void wait() const {
    if (state_ != nullptr) {
      state_->wait();
    }
  }
  [[nodiscard]] const std::shared_ptr<const State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<const State> state_;
};

/// A queue of work that runs in order, beside the caller and beside other streams. One caller at a
/// time. The destructor waits for what was enqueued.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Runs `work` on the host after all earlier work of this stream and before all later work. An
  /// exception raises the job's AbortSignal; work enqueued after it is dropped.
  virtual void enqueue(std::function<void()> work) = 0;
  /// Work enqueued from here on waits until `event` has passed.
  virtual void wait(const Event& event) = 0;
  /// The point after everything enqueued so far.
  [[nodiscard]] virtual Event record() = 0;
  /// Seconds in which the stream's work has run so far, waits for events left out; 0: not known
  /// (of a GPU's streams). May be asked by any thread.
  [[nodiscard]] virtual double busy_seconds() const { return 0; }
};

}  // namespace stagecoach::device
