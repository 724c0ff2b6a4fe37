#pragma once

#include <cstdint>

namespace stagecoach::device::cuda {

/// Most rows of a product that reads packed weights as they lie; one with more is done in pieces of
/// this. Device::packed_product_rows of a GPU, for those too that only speak of one.
inline constexpr std::int64_t kPackedProductRows = 8;

}  // namespace stagecoach::device::cuda
