#include "cuda/cuda_jobs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace stagecoach::testing {
namespace {

using nlohmann::json;

/// How many tokens were compared.
std::size_t compare_tokens(const json& result, const json& expected, double near) {
  const auto tokens = result.at("token_ids").get<std::vector<int>>();
  const auto right = expected.at("token_ids").get<std::vector<int>>();
  EXPECT_EQ(tokens.size(), right.size());
  for (std::size_t i = 0; i < std::min(tokens.size(), right.size()); ++i) {
    const auto& scores = expected.at("logprobs")[i];
    if (tokens[i] != right[i]) {
      const auto& top = scores.at("top");
      EXPECT_LT(top[0].at("logprob").get<double>() - top[1].at("logprob").get<double>(), near)
          << "token " << i << " is " << tokens[i] << ", should be " << right[i];
      return i;
    }
    EXPECT_NEAR(result.at("logprobs")[i].at("logprob").get<double>(),
                scores.at("logprob").get<double>(), near)
        << "token " << i;
  }
  return right.size();
}

}  // namespace

std::string greedy_requests(int new_tokens) {
  const auto generation = tiny_opt_reference().at("generation");
  std::string lines;
  int id = 0;
  for (std::size_t i = 0; i < generation.size(); i += 2) {
    const auto& reference = generation[i];
    lines += json{{"id", id++},
                  {"prompt_token_ids", reference.at("prompt_token_ids")},
                  {"max_new_tokens", new_tokens},
                  {"ignore_eos", true}}
                 .dump() +
             "\n";
  }
  // Texts that the model knows, so that its choices are not near ties.
  for (const std::size_t length : {17, 60, 150}) {
    std::vector<int> tokens;
    for (const auto& reference : generation) {
      for (const char* part : {"prompt_token_ids", "greedy_token_ids"}) {
        for (const auto& token : reference.at(part)) {
          if (tokens.size() < length) {
            tokens.push_back(token.get<int>());
          }
        }
      }
    }
    lines += json{{"id", id++},
                  {"prompt_token_ids", tokens},
                  {"max_new_tokens", new_tokens + id % 3},
                  {"ignore_eos", true}}
                 .dump() +
             "\n";
  }
  return lines;
}

void expect_same_greedy_tokens(const Results& results, const Results& expected, double near,
                               double share) {
  ASSERT_EQ(results.size(), expected.size());
  std::size_t compared = 0;
  std::size_t all = 0;
  for (const auto& [id, line] : expected) {
    SCOPED_TRACE("request " + id);
    const auto right = json::parse(line);
    compared += compare_tokens(json::parse(results.at(id)), right, near);
    all += right.at("token_ids").size();
  }
  EXPECT_GE(static_cast<double>(compared), share * static_cast<double>(all));
}

}  // namespace stagecoach::testing
