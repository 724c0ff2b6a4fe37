#include "device/cuda/cuda_device.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "device/argument_checks.hpp"
#include "device/cuda/arena.hpp"
#include "device/cuda/attention.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/cuda_devices.hpp"
#include "device/cuda/cuda_event.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/operation_memory.hpp"
#include "device/cuda/pinned_memory.hpp"
#include "device/cuda/products.hpp"
#include "device/cuda/row_operations.hpp"
#include "device/cuda/sample.hpp"
#include "device/cuda/staged_copies.hpp"

namespace stagecoach::device {
namespace cuda {
namespace {

std::string name_of(int index) { return fmt::format("cuda:{}", index); }

CudaDeviceInfo find_device(int index) {
  auto devices = cuda_devices();
  if (devices.empty()) {
    throw ConfigError("--device cuda: " + cuda_status());
  }
  if (index < 0 || static_cast<std::size_t>(index) >= devices.size()) {
    throw ConfigError(fmt::format("--device {}: there {} {} GPU{}, counted from 0", name_of(index),
                                  devices.size() == 1 ? "is" : "are", devices.size(),
                                  devices.size() == 1 ? "" : "s"));
  }
  return std::move(devices[static_cast<std::size_t>(index)]);
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaDeviceOptions& options, AbortSignal& abort)
      : info_(find_device(options.index)),
        delay_seed_(options.delay_seed),
        abort_(abort),
        events_(std::make_shared<EventPool>(options.index)),
        pinned_ranges_(std::make_shared<PinnedRanges>()),
        arena_(name_of(options.index) + "'s memory", options.index, options.memory_bytes) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, {}, sm_{}{}, {}", name_of(info_.index), info_.name, info_.compute_major,
                       info_.compute_minor, format_bytes(info_.memory_bytes));
  }

  // GPUs of several generations may share a job, though a product's bits differ between them.
  [[nodiscard]] std::string instruction_set() const override {
    return "CUDA, f16 products with f32 sums";
  }

  [[nodiscard]] bool host_addressable() const override { return false; }

  Buffer allocate(std::size_t size_bytes, const std::string& purpose) override {
    return {*this, arena_.allocate(size_bytes, purpose), size_bytes};
  }
  [[nodiscard]] std::size_t allocated_bytes() const override { return arena_.used_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const override { return arena_.peak_bytes(); }
  [[nodiscard]] std::size_t scratch_bytes(const ScratchShape& shape) const override {
    return cuda::scratch_bytes(shape);
  }
  [[nodiscard]] std::size_t host_scratch_bytes(const ScratchShape& shape) const override {
    return cuda::host_scratch_bytes(shape);
  }
  void reserve_scratch(const ScratchShape& shape) override;
  [[nodiscard]] std::vector<std::string> notes() const override;

  [[nodiscard]] std::unique_ptr<Pinned> pin(std::span<std::byte> memory) override {
    return pin_memory(memory, info_.index, pinned_ranges_);
  }

  std::unique_ptr<Stream> create_stream(const std::string& name) override {
    return std::make_unique<CudaStream>(name, events_, abort_, delay_seed_);
  }

  void copy_from_host(Stream& stream, std::byte* to, const std::byte* from,
                      std::size_t size_bytes) override;
  void copy_to_host(Stream& stream, std::byte* to, const std::byte* from,
                    std::size_t size_bytes) override;

  void embed(Stream& stream, EmbedArgs args) override;
  void layer_norm(Stream& stream, LayerNormArgs args) override;
  void linear(Stream& stream, LinearArgs args) override;
  void widen(Stream& stream, WidenArgs args) override;
  [[nodiscard]] std::int64_t packed_product_rows() const override { return kPackedProductRows; }
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
  void release(std::byte* data, std::size_t size_bytes) noexcept override {
    arena_.release(data, size_bytes);
  }

 private:
  static CudaStream& of_cuda(Stream& stream) {
    auto* const here = dynamic_cast<CudaStream*>(&stream);
    STAGECOACH_CHECK(here != nullptr, "work for a GPU in a stream of the host");
    return *here;
  }

  void check_scratch(bool fits, const char* operation) const {
    STAGECOACH_CHECK(fits && operations_ != nullptr, "the reserved scratch is too small for {}",
                     operation);
  }
  void check_attention_scratch(const AttentionArgs& args) const;

  // Issues an operation with its arguments in the stream's turn.
  template <typename Args>
  void operate(Stream& stream, void (*operation)(Operation&, const Args&), Args args) {
    check_scratch(true, "any operation");
    auto& on = of_cuda(stream);
    on.issue([this, &on, operation, args = std::move(args)] {
      operations_->operate(on, [&](Operation& issued) { operation(issued, args); });
    });
  }

  const CudaDeviceInfo info_;
  const std::uint64_t delay_seed_;
  AbortSignal& abort_;
  const std::shared_ptr<EventPool> events_;
  const std::shared_ptr<PinnedRanges> pinned_ranges_;
  Arena arena_;
  ScratchShape shape_;
  Buffer scratch_;  // after the arena that it is from
  std::unique_ptr<Products> products_;
  std::unique_ptr<OperationMemory> operations_;
  std::unique_ptr<StagedCopies> staged_copies_;
};

void CudaDevice::reserve_scratch(const ScratchShape& shape) {
  const auto layout = OperationLayout::of(shape);
  use_device(info_.index);
  scratch_ = allocate(layout.device_bytes(), "scratch");
  products_ = std::make_unique<Products>();
  operations_ =
      std::make_unique<OperationMemory>(layout, scratch_.data(), info_.index, pinned_ranges_);
  staged_copies_ = std::make_unique<StagedCopies>(info_.index, pinned_ranges_);
  shape_ = shape;
}

std::vector<std::string> CudaDevice::notes() const {
  if (operations_ == nullptr || (operations_->pinned() && staged_copies_->pinned())) {
    return {};
  }
  return {name_of(info_.index) +
          ": the system refuses to pin memory; copies to and from the GPU are slower and do not "
          "run beside other work"};
}

void CudaDevice::copy_from_host(Stream& stream, std::byte* to, const std::byte* from,
                                std::size_t size_bytes) {
  auto& on = of_cuda(stream);
  STAGECOACH_CHECK(staged_copies_ != nullptr, "a copy before the scratch was reserved");
  on.issue([=, this, &on] {
    if (!pinned_ranges_->contain({from, size_bytes})) {
      staged_copies_->to_device(on, to, from, size_bytes);
    } else if (size_bytes > 0) {
      check_cuda(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, on.handle()),
                 "copy to the GPU (cudaMemcpyAsync)");
    }
  });
}

