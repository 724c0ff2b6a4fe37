#include "device/cuda/cuda_stream.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "device/cuda/check.hpp"

namespace stagecoach::device::cuda {
namespace {

// As host streams sleep.
constexpr std::uint64_t kSleepBeforeOneIn = 8;
constexpr std::uint64_t kMostSleepMicroseconds = 200;

// So many waits are remembered one by one.
constexpr std::size_t kMostWaits = 64;

// How long a stream of a failed job waits for what the GPU has begun.
constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kEndPoll = std::chrono::microseconds(50);

cudaStream_t make_stream(int device_index) {
  use_device(device_index);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "make a stream (cudaStreamCreateWithFlags)");
  return stream;
}

}  // namespace

struct CudaStream::HostCall {
  std::function<void()> work;
  AbortSignal& abort;
  std::atomic<bool> done{false};
};

CudaStream::CudaStream(const std::string& name, std::shared_ptr<EventPool> events,
                       AbortSignal& abort, std::uint64_t delay_seed)
    : name_(name),
      events_(std::move(events)),
      abort_(abort),
      handle_(make_stream(events_->device_index()), Destroy{events_->device_index()}),
      queue_(
          name, {delay_seed, kSleepBeforeOneIn, kMostSleepMicroseconds},
          [](StreamQueue::Item& item) { item.work(); }, [this] { finish(); }) {}

CudaStream::~CudaStream() = default;

void CudaStream::enqueue(std::function<void()> work) {
  issue([this, work = std::move(work)] { call_on_host(work); });
}

void CudaStream::wait(const Event& event) {
  if (event.state() == nullptr) {
    return;
  }
  issue([this, event] { order_after(event); });
}

Event CudaStream::record() {
  auto event = std::make_shared<CudaEvent>(events_, name_, abort_);
  queue_.push({[this, event] {
                 run([&] { event->issue(handle()); });
                 if (failed_) {
                   event->drop();
                 }
               },
               nullptr});
  return Event(std::move(event));
}

void CudaStream::issue(std::function<void()> work) {
  queue_.push({[this, work = std::move(work)] { run(work); }, nullptr});
}

void CudaStream::run(const std::function<void()>& work) noexcept {
  failed_ = failed_ || abort_.raised();
  if (failed_) {
    return;
  }
  try {
    if (!device_in_use_) {
      use_device(events_->device_index());
      device_in_use_ = true;
    }
    work();
  } catch (...) {
    failed_ = true;
    abort_.raise(std::current_exception());
  }
}

void CudaStream::call_on_host(std::function<void()> work) {
  forget_done_calls();
  auto& call = *host_calls_.emplace_back(new HostCall{std::move(work), abort_});
  check_cuda(cudaLaunchHostFunc(handle(), run_host_call, &call),
             "call the host from a stream (cudaLaunchHostFunc)");
  writes_host_memory();
}

void CudaStream::run_host_call(void* call) noexcept {
  auto& self = *static_cast<HostCall*>(call);
  if (!self.abort.raised()) {
    try {
      self.work();
    } catch (...) {
      self.abort.raise(std::current_exception());
    }
  }
  self.work = nullptr;  // it may own what others wait to see freed
  self.done.store(true, std::memory_order_release);
}

void CudaStream::forget_done_calls() {
  while (!host_calls_.empty() && host_calls_.front()->done.load(std::memory_order_acquire)) {
    host_calls_.pop_front();
  }
}

void CudaStream::order_after(const Event& event) {
  const auto* const here = dynamic_cast<const CudaEvent*>(event.state().get());
  if (here == nullptr) {
    event.wait();
    return;
  }
  here->order_before(handle());
  waits_.push_back(event);
  if (waits_.size() > kMostWaits) {
    waits_.clear();
    host_memory_behind_ = true;
  }
}

Event CudaStream::mark() {
  auto event = std::make_shared<CudaEvent>(events_, name_, abort_);
  event->issue(handle());
  return Event(std::move(event));
}

void CudaStream::catch_up_on_host() {
  if (host_memory_behind_) {
    mark().wait();
  } else {
    for (const auto& event : waits_) {
      event.wait();
    }
  }
  host_memory_behind_ = false;
  waits_.clear();
}

// The end of the stream's thread. No cudaStreamSynchronize, which would wait for ever where a
// failed job's work never ends.
void CudaStream::finish() noexcept {
  cudaSetDevice(events_->device_index());
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const auto status = cudaStreamQuery(handle());
    if (status == cudaSuccess) {
      return;
    }
    try {
      check_cuda(status == cudaErrorNotReady ? cudaSuccess : status,
                 "finish what was enqueued (cudaStreamQuery)");
    } catch (...) {
      abort_.raise(std::current_exception());
    }
    if (abort_.raised() && std::chrono::steady_clock::now() - begin > kPatience) {
      break;
    }
    std::this_thread::sleep_for(kEndPoll);
  }
  for (auto& call : host_calls_) {
    static_cast<void>(call.release());  // CUDA may still come to it
  }
}

void CudaStream::Destroy::operator()(cudaStream_t stream) const noexcept {
  cudaSetDevice(device_index);
  cudaStreamDestroy(stream);
}

}  // namespace stagecoach::device::cuda
