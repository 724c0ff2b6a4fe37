#pragma once

#include <cstdint>
#include <vector>

#include "device/device.hpp"

namespace stagecoach::test {

// What each device operation should compute, by plain loops in double: slow, obvious, and shared by
// the tests of all devices. Every pointer in the arguments must be one that the host can read.

/// A sum and the sum of the magnitudes of its terms, which bounds its rounding error.
struct Sum {
  double value = 0;
  double magnitude = 0;
};

/// [rows, out_features]; for add_to_out from what `args.out` holds now.
std::vector<Sum> reference_linear(const device::LinearArgs& args);

/// [rows, width].
std::vector<double> reference_layer_norm(const device::LayerNormArgs& args);

/// [tokens, width].
std::vector<double> reference_embed(const device::EmbedArgs& args);

/// [rows, heads * head_dim] from the pages' contents, rows counted over the whole batch; rows of no
/// sequence are 0.
std::vector<double> reference_attention(const device::AttentionArgs& args);

/// One page's partial result for one sequence, [num_rows, heads, head_dim + 2]; NaN for rows that
/// do not see the page. Sparse rows need all their pages.
std::vector<double> reference_attention_partial(const device::AttentionArgs& args,
                                                const device::SequenceRows& sequence,
                                                std::int64_t page);

/// The same tokens and logprobs from a full sort. Results near a boundary of the cumulative
/// distribution may rightly differ from a device's.
device::SampleResult reference_sample(const float* logits, std::int64_t vocab,
                                      const device::SampleSpec& spec);

/// Probability of each token after temperature, top_k and top_p.
std::vector<double> reference_probabilities(const float* logits, std::int64_t vocab,
                                            const device::SampleSpec& spec);

}  // namespace stagecoach::test
