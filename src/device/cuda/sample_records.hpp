#pragma once

#include <cstdint>

namespace stagecoach::device::cuda {

/// A SampleSpec as the kernel takes it.
struct RowToSample {
  std::int64_t row;  ///< of the logits
  double temperature;
  double top_p;
  double uniform;
  std::int32_t target;      ///< < 0: none
  std::int32_t top_k;       ///< 0: off; less than the vocabulary
  std::int32_t wants_sum;   ///< 0: no sum of exponentials
  std::int32_t num_listed;  ///< of the most likely tokens; at most the vocabulary
  std::int64_t first_listed;
};

/// What comes of it. Where the largest logit is not finite, that alone.
struct SampledRow {
  double sum_exp;  ///< of e^(logit - largest) over the row
  float largest;   ///< NaN if there is one
  std::int32_t token;
  float logit;  ///< the token's
  std::int32_t padding;
};

/// One of a row's most likely tokens, which come in no order.
struct ListedToken {
  std::int32_t token;
  float logit;
};

}  // namespace stagecoach::device::cuda
