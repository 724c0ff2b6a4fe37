#include "support/cuda_standin/grid.hpp"

#include <cuda_runtime.h>
#include <mma.h>

#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <dynamic_shared.hpp>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/cuda_standin/fibers.hpp"
#include "support/cuda_standin/standin.hpp"

thread_local constinit uint3 threadIdx{};
thread_local constinit uint3 blockIdx{};
thread_local constinit dim3 blockDim{};
thread_local constinit dim3 gridDim{};

namespace cuda_standin {
namespace {

constexpr int kLanes = 32;

struct Warp {
  unsigned alive = 0;    ///< lanes that exist and have not left the kernel
  unsigned waiting = 0;  ///< lanes in a collective that is not complete
  std::array<WarpOperation, kLanes> operation{};
  std::array<unsigned, kLanes> mask{};
  std::array<std::uint64_t, kLanes> value{};
  std::array<int, kLanes> source{};
  std::array<std::uint64_t, kLanes> result{};
};

std::uint64_t poison() {
  std::uint64_t bits = 0;
  std::memset(&bits, kPoison, sizeof(bits));
  return bits;
}

// One 16 x 16 x 16 product, of what all lanes hold. Row-major indices as in mma.h.
void multiply_tiles(Warp& warp) {
  std::array<float, 256> a{};
  std::array<float, 256> b{};
  std::array<float, 256> sum{};
  const auto lane_of = [&](int lane) {
    return reinterpret_cast<const TileLane*>(warp.value[static_cast<std::size_t>(lane)]);
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 8; ++i) {
      const auto item = static_cast<std::size_t>(lane * 8 + i);
      a[item] = __half2float(lane_of(lane)->a[i]);
      b[item] = __half2float(lane_of(lane)->b[i]);
      sum[item] = lane_of(lane)->sum[i];
    }
  }
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t inner = 0; inner < 16; ++inner) {
      for (std::size_t column = 0; column < 16; ++column) {
        sum[row * 16 + column] += a[row * 16 + inner] * b[inner * 16 + column];
      }
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    std::memcpy(lane_of(lane)->result, &sum[static_cast<std::size_t>(lane * 8)], 8 * sizeof(float));
  }
}

void complete(Warp& warp, unsigned lanes, WarpOperation operation) {
  std::uint64_t votes = 0;
  if (operation == WarpOperation::multiply_tiles) {
    multiply_tiles(warp);
  } else if (operation == WarpOperation::vote) {
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      votes |= warp.value[static_cast<std::size_t>(lane)] << lane;
    }
  }
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
    const int source = warp.source[lane];
    if (operation == WarpOperation::shuffle) {
      const bool there = source >= 0 && source < kLanes && (lanes >> source & 1u) != 0;
      warp.result[lane] = there ? warp.value[static_cast<std::size_t>(source)] : poison();
    } else {
      warp.result[lane] = votes;
    }
  }
}

/// The threads of one block and who goes on next. Threads run on one fiber as long as none has to
/// wait, so a kernel without collectives never switches.
class Block {
 public:
  Block(FiberPool& pool, const std::function<void()>& body) : pool_(&pool), body_(&body) {}

  void run(dim3 size, bool backwards);

  std::uint64_t collective(WarpOperation operation, unsigned mask, std::uint64_t value, int source);
  void barrier();
  [[nodiscard]] int lane() const { return current_ % kLanes; }

 private:
  static void entry();
  void serve();
  [[nodiscard]] std::string thrown() const;
  bool begin_thread();
  void enter(int thread);
  void leave();
  void wait();
  void complete_if_all_came(int warp_index, unsigned mask);
  void release_barrier();
  void wake(int thread) { ready_.push_back(thread); }
  [[noreturn]] void fail(std::string why);
  [[nodiscard]] std::string stuck() const;
  [[nodiscard]] uint3 index_of(int thread) const;

