#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/half.hpp"
#include "base/packing.hpp"

namespace stagecoach::model {

/// Packs whole rows of `columns` numbers one after the other, several threads at once. `out` holds
/// as many packed rows. Returns how many of their groups are NaN throughout.
std::int64_t pack_rows(const PackFormat& format, std::span<const Half> values, std::int64_t columns,
                       std::span<std::byte> out, int threads);

}  // namespace stagecoach::model
