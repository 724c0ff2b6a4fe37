#pragma once

#include <cstdint>
#include <string_view>

namespace stagecoach::model {

/// How a sequence's next token is chosen. Plain data; goes over the wire between stages.
struct SamplingParams {
  double temperature = 0;  ///< 0 = greedy
  std::int32_t top_k = 0;  ///< 0 = off
  double top_p = 1;        ///< 1 = off
  std::uint64_t key = 0;   ///< from `sampling_key`
};

/// Mixes the seed and the request's id: what else runs, and where, does not matter.
std::uint64_t sampling_key(std::uint64_t seed, std::string_view request_id);

/// Uniform in [0, 1), a pure function of the key and the position of the token to be chosen.
double uniform_at(std::uint64_t key, std::int64_t position);

}  // namespace stagecoach::model
