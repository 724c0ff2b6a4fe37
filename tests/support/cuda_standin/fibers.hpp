#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace cuda_standin {

/// Where execution can go on: a stack of its own, or that of the OS thread that runs a grid.
class Fiber {
 public:
  /// The OS thread itself.
  Fiber();
  /// A stack with a guard page. std::bad_alloc if there is none.
  struct WithStack {};
  explicit Fiber(WithStack);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  Fiber(Fiber&&) = delete;
  Fiber& operator=(Fiber&&) = delete;
  ~Fiber();

  /// Forgets where it was: it will begin with `entry`, which must never return.
  void restart(void (*entry)());
  /// Goes on with `next`, until something goes on with this. `leaving`: nothing will.
  void switch_to(Fiber& next, bool leaving = false);
  /// To be called first by `entry`.
  static void arrived();

 private:
  void* stack_pointer_ = nullptr;
  std::byte* mapping_ = nullptr;  ///< the guard page, then the stack
  const void* bottom_ = nullptr;
  std::size_t size_bytes_ = 0;
  void* fake_stack_ = nullptr;  ///< AddressSanitizer's
  void* tsan_ = nullptr;        ///< ThreadSanitizer's
};

/// Stacks of one grid, from a store that all grids share; they go back with it.
class FiberPool {
 public:
  FiberPool() = default;
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  FiberPool(FiberPool&&) = delete;
  FiberPool& operator=(FiberPool&&) = delete;
  ~FiberPool();

  Fiber& take();
  void give_back(Fiber& fiber) { free_.push_back(&fiber); }
  /// All are free again.
  void take_back();

 private:
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
};

}  // namespace cuda_standin