void CudaDevice::copy_to_host(Stream& stream, std::byte* to, const std::byte* from,
                              std::size_t size_bytes) {
  auto& on = of_cuda(stream);
  STAGECOACH_CHECK(staged_copies_ != nullptr, "a copy before the scratch was reserved");
  on.issue([=, this, &on] {
    if (!pinned_ranges_->contain({to, size_bytes})) {
      staged_copies_->to_host(on, to, from, size_bytes);
    } else if (size_bytes > 0) {
      check_cuda(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToHost, on.handle()),
                 "copy from the GPU (cudaMemcpyAsync)");
      on.writes_host_memory();
    }
  });
}

void CudaDevice::embed(Stream& stream, EmbedArgs args) {
  check_embed(args);
  operate(stream, cuda::embed, std::move(args));
}

void CudaDevice::layer_norm(Stream& stream, LayerNormArgs args) {
  STAGECOACH_CHECK(args.width > 0, "a norm over {} elements", args.width);
  operate(stream, cuda::layer_norm, args);
}

void CudaDevice::linear(Stream& stream, LinearArgs args) {
  check_linear(args);
  check_scratch(args.in_features <= shape_.max_in_features, "a product");
  if (args.rows == 0) {
    return;
  }
  auto& on = of_cuda(stream);
  on.issue([this, &on, args] {
    operations_->operate(on, [&](Operation& issued) { products_->linear(issued, args); });
  });
}

void CudaDevice::widen(Stream& stream, WidenArgs args) {
  check_widen(args);
  operate(stream, cuda::widen, args);
}

void CudaDevice::check_attention_scratch(const AttentionArgs& args) const {
  check_scratch(args.head_dim <= shape_.head_dim && args.page_tokens <= shape_.page_tokens &&
                    args.heads <= shape_.heads && args.kv_heads <= shape_.kv_heads,
                "attention");
  check_scratch(static_cast<std::int64_t>(args.sequences.size()) <= shape_.max_sequences,
                "attention of so many sequences");
  std::int64_t rows = 0;
  for (const auto& sequence : args.sequences) {
    rows += sequence.num_rows;
    check_scratch(static_cast<std::int64_t>(sequence.pages.size()) <= shape_.longest_pages,
                  "attention over so many pages");
    check_scratch(!sequence.sparse || sequence.first_position + std::int64_t{sequence.num_rows} <=
                                          shape_.sparse_tokens,
                  "sparse attention");
  }
  check_scratch(rows <= shape_.max_rows, "attention of so many rows");
}

void CudaDevice::store_kv(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_attention_scratch(args);
  operate(stream, cuda::store_kv, std::move(args));
}

void CudaDevice::attention(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_reach(args);
  check_attention_scratch(args);
  operate(stream, cuda::attention, std::move(args));
}

void CudaDevice::attention_partials(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_selected(args);
  check_attention_scratch(args);
  operate(stream, cuda::attention_partials, std::move(args));
}

void CudaDevice::attention_scores(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_attention_scratch(args);
  operate(stream, cuda::attention_scores, std::move(args));
}

void CudaDevice::select_top(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_selection(args);
  check_attention_scratch(args);
  operate(stream, cuda::select_top, std::move(args));
}

void CudaDevice::gather_values(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_gather(args);
  check_attention_scratch(args);
  operate(stream, cuda::gather_values, std::move(args));
}

void CudaDevice::scatter_values(Stream& stream, AttentionArgs args) {
  check_attention(args);
  check_attention_scratch(args);
  operate(stream, cuda::scatter_values, std::move(args));
}

void CudaDevice::gather_rows(Stream& stream, GatherRowsArgs args) {
  operate(stream, cuda::gather_rows, std::move(args));
}

void CudaDevice::sample(Stream& stream, SampleArgs args) {
  check_sample(args);
  check_scratch(args.vocab <= shape_.vocab, "sampling");
  operate(stream, cuda::sample, std::move(args));
}

}  // namespace
}  // namespace cuda

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options, AbortSignal& abort) {
  return std::make_unique<cuda::CudaDevice>(options, abort);
}

}  // namespace stagecoach::device