  FiberPool* pool_;
  const std::function<void()>* body_;
  Fiber host_;
  dim3 size_;
  bool backwards_ = false;
  int threads_ = 0;
  int begun_ = 0;
  int left_ = 0;
  int current_ = 0;
  std::vector<Fiber*> fiber_of_;  ///< by thread
  Fiber* running_ = nullptr;
  std::deque<int> ready_;
  std::vector<Warp> warps_;
  std::vector<int> at_barrier_;
  std::string failure_;
};

thread_local constinit Block* t_block = nullptr;
thread_local constinit void* t_dynamic_shared = nullptr;

uint3 Block::index_of(int thread) const {
  const auto flat = static_cast<unsigned>(thread);
  return {flat % size_.x, flat / size_.x % size_.y, flat / (size_.x * size_.y)};
}

void Block::run(dim3 size, bool backwards) {
  size_ = size;
  backwards_ = backwards;
  threads_ = static_cast<int>(size.x * size.y * size.z);
  begun_ = 0;
  left_ = 0;
  ready_.clear();
  at_barrier_.clear();
  fiber_of_.assign(static_cast<std::size_t>(threads_), nullptr);
  warps_.assign(static_cast<std::size_t>((threads_ + kLanes - 1) / kLanes), Warp{});
  for (int thread = 0; thread < threads_; ++thread) {
    warps_[static_cast<std::size_t>(thread / kLanes)].alive |= 1u << (thread % kLanes);
  }
  pool_->take_back();
  t_block = this;
  running_ = &pool_->take();
  running_->restart(&Block::entry);
  host_.switch_to(*running_);
  t_block = nullptr;
  if (!failure_.empty()) {
    throw std::runtime_error(failure_);
  }
}

#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize_thread))
#endif
void Block::entry() {
  Fiber::arrived();
  t_block->serve();
}

// Runs the body; what it threw, or nothing.
std::string Block::thrown() const {
  try {
    (*body_)();
  } catch (const std::exception& error) {
    return std::string("the kernel threw: ") + error.what();
  } catch (...) {
    return "the kernel threw something";
  }
  return {};
}

// Never returns: either another fiber goes on, or the block is over.
void Block::serve() {
  while (begin_thread()) {
    if (std::string why = thrown(); !why.empty()) {
      fail(std::move(why));  // not from within a handler, which would never end
    }
    leave();
    if (!ready_.empty()) {
      const int next = ready_.front();
      ready_.pop_front();
      Fiber& own = *running_;
      pool_->give_back(own);
      enter(next);
      own.switch_to(*running_, true);
    }
  }
  if (left_ < threads_) {
    fail(stuck());
  }
  running_->switch_to(host_, true);
}

bool Block::begin_thread() {
  if (begun_ == threads_) {
    return false;
  }
  const int thread = backwards_ ? threads_ - 1 - begun_ : begun_;
  ++begun_;
  fiber_of_[static_cast<std::size_t>(thread)] = running_;
  enter(thread);
  return true;
}

void Block::enter(int thread) {
  current_ = thread;
  threadIdx = index_of(thread);
  running_ = fiber_of_[static_cast<std::size_t>(thread)];
}

// What the thread was missing from may be complete now.
void Block::leave() {
  ++left_;
  const int warp_index = current_ / kLanes;
  Warp& warp = warps_[static_cast<std::size_t>(warp_index)];
  warp.alive &= ~(1u << lane());
  for (unsigned rest = warp.waiting; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
    if ((warp.waiting >> lane & 1u) != 0) {
      complete_if_all_came(warp_index, warp.mask[lane]);
    }
  }
  if (!at_barrier_.empty() && static_cast<int>(at_barrier_.size()) == threads_ - left_) {
    release_barrier();
  }
}

// The current thread has to wait for others.
void Block::wait() {
  Fiber& own = *running_;
  if (!ready_.empty()) {
    const int next = ready_.front();
    ready_.pop_front();
    enter(next);
    own.switch_to(*running_);
  } else if (begun_ < threads_) {
    running_ = &pool_->take();
    running_->restart(&Block::entry);
    own.switch_to(*running_);
  } else {
    fail(stuck());
  }
}

