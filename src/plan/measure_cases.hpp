#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/measure_kit.hpp"
#include "plan/node_profile.hpp"

namespace stagecoach::plan {

/// Bytes of MeasureKit::work().
std::size_t work_bytes(const MeasureSizes& sizes);
/// Rows of the largest product of this width: its activations are kept within bounds.
std::int64_t most_product_rows(const MeasureSizes& sizes, std::int64_t width);

/// The mean of those links (from each rank to the next, from the last to the first) that go from
/// `host` to itself, or to others; none if there is no such one. `hosts`: by rank.
std::optional<LinkRates> mean_link(const std::vector<LinkRates>& links,
                                   const std::vector<std::string>& hosts, const std::string& host,
                                   bool local);

/// Each measures one part of a machine, together with all other ranks, and enters it.
void measure_memory(MeasureKit& kit, NodeProfile& profile);     ///< DRAM; keeps what is more
void measure_products(MeasureKit& kit, NodeProfile& profile);   ///< and widening
void measure_attention(MeasureKit& kit, NodeProfile& profile);  ///< and storing
void measure_rows(MeasureKit& kit, NodeProfile& profile);       ///< norms, sampling
void measure_copies(MeasureKit& kit, NodeProfile& profile);
void measure_disk(MeasureKit& kit, NodeProfile& profile);  ///< nothing without one
void measure_steps(MeasureKit& kit, NodeProfile& profile);
void measure_links(MeasureKit& kit, NodeProfile& profile);

}  // namespace stagecoach::plan
