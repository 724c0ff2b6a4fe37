#include "device/host/host_device.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/memory_budget.hpp"
#include "base/pinned_memory.hpp"
#include "device/argument_checks.hpp"
#include "device/cuda/packed_product_rows.hpp"
#include "device/host/attention.hpp"
#include "device/host/isa.hpp"
#include "device/host/kernels.hpp"
#include "device/host/linear.hpp"
#include "device/host/sample.hpp"
#include "device/host/scratch.hpp"
#include "device/host/scratch_sizes.hpp"
#include "device/host/thread_pool.hpp"

namespace stagecoach::device {
namespace {

// Rows that one call of a row kernel is worth waking a worker for.
constexpr std::int64_t kRowsAtOnce = 4;

class LockedMemory final : public Pinned {
 public:
  explicit LockedMemory(MemoryLock lock) : lock_(std::move(lock)) {}

 private:
  MemoryLock lock_;
};

class HostDevice final : public Device {
 public:
  HostDevice(const HostDeviceOptions& options, AbortSignal& abort)
      : isa_(select_isa(options.isa)),
        host_addressable_(options.host_addressable),
        delay_seed_(options.delay_seed),
        abort_(abort),
        pool_(checked_threads(options.threads)),
        budget_("the host device's memory",
                options.memory_bytes == 0 ? kUnlimited : options.memory_bytes) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("host, {}, {} thread{}", isa_name(isa_), pool_.threads(),
                       pool_.threads() == 1 ? "" : "s");
  }

  // The register width is not part of it: sums run over 16 lanes on both. The exponential is
  // Highway's, so its version is.
  [[nodiscard]] std::string instruction_set() const override {
    return "x86-64 with FMA, sums over 16 lanes, exponential of "
           "Highway " STAGECOACH_HIGHWAY_VERSION;
  }

  [[nodiscard]] bool host_addressable() const override { return host_addressable_; }

  Buffer allocate(std::size_t size_bytes, const std::string& purpose) override;
  [[nodiscard]] std::size_t allocated_bytes() const override { return budget_.used_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const override { return budget_.peak_bytes(); }
  [[nodiscard]] std::size_t scratch_bytes(const ScratchShape& shape) const override {
    return device::host_scratch_bytes(shape, pool_.threads());
  }
  [[nodiscard]] std::size_t host_scratch_bytes(const ScratchShape& /*shape*/) const override {
    return 0;
  }
  void reserve_scratch(const ScratchShape& shape) override {
    scratch_ =
        Scratch(budget_, host_worker_floats(shape), pool_.threads(), host_shared_floats(shape));
    shape_ = shape;
  }

  [[nodiscard]] std::unique_ptr<Pinned> pin(std::span<std::byte> memory) override {
    auto lock = MemoryLock::try_lock(memory);
    return lock ? std::make_unique<LockedMemory>(std::move(*lock)) : nullptr;
  }

  std::unique_ptr<Stream> create_stream(const std::string& name) override {
    return make_host_stream(name, abort_, delay_seed_);
  }

  void copy_from_host(Stream& stream, std::byte* to, const std::byte* from,
                      std::size_t size_bytes) override {
    copy(stream, to, from, size_bytes);
  }
  void copy_to_host(Stream& stream, std::byte* to, const std::byte* from,
                    std::size_t size_bytes) override {
    copy(stream, to, from, size_bytes);
  }

  void embed(Stream& stream, EmbedArgs args) override;
  void layer_norm(Stream& stream, LayerNormArgs args) override;
  void linear(Stream& stream, LinearArgs args) override;
  void widen(Stream& stream, WidenArgs args) override;
  // Products of many rows widen panels in the cache, whatever the weights are.
  [[nodiscard]] std::int64_t packed_product_rows() const override {
    return host_addressable_ ? std::numeric_limits<std::int64_t>::max() : cuda::kPackedProductRows;
  }
  void store_kv(Stream& stream, AttentionArgs args) override;
  void attention(Stream& stream, AttentionArgs args) override;
  void attention_partials(Stream& stream, AttentionArgs args) override;
  void attention_scores(Stream& stream, AttentionArgs args) override;
  void select_top(Stream& stream, AttentionArgs args) override;
  void gather_values(Stream& stream, AttentionArgs args) override;
  void scatter_values(Stream& stream, AttentionArgs args) override;
  void gather_rows(Stream& stream, GatherRowsArgs args) override;
  void sample(Stream& stream, SampleArgs args) override;

 protected:
  void release(std::byte* data, std::size_t size_bytes) noexcept override;

 private:
  static constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

  static int checked_threads(int threads) {
    if (threads < 1) {
      throw ConfigError(fmt::format("--threads {}: at least one is needed", threads));
    }
    return threads;
  }

  void check_scratch(bool fits, const char* operation) const {
    STAGECOACH_CHECK(fits && !scratch_.empty(), "the reserved scratch is too small for {}",
                     operation);
  }

  static void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t size_bytes) {
    stream.enqueue([=] {
      if (size_bytes > 0) {
        std::memcpy(to, from, size_bytes);
      }
    });
  }

  // Enqueues work that may use the scratch, which two streams must not do at once.
  template <typename Work>
  void compute(Stream& stream, Work work) {
    stream.enqueue([this, work = std::move(work)] {
      const std::lock_guard lock(compute_mutex_);
      work();
    });
  }

  template <typename Body>
  void for_rows(std::int64_t rows, Body body) {
    pool_.parallel_for((rows + kRowsAtOnce - 1) / kRowsAtOnce,
                       [&](std::int64_t index, int /*worker*/) {
                         const auto from = index * kRowsAtOnce;
                         const auto to = std::min(from + kRowsAtOnce, rows);
                         for (auto row = from; row < to; ++row) {
                           body(row);
                         }
                       });
  }

