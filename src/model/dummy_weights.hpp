#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/half.hpp"
#include "model/spec.hpp"

namespace stagecoach::model {

/// Writes elements [first_element, first_element + out.size()) of a dummy tensor: a pure function
/// of (seed, group, tensor name, element number), so that any split into stages, pieces or threads
/// gives the same bytes. Norm weights are 1, biases and norm biases small, matrices uniform in
/// +-0.035 (standard deviation 0.02, the OPT initialisation).
void fill_dummy(std::uint64_t seed, const std::string& group, const TensorSpec& tensor,
                std::int64_t first_element, std::span<Half> out);

}  // namespace stagecoach::model