std::uint64_t Block::collective(WarpOperation operation, unsigned mask, std::uint64_t value,
                                int source) {
  const int self = current_;
  const auto lane = static_cast<std::size_t>(self % kLanes);
  Warp& warp = warps_[static_cast<std::size_t>(self / kLanes)];
  if ((mask >> lane & 1u) == 0) {
    fail("a lane is missing from the mask of its own collective");
  }
  warp.waiting |= 1u << lane;
  warp.operation[lane] = operation;
  warp.mask[lane] = mask;
  warp.value[lane] = value;
  warp.source[lane] = source;
  complete_if_all_came(self / kLanes, mask);
  if ((warp.waiting >> lane & 1u) != 0) {
    wait();
  }
  return warp.result[lane];
}

void Block::complete_if_all_came(int warp_index, unsigned mask) {
  Warp& warp = warps_[static_cast<std::size_t>(warp_index)];
  const unsigned lanes = mask & warp.alive;
  if (lanes == 0 || (warp.waiting & lanes) != lanes) {
    return;
  }
  const WarpOperation operation = warp.operation[static_cast<std::size_t>(std::countr_zero(lanes))];
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::size_t>(std::countr_zero(rest));
    if (warp.operation[lane] != operation || warp.mask[lane] != mask) {
      fail("lanes of a warp meet in different collectives, or with different masks");
    }
  }
  if (operation == WarpOperation::multiply_tiles && lanes != ~0u) {
    fail("a product of tiles without the whole warp");
  }
  complete(warp, lanes, operation);
  warp.waiting &= ~lanes;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int thread = warp_index * kLanes + std::countr_zero(rest);
    if (thread != current_) {
      wake(thread);
    }
  }
}

void Block::barrier() {
  at_barrier_.push_back(current_);
  if (static_cast<int>(at_barrier_.size()) == threads_ - left_) {
    release_barrier();
  } else {
    wait();
  }
}

void Block::release_barrier() {
  for (const int thread : at_barrier_) {
    if (thread != current_) {
      wake(thread);
    }
  }
  at_barrier_.clear();
}

std::string Block::stuck() const {
  int in_warps = 0;
  for (const Warp& warp : warps_) {
    in_warps += std::popcount(warp.waiting);
  }
  return "threads wait for each other for ever: of block (" + std::to_string(blockIdx.x) + ", " +
         std::to_string(blockIdx.y) + ", " + std::to_string(blockIdx.z) + ")'s " +
         std::to_string(threads_) + " threads " + std::to_string(at_barrier_.size()) +
         " are at __syncthreads, " + std::to_string(in_warps) + " in a collective of their warp, " +
         std::to_string(left_) + " have left the kernel";
}

// Leaves all fibers of the block where they are; their stacks begin anew in the next one.
void Block::fail(std::string why) {
  failure_ = std::move(why);
  running_->switch_to(host_, true);
  std::terminate();
}

}  // namespace

std::uint64_t warp_collective(WarpOperation operation, unsigned mask, std::uint64_t value,
                              int source) {
  return t_block->collective(operation, mask, value, source);
}

void block_barrier() { t_block->barrier(); }

int lane() { return t_block->lane(); }

void* dynamic_shared_bytes() { return t_dynamic_shared; }

void run_grid(const Grid& grid, const std::function<void()>& body) {
  FiberPool pool;
  Block block(pool, body);
  // Exactly as long as asked for, so that AddressSanitizer sees what lies beyond.
  const auto shared = std::make_unique<std::byte[]>(grid.shared_bytes);
  t_dynamic_shared = shared.get();
  gridDim = grid.blocks;
  blockDim = grid.threads;
  const std::uint64_t count = std::uint64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t flat = grid.backwards ? count - 1 - i : i;
    blockIdx.x = static_cast<unsigned>(flat % grid.blocks.x);
    blockIdx.y = static_cast<unsigned>(flat / grid.blocks.x % grid.blocks.y);
    blockIdx.z = static_cast<unsigned>(flat / grid.blocks.x / grid.blocks.y);
    std::memset(shared.get(), kPoison, grid.shared_bytes);
    block.run(grid.threads, grid.backwards);
  }
  t_dynamic_shared = nullptr;
}

}  // namespace cuda_standin
