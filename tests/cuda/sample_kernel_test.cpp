#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "cuda/cuda_case.hpp"
#include "support/scalar_reference.hpp"
#include "unit/device/device_cases.hpp"

namespace stagecoach::test {
namespace {

using device::Device;
using device::SampleArgs;
using device::SampleResult;
using device::SampleSpec;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// All specs of one matrix of logits, as many at once as a GPU batch has.
std::vector<SampleResult> sample(CudaCase& cuda, const std::vector<float>& logits,
                                 std::int64_t vocab, const std::vector<SampleSpec>& specs) {
  const float* const on_device = cuda.put(logits);
  std::vector<SampleResult> results(specs.size());
  const auto most = at(CudaCase::kShape.max_rows);
  for (std::size_t first = 0; first < specs.size(); first += most) {
    const auto count = std::min(most, specs.size() - first);
    const auto begin = specs.begin() + static_cast<std::ptrdiff_t>(first);
    SampleArgs args;
    args.logits = on_device;
    args.vocab = vocab;
    args.specs = {begin, begin + static_cast<std::ptrdiff_t>(count)};
    args.results = std::span(results).subspan(first, count);
    cuda.run(&Device::sample, std::move(args));
  }
  return results;
}

std::vector<SampleResult> sample_on_host(const std::vector<float>& logits, std::int64_t vocab,
                                         const std::vector<SampleSpec>& specs) {
  const TestDevice host;
  std::vector<SampleResult> results(specs.size());
  SampleArgs args;
  args.logits = logits.data();
  args.vocab = vocab;
  args.specs = specs;
  args.results = results;
  host.run(&Device::sample, std::move(args));
  return results;
}

SampleSpec drawn(double temperature, std::int32_t top_k, double top_p, double uniform) {
  SampleSpec spec;
  spec.temperature = temperature;
  spec.top_k = top_k;
  spec.top_p = top_p;
  spec.uniform = uniform;
  return spec;
}

// Weights are whole numbers of a 2^46th (vocabularies below 2^16), and sums of f64 are rounded too:
// this far from a boundary of the distribution a draw must be the reference's.
constexpr double kBoundary = 1e-9;

/// Whether `token` is the reference's, or lies between those that it draws within kBoundary of the
/// spec: with a larger uniform or top_p it draws the same token or a less likely one.
bool is_draw_of(const float* logits, std::int64_t vocab, const SampleSpec& spec,
                std::int32_t token) {
  if (reference_sample(logits, vocab, spec).token == token) {
    return true;
  }
  const auto drawn_at = [&](double distance) {
    auto moved = spec;
    moved.uniform += distance;
    moved.top_p += spec.top_p < 1 ? distance : 0.0;
    return reference_sample(logits, vocab, moved).token;
  };
  const auto comes_first = [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a <= b;
  };
  return comes_first(drawn_at(-kBoundary), token) && comes_first(token, drawn_at(kBoundary));
}

bool near(float a, float b) { return a == b || std::abs(a - b) <= 2e-6f * (1 + std::abs(b)); }

void expect_logprobs(const SampleResult& result, const SampleResult& expected,
                     const std::string& what) {
  EXPECT_EQ(result.top_tokens, expected.top_tokens) << what;
  ASSERT_EQ(result.top_logprobs.size(), expected.top_logprobs.size()) << what;
  for (std::size_t i = 0; i < result.top_logprobs.size(); ++i) {
    EXPECT_TRUE(near(result.top_logprobs[i], expected.top_logprobs[i]))
        << what << ": " << result.top_logprobs[i] << ", not " << expected.top_logprobs[i];
  }
}

/// By the reference, and by the host device.
void check_samples(CudaCase& cuda, const std::vector<float>& logits, std::int64_t vocab,
                   const std::vector<SampleSpec>& specs, const std::string& kind) {
  const auto results = sample(cuda, logits, vocab, specs);
  const auto of_host = sample_on_host(logits, vocab, specs);
  std::size_t unlike_host = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto& spec = specs[i];
    const auto what =
        fmt::format("{}, vocabulary {}, spec {}: temperature {}, top_k {}, top_p {}, uniform {}",
                    kind, vocab, i, spec.temperature, spec.top_k, spec.top_p, spec.uniform);
    const float* const row = logits.data() + spec.row * vocab;
    // At the upper end there are tokens of less than a whole weight.
    const bool inside = spec.uniform < 1 - kBoundary;
    unlike_host += inside && results[i].token != of_host[i].token ? 1 : 0;
    ASSERT_TRUE(is_draw_of(row, vocab, spec, results[i].token)) << what << ": " << results[i].token;
    // The token is right, so its logprob is what scoring it gives.
    auto scored = spec;
    scored.target = results[i].token;
    const auto expected = reference_sample(row, vocab, scored);
    if (spec.num_logprobs < 0) {
      EXPECT_EQ(results[i].logprob, 0.0f);
    } else if (results[i].token == of_host[i].token) {
      EXPECT_TRUE(near(results[i].logprob, of_host[i].logprob)) << what;
    }
    EXPECT_TRUE(spec.num_logprobs < 0 || std::isinf(expected.logprob) ||
                near(results[i].logprob, expected.logprob))
        << what;
    expect_logprobs(results[i], of_host[i], what);
  }
  EXPECT_EQ(unlike_host, 0u) << kind << ", vocabulary " << vocab;
}

enum class Kind { normal, ties, equal, extremes };

std::vector<float> logits_of(Kind kind, std::int64_t count, unsigned seed) {
  auto logits = random_floats(count, seed, 3.0f);
  std::mt19937 generator(seed);
  constexpr float kExtremes[] = {3e38f,     -3e38f,  0.0f,  -0.0f,    1e-40f, -1e-40f,
                                 -INFINITY, 2.5e38f, 88.0f, -1000.0f, 1.0f};
  for (auto& logit : logits) {
    if (kind == Kind::ties) {
      logit = std::round(logit);  // of both zeros
    } else if (kind == Kind::equal) {
      logit = 2.0f;
    } else if (kind == Kind::extremes) {
      logit = kExtremes[generator() % std::size(kExtremes)];
    }
  }
  if (kind == Kind::extremes) {
    for (std::int64_t i = 0; i < count; i += 3) {
      logits[at(i)] = static_cast<float>(i % 7) / 100;
    }
  }
  return logits;
}

SampleSpec random_spec(std::mt19937& generator, std::int64_t vocab, std::int64_t rows) {
  const auto one_of = [&](auto... values) {
    const double all[] = {static_cast<double>(values)...};
    return all[generator() % std::size(all)];
  };
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  auto spec = drawn(
      one_of(0.0, 0.7, 1.0, 1.3, 0.05, 1e-9, 1e-300, 1e9, 5.0),
      static_cast<std::int32_t>(one_of(0, 0, 1, 2, 40, vocab - 1, vocab, vocab + 5, 1 + vocab / 3)),
      one_of(1.0, 1.0, 0.9, 0.5, 0.999999, 1e-12, 0.0, uniform(generator)),
      one_of(0.0, std::nextafter(1.0, 0.0), uniform(generator), uniform(generator),
             uniform(generator)));
  spec.top_k = std::max(spec.top_k, 0);
  spec.row = static_cast<std::int32_t>(generator() % static_cast<unsigned>(rows));
  spec.num_logprobs = static_cast<std::int32_t>(one_of(-1, -1, 0, 1, 5, 20));
  if (generator() % 8 == 0) {
    spec.target = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocab));
  }
  return spec;
}

