#pragma once

#include <functional>
#include <map>
#include <string>

#include "e2e/tiny_opt.hpp"
#include "job/run_rank.hpp"

namespace stagecoach::testing {

using Results = std::map<std::string, std::string>;

/// Some of the reference's prompts and a few long ones, all greedy: `new_tokens` each. One JSON
/// line each.
std::string greedy_requests(int new_tokens);

/// Expects the tokens of `results` to be those of `expected`, and their logprobs within `near`.
/// Where the logprobs of the two most likely tokens were that near each other, another may come,
/// and the request's later tokens are another text. Nine tenths of all tokens must have been
/// compared.
void expect_same_greedy_tokens(const Results& results, const Results& expected, double near = 0.03,
                               double share = 0.9);

}  // namespace stagecoach::testing