  // Of attention, whose shape must be within the reserved one.
  void check_attention_scratch(const AttentionArgs& args) const {
    check_scratch(args.head_dim <= shape_.head_dim && args.page_tokens <= shape_.page_tokens,
                  "attention");
    for (const auto& sequence : args.sequences) {
      check_scratch(!sequence.sparse || sequence.first_position + std::int64_t{sequence.num_rows} <=
                                            shape_.sparse_tokens,
                    "sparse attention");
    }
  }

  Isa isa_;
  bool host_addressable_;
  std::uint64_t delay_seed_;
  AbortSignal& abort_;
  ThreadPool pool_;
  MemoryBudget budget_;  // before what is counted in it
  std::mutex compute_mutex_;
  ScratchShape shape_;
  Scratch scratch_;
  std::mutex memory_mutex_;
  std::unordered_map<std::byte*, BudgetedMemory> memory_;  // what buffers own
};

Buffer HostDevice::allocate(std::size_t size_bytes, const std::string& purpose) {
  BudgetedMemory memory(budget_, size_bytes, purpose);
  std::byte* data = memory.data();
  if (data != nullptr) {
    const std::lock_guard lock(memory_mutex_);
    memory_.emplace(data, std::move(memory));
  }
  return {*this, data, size_bytes};
}

void HostDevice::release(std::byte* data, std::size_t /*size_bytes*/) noexcept {
  const std::lock_guard lock(memory_mutex_);
  memory_.erase(data);
}

void HostDevice::embed(Stream& stream, EmbedArgs args) {
  check_embed(args);
  compute(stream, [this, args = std::move(args)] {
    const auto& kernels = row_kernels(isa_);
    for_rows(static_cast<std::int64_t>(args.tokens.size()), [&](std::int64_t row) {
      const auto i = static_cast<std::size_t>(row);
      const Half* position = args.position_table + args.positions[i] * args.width;
      float* out = args.out + row * args.width;
      if (args.token_table.format.packed()) {
        kernels.add_packed(
            packed_run(args.token_table, args.width, args.tokens[i], args.tokens[i], 0, args.width),
            position, out);
      } else {
        kernels.add_halves(args.token_table.halves() + args.tokens[i] * args.width, position,
                           args.width, out);
      }
    });
  });
}

void HostDevice::layer_norm(Stream& stream, LayerNormArgs args) {
  STAGECOACH_CHECK(args.width > 0, "a norm over {} elements", args.width);
  compute(stream, [this, args] {
    const auto& kernels = row_kernels(isa_);
    for_rows(args.rows, [&](std::int64_t row) { kernels.layer_norm(args, row); });
  });
}

void HostDevice::linear(Stream& stream, LinearArgs args) {
  check_linear(args);
  check_scratch(args.in_features <= shape_.max_in_features, "a product");
  if (args.rows > 0) {
    compute(stream, [this, args] { device::linear(args, linear_kernels(isa_), pool_, scratch_); });
  }
}

void HostDevice::widen(Stream& stream, WidenArgs args) {
  check_widen(args);
  compute(stream, [this, args] {
    const auto& kernels = row_kernels(isa_);
    for_rows(args.rows, [&](std::int64_t row) {
      const auto soon = std::min(row + 1, args.rows - 1);
      kernels.widen_packed(packed_run(args.weight, args.columns, row, soon, 0, args.columns),
                           args.out + row * args.columns);
    });
  });
}

void HostDevice::store_kv(Stream& stream, AttentionArgs args) {
  check_attention(args);
  compute(stream, [this, args = std::move(args)] {
    device::store_kv(args, attention_kernels(isa_), pool_);
  });
}

void HostDevice::attention(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_reach(args);
  check_attention_scratch(args);
  compute(stream, [this, args = std::move(args)] {
    device::attention(args, attention_kernels(isa_), pool_, scratch_);
  });
}

void HostDevice::attention_partials(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_selected(args);
  check_attention_scratch(args);
  compute(stream, [this, args = std::move(args)] {
    device::attention_partials(args, attention_kernels(isa_), pool_, scratch_);
  });
}

void HostDevice::attention_scores(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_attention_scratch(args);
  compute(stream, [this, args = std::move(args)] {
    device::attention_scores(args, attention_kernels(isa_), pool_, scratch_);
  });
}

void HostDevice::select_top(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_selection(args);
  check_attention_scratch(args);
  compute(stream, [this, args = std::move(args)] {
    device::select_top(args, attention_kernels(isa_), pool_, scratch_);
  });
}

void HostDevice::gather_values(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_gather(args);
  compute(stream, [this, args = std::move(args)] { device::gather_values(args, pool_); });
}

void HostDevice::scatter_values(Stream& stream, AttentionArgs args) {
  check_attention(args);
  compute(stream, [this, args = std::move(args)] { device::scatter_values(args, pool_); });
}

void HostDevice::gather_rows(Stream& stream, GatherRowsArgs args) {
  compute(stream, [this, args = std::move(args)] {
    for_rows(static_cast<std::int64_t>(args.rows.size()), [&](std::int64_t row) {
      const float* from = args.x + args.rows[static_cast<std::size_t>(row)] * args.width;
      std::copy_n(from, args.width, args.out + row * args.width);
    });
  });
}

void HostDevice::sample(Stream& stream, SampleArgs args) {
  check_sample(args);
  check_scratch(args.vocab <= shape_.vocab, "sampling");
  compute(stream, [this, args = std::move(args)] {
    device::sample(args, sample_kernels(isa_), pool_, scratch_);
  });
}

}  // namespace

std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options, AbortSignal& abort) {
  return std::make_unique<HostDevice>(options, abort);
}

}  // namespace stagecoach::device