TEST(CudaSample, RandomSpecsAgreeWithReferenceAndHost) {
  CudaCase cuda;
  std::mt19937 generator(11);
  for (const auto& [vocab, count] : {std::pair{1, 60}, {2, 300}, {37, 400}, {1000, 400}}) {
    for (const auto& [kind, name] :
         {std::pair{Kind::normal, "normal"}, std::pair{Kind::ties, "ties"},
          std::pair{Kind::equal, "equal"}, std::pair{Kind::extremes, "extremes"}}) {
      constexpr std::int64_t kRows = 6;
      const auto logits = logits_of(kind, kRows * vocab, static_cast<unsigned>(generator()));
      std::vector<SampleSpec> specs;
      for (int i = 0; i < count; ++i) {
        specs.push_back(random_spec(generator, vocab, kRows));
      }
      check_samples(cuda, logits, vocab, specs, name);
    }
  }
}

TEST(CudaSample, WholeVocabulary) {
  CudaCase cuda;
  std::mt19937 generator(12);
  constexpr std::int64_t kVocab = 50272;
  for (const auto kind : {Kind::normal, Kind::ties}) {
    const auto logits = logits_of(kind, 3 * kVocab, static_cast<unsigned>(generator()));
    std::vector<SampleSpec> specs;
    for (int i = 0; i < 24; ++i) {
      specs.push_back(random_spec(generator, kVocab, 3));
    }
    check_samples(cuda, logits, kVocab, specs, "whole vocabulary");
  }
}

