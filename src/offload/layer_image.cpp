#include "offload/layer_image.hpp"

#include <algorithm>
#include <cmath>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"

namespace stagecoach::offload {
namespace {

/// Bytes that stay together: a row of a matrix, a whole vector.
std::size_t row_bytes(const model::TensorSpec& tensor) {
  return static_cast<std::size_t>(tensor.row_bytes());
}

std::size_t padded_bytes(const model::TensorSpec& tensor) {
  return round_up(static_cast<std::size_t>(tensor.size_bytes()), kPageBytes);
}

/// The image offset before which about `wanted` tensor bytes lie, a multiple of `step(part)` into a
/// tensor.
template <typename Step>
std::size_t offset_of(const LayerImage& image, double wanted, Step step) {
  double before = 0;
  for (const auto& part : image.parts()) {
    const auto size = static_cast<double>(part.tensor.size_bytes());
    if (wanted < before + size) {
      const auto unit = step(part);
      const auto inside =
          static_cast<std::size_t>(std::llround((wanted - before) / static_cast<double>(unit))) *
          unit;
      return part.offset_bytes + (inside < static_cast<std::size_t>(part.tensor.size_bytes())
                                      ? inside
                                      : padded_bytes(part.tensor));
    }
    before += size;
  }
  return image.size_bytes();
}

}  // namespace

LayerImage::LayerImage(const std::vector<model::TensorSpec>& tensors) {
  for (const auto& tensor : tensors) {
    parts_.push_back({tensor, size_bytes_});
    size_bytes_ += padded_bytes(tensor);
    tensor_bytes_ += static_cast<std::size_t>(tensor.size_bytes());
  }
}

const LayerImage::Part& LayerImage::part(const std::string& name) const {
  const auto found = std::find_if(parts_.begin(), parts_.end(),
                                  [&](const Part& part) { return part.tensor.name == name; });
  STAGECOACH_CHECK(found != parts_.end(), "no tensor {}", name);
  return *found;
}

std::size_t LayerImage::tensor_bytes_before(std::size_t offset) const {
  std::size_t before = 0;
  for (const auto& part : parts_) {
    if (offset > part.offset_bytes) {
      before +=
          std::min(offset - part.offset_bytes, static_cast<std::size_t>(part.tensor.size_bytes()));
    }
  }
  return before;
}

WeightCut cut_by_shares(const LayerImage& image, const TierShares& shares) {
  const auto total = static_cast<double>(image.tensor_bytes());
  WeightCut cut;
  cut.device_end = offset_of(image, shares.device * total,
                             [](const auto& part) { return row_bytes(part.tensor); });
  cut.stream_begin = cut.device_end / kPageBytes * kPageBytes;
  if (shares.disk() * total < 1) {
    cut.cpu_end = image.size_bytes();
  } else if (shares.cpu * total < 1) {
    cut.cpu_end = cut.stream_begin;
  } else {
    cut.cpu_end =
        std::max(cut.stream_begin, offset_of(image, (shares.device + shares.cpu) * total,
                                             [](const auto&) { return std::size_t{kPageBytes}; }));
  }
  return cut;
}

}  // namespace stagecoach::offload
