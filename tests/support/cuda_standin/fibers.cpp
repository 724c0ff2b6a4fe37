#include "support/cuda_standin/fibers.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#ifndef __x86_64__
#error "the switch between fibers is written for x86-64"
#endif

// Saves what a function must preserve and the stack pointer, and takes the other side's. The
// control words of floating point are the same everywhere here.
extern "C" void cuda_standin_switch(void** save_stack_pointer, void* stack_pointer);
asm(R"(
.text
.globl cuda_standin_switch
.hidden cuda_standin_switch
.type cuda_standin_switch, @function
cuda_standin_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_standin_switch, . - cuda_standin_switch
)");

namespace cuda_standin {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = 256 << 10;  // their frames are bigger
#else
constexpr std::size_t kStackBytes = 64 << 10;
#endif

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

struct Store {
  std::mutex mutex;
  std::vector<std::unique_ptr<Fiber>> fibers;
};
Store& store() {
  static Store one;
  return one;
}

}  // namespace

Fiber::Fiber() {
#if defined(__SANITIZE_ADDRESS__)
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  void* bottom = nullptr;
  pthread_attr_getstack(&attributes, &bottom, &size_bytes_);
  pthread_attr_destroy(&attributes);
  bottom_ = bottom;
#elif defined(__SANITIZE_THREAD__)
  tsan_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(WithStack) : size_bytes_(kStackBytes) {
  const std::size_t guard = page_bytes();
  void* const mapping = mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw std::bad_alloc();
  }
  mapping_ = static_cast<std::byte*>(mapping);
  bottom_ = mapping_ + guard;
  mprotect(mapping, guard, PROT_NONE);
#if defined(__SANITIZE_THREAD__)
  tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (mapping_ != nullptr) {
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(tsan_);
#endif
    munmap(mapping_, page_bytes() + size_bytes_);
  }
}

void Fiber::restart(void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  // Whoever ran here last may have left without returning.
  __asan_unpoison_memory_region(bottom_, size_bytes_);
#endif
  std::byte* const top = mapping_ + page_bytes() + size_bytes_;
  // As after a call: six saved registers, the address to return to, and above it, where the
  // caller's would be, nothing. A function begins with its stack 8 bytes off a multiple of 16.
  auto* const frame = reinterpret_cast<void**>(top) - 8;
  for (int i = 0; i < 8; ++i) {
    frame[i] = nullptr;
  }
  frame[6] = reinterpret_cast<void*>(entry);
  stack_pointer_ = frame;
}

#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_thread))
#endif
void Fiber::switch_to(Fiber& next, [[maybe_unused]] bool leaving) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(leaving ? nullptr : &fake_stack_, next.bottom_, next.size_bytes_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(next.tsan_, 0);
#endif
  cuda_standin_switch(&stack_pointer_, next.stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

Fiber& FiberPool::take() {
  if (free_.empty()) {
    std::unique_ptr<Fiber> fiber;
    {
      const std::lock_guard lock(store().mutex);
      if (!store().fibers.empty()) {
        fiber = std::move(store().fibers.back());
        store().fibers.pop_back();
      }
    }
    if (fiber == nullptr) {
      fiber = std::make_unique<Fiber>(Fiber::WithStack{});
    }
    fibers_.push_back(std::move(fiber));
    return *fibers_.back();
  }
  Fiber& fiber = *free_.back();
  free_.pop_back();
  return fiber;
}

void FiberPool::take_back() {
  free_.clear();
  for (const auto& fiber : fibers_) {
    free_.push_back(fiber.get());
  }
}

FiberPool::~FiberPool() {
  const std::lock_guard lock(store().mutex);
  for (auto& fiber : fibers_) {
    store().fibers.push_back(std::move(fiber));
  }
}

}  // namespace cuda_standin