TEST(CudaSample, GreedyTakesTheLowestOfEquals) {
  CudaCase cuda;
  const std::vector<SampleSpec> greedy(1);
  for (const std::int64_t vocab : {1, 5, 33, 513, 2048}) {
    std::vector<float> logits(at(vocab), -2.0f);
    EXPECT_EQ(sample(cuda, logits, vocab, greedy)[0].token, 0);
    logits[at(vocab / 2)] = 5.0f;
    logits.back() = 5.0f;
    EXPECT_EQ(sample(cuda, logits, vocab, greedy)[0].token, vocab == 1 ? 0 : vocab / 2);
  }
  EXPECT_EQ(sample(cuda, {-1.0f, -0.0f, 0.0f}, 3, greedy)[0].token, 1);  // zeros are equal
}

// log(1..4): probabilities 0.1 .. 0.4, token 3 the most likely.
const std::vector<float> kTenths = {std::log(1.0f), std::log(2.0f), std::log(3.0f), std::log(4.0f)};

TEST(CudaSample, TokensByTheirDefinition) {
  CudaCase cuda;
  const std::vector<std::pair<SampleSpec, std::int32_t>> cases = {
      {drawn(1, 0, 1, 0.0), 3},         {drawn(1, 0, 1, 0.39), 3},
      {drawn(1, 0, 1, 0.41), 2},        {drawn(1, 0, 1, 0.71), 1},
      {drawn(1, 0, 1, 0.91), 0},        {drawn(1, 0, 1, std::nextafter(1.0, 0.0)), 0},
      {drawn(0.5, 0, 1, 15.9 / 30), 3}, {drawn(0.5, 0, 1, 16.1 / 30), 2},
      {drawn(1e-9, 0, 1, 0.999999), 3}, {drawn(1e9, 0, 1, 0.74), 1},
      {drawn(1, 2, 1, 4.01 / 7), 2},    {drawn(1, 2, 1, 0.999), 2},
      {drawn(1, 100, 1, 0.95), 0},      {drawn(1, 0, 0.39, 0.999), 3},
      {drawn(1, 0, 0.41, 0.999), 2},    {drawn(1, 0, 0.41, 4.0 / 7 - 0.01), 3},
      {drawn(1, 0, 0.0, 0.999), 3},     {drawn(1, 2, 0.5, 0.999), 3},
  };
  std::vector<SampleSpec> specs;
  for (const auto& [spec, token] : cases) {
    specs.push_back(spec);
  }
  const auto results = sample(cuda, kTenths, 4, specs);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(results[i].token, cases[i].second) << i;
  }
}

