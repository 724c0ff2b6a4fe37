#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/spec.hpp"
#include "offload/tier.hpp"

namespace stagecoach::offload {

/// Bytes [begin, end) of an image.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end > begin ? end - begin : 0; }
  [[nodiscard]] bool empty() const { return end <= begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// The tensors of one layer one after the other, each from a page boundary on: how a layer lies in
/// memory, and (but for gaps between tensors) in the store.
class LayerImage {
 public:
  struct Part {
    model::TensorSpec tensor;
    std::size_t offset_bytes = 0;
  };

  LayerImage() = default;
  explicit LayerImage(const std::vector<model::TensorSpec>& tensors);

  [[nodiscard]] const std::vector<Part>& parts() const noexcept { return parts_; }
  /// InternalError if there is no such tensor.
  [[nodiscard]] const Part& part(const std::string& name) const;
  /// With the padding after the last tensor.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  /// Without padding.
  [[nodiscard]] std::size_t tensor_bytes() const noexcept { return tensor_bytes_; }
  /// Tensor bytes (without padding) before `offset`.
  [[nodiscard]] std::size_t tensor_bytes_before(std::size_t offset) const;

 private:
  std::vector<Part> parts_;
  std::size_t size_bytes_ = 0;
  std::size_t tensor_bytes_ = 0;
};

/// Which bytes of a layer live where: [0, device_end) on the device, [stream_begin, cpu_end) in
/// DRAM, [cpu_end, size) on disk. The first cut is between two rows of a tensor; the others are at
/// page boundaries, `stream_begin` the one at or before `device_end`.
struct WeightCut {
  std::size_t device_end = 0;
  std::size_t stream_begin = 0;
  std::size_t cpu_end = 0;
};

/// The cut whose parts are nearest to the shares of the layer's tensor bytes: off by at most half a
/// row of one matrix on the device and half a page on the others.
WeightCut cut_by_shares(const LayerImage& image, const TierShares& shares);

}  // namespace stagecoach::offload