TEST(CudaSample, LogprobsAreOfTheRawLogits) {
  CudaCase cuda;
  auto spec = drawn(0.1, 1, 0.5, 0.3);
  spec.num_logprobs = 9;
  auto scored = spec;
  scored.target = 1;
  scored.num_logprobs = 0;
  const auto results = sample(cuda, kTenths, 4, {spec, scored});
  EXPECT_EQ(results[0].token, 3);
  EXPECT_FLOAT_EQ(results[0].logprob, std::log(0.4f));
  EXPECT_THAT(results[0].top_tokens, testing::ElementsAre(3, 2, 1, 0));
  EXPECT_FLOAT_EQ(results[0].top_logprobs[3], std::log(0.1f));
  EXPECT_EQ(results[1].token, 1);
  EXPECT_FLOAT_EQ(results[1].logprob, std::log(0.2f));
  EXPECT_TRUE(results[1].top_tokens.empty());
}

TEST(CudaSample, FollowsTheDistribution) {
  CudaCase cuda;
  const std::int64_t vocab = 300;
  auto logits = random_floats(vocab, 17, 2.0f);
  logits[7] = -INFINITY;
  for (const auto& spec :
       {drawn(0.8, 0, 1, 0), drawn(1.5, 40, 1, 0), drawn(1, 0, 0.9, 0), drawn(0.7, 90, 0.95, 0)}) {
    constexpr int kDraws = 1000;
    std::vector<SampleSpec> specs(kDraws, spec);
    for (int i = 0; i < kDraws; ++i) {
      specs[at(i)].uniform = (i + 0.5) / kDraws;
    }
    const auto expected = reference_probabilities(logits.data(), vocab, spec);
    std::vector<int> counts(at(vocab));
    for (const auto& result : sample(cuda, logits, vocab, specs)) {
      ++counts[at(result.token)];
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
      // An evenly spaced uniform hits each interval to within one point at each end.
      ASSERT_NEAR(counts[i], expected[i] * kDraws, 1.01) << i;
    }
  }
}

TEST(CudaSample, AThousandLogprobsOfEachRow) {
  CudaCase cuda;
  const std::int64_t vocab = 1500;
  const auto logits = logits_of(Kind::ties, 2 * vocab, 5);
  std::vector<SampleSpec> specs(at(CudaCase::kShape.max_rows));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    specs[i].row = static_cast<std::int32_t>(i % 2);
    specs[i].num_logprobs = i % 100 < 2 ? 1000 : 3;
  }
  const auto results = sample(cuda, logits, vocab, specs);
  const auto expected = sample_on_host(logits, vocab, specs);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    expect_logprobs(results[i], expected[i], fmt::format("spec {}", i));
  }
}

TEST(CudaSample, NothingToSample) {
  CudaCase cuda;
  EXPECT_TRUE(sample(cuda, kTenths, 4, {}).empty());
}

TEST(CudaSample, RefusesLogitsThatAreNotFinite) {
  for (const auto& [bad, word] :
       {std::pair{NAN, "(NaN)"}, std::pair{-NAN, "(NaN)"}, std::pair{INFINITY, "(infinity)"},
        std::pair{-INFINITY, "(all -infinity)"}}) {
    for (const std::size_t place : {0u, 20u, 32u}) {
      CudaCase cuda;
      std::vector<float> logits(2 * 33, std::isinf(bad) && bad < 0 ? bad : 1.0f);
      std::fill_n(logits.begin(), 33, 0.0f);
      logits[33 + place] = bad;
      SampleSpec spec;
      spec.row = 1;
      EXPECT_THROW(sample(cuda, logits, 33, {spec}), JobAborted);
      ASSERT_TRUE(cuda.abort().raised());
      try {
        std::rethrow_exception(cuda.abort().cause());
      } catch (const Error& error) {
        EXPECT_THAT(error.what(),
                    testing::AllOf(testing::HasSubstr("row 1 "), testing::HasSubstr(word)));
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::test
