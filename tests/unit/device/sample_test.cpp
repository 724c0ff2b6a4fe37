#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "support/scalar_reference.hpp"
#include "unit/device/device_cases.hpp"

namespace stagecoach::test {
namespace {

using device::Device;
using device::SampleArgs;
using device::SampleResult;
using device::SampleSpec;

std::vector<SampleResult> sample(const TestDevice& device, const std::vector<float>& logits,
                                 std::int64_t vocab, const std::vector<SampleSpec>& specs) {
  std::vector<SampleResult> results(specs.size());
  SampleArgs args;
  args.logits = logits.data();
  args.vocab = vocab;
  args.specs = specs;
  args.results = results;
  device.run(&Device::sample, std::move(args));
  return results;
}

std::int32_t draw(const TestDevice& device, const std::vector<float>& logits, SampleSpec spec) {
  return sample(device, logits, static_cast<std::int64_t>(logits.size()), {spec})[0].token;
}

SampleSpec drawn(double temperature, std::int32_t top_k, double top_p, double uniform) {
  SampleSpec spec;
  spec.temperature = temperature;
  spec.top_k = top_k;
  spec.top_p = top_p;
  spec.uniform = uniform;
  return spec;
}

// log(1..4): probabilities 0.1 .. 0.4, token 3 the most likely.
const std::vector<float> kTenths = {std::log(1.0f), std::log(2.0f), std::log(3.0f), std::log(4.0f)};

TEST(Sample, GreedyTakesTheLowestOfEquals) {
  for (const auto& device : equal_devices()) {
    for (const std::int64_t vocab : {1, 5, 16, 33, 2048}) {
      auto logits = random_floats(vocab, 3);
      EXPECT_EQ(draw(*device, logits, {}),
                std::max_element(logits.begin(), logits.end()) - logits.begin());
      logits.assign(logits.size(), -2.0f);
      EXPECT_EQ(draw(*device, logits, {}), 0);
      logits[static_cast<std::size_t>(vocab / 2)] = 5.0f;
      logits.back() = 5.0f;
      EXPECT_EQ(draw(*device, logits, {}), vocab == 1 ? 0 : vocab / 2);
    }
  }
}

TEST(Sample, InverseCdfInDescendingOrder) {
  const TestDevice device;
  const auto at = [&](double uniform) { return draw(device, kTenths, drawn(1, 0, 1, uniform)); };
  EXPECT_EQ(at(0.0), 3);
  EXPECT_EQ(at(0.39), 3);
  EXPECT_EQ(at(0.41), 2);
  EXPECT_EQ(at(0.69), 2);
  EXPECT_EQ(at(0.71), 1);
  EXPECT_EQ(at(0.89), 1);
  EXPECT_EQ(at(0.91), 0);
  EXPECT_EQ(at(std::nextafter(1.0, 0.0)), 0);
}

TEST(Sample, TemperatureSharpensAndFlattens) {
  const TestDevice device;
  // At temperature 1/2 the probabilities are 1, 4, 9, 16 of 30.
  EXPECT_EQ(draw(device, kTenths, drawn(0.5, 0, 1, 15.9 / 30)), 3);
  EXPECT_EQ(draw(device, kTenths, drawn(0.5, 0, 1, 16.1 / 30)), 2);
  EXPECT_EQ(draw(device, kTenths, drawn(0.5, 0, 1, 25.1 / 30)), 1);
  EXPECT_EQ(draw(device, kTenths, drawn(1e-9, 0, 1, 0.999999)), 3);
  EXPECT_EQ(draw(device, kTenths, drawn(1e9, 0, 1, 0.74)), 1);
}

TEST(Sample, TopKKeepsKAndTheLowerIdsAmongEquals) {
  const TestDevice device;
  EXPECT_EQ(draw(device, kTenths, drawn(1, 1, 1, 0.999)), 3);
  EXPECT_EQ(draw(device, kTenths, drawn(1, 2, 1, 4.01 / 7)), 2);
  EXPECT_EQ(draw(device, kTenths, drawn(1, 2, 1, 0.999)), 2);
  EXPECT_EQ(draw(device, kTenths, drawn(1, 100, 1, 0.95)), 0);
  const std::vector<float> equal(5, 1.0f);
  EXPECT_EQ(draw(device, equal, drawn(1, 3, 1, 0.999)), 2);
  EXPECT_EQ(draw(device, equal, drawn(1, 3, 1, 0.34)), 1);
}

TEST(Sample, TopPKeepsTheSmallestSetThatReachesP) {
  const TestDevice device;
  EXPECT_EQ(draw(device, kTenths, drawn(1, 0, 0.39, 0.999)), 3);
  EXPECT_EQ(draw(device, kTenths, drawn(1, 0, 0.41, 0.999)), 2);
  EXPECT_EQ(draw(device, kTenths, drawn(1, 0, 0.41, 4.0 / 7 - 0.01)), 3);  // renormalised
  EXPECT_EQ(draw(device, kTenths, drawn(1, 0, 0.91, 0.999)), 0);
  EXPECT_EQ(draw(device, kTenths, drawn(1, 0, 0.0, 0.999)), 3);  // never nothing
  // After top_k = 2 token 3 has 4/7 of what is left: top_p = 0.5 keeps it alone, although it has
  // only 0.4 of the whole.
  EXPECT_EQ(draw(device, kTenths, drawn(1, 2, 0.5, 0.999)), 3);
}

TEST(Sample, FollowsTheDistribution) {
  for (const auto& device : equal_devices()) {
    const std::int64_t vocab = 500;
    auto logits = random_floats(vocab, 17, 2.0f);
    logits[7] = -INFINITY;
    for (const auto& spec : {drawn(0.8, 0, 1, 0), drawn(1.5, 40, 1, 0), drawn(1, 0, 0.9, 0),
                             drawn(0.7, 90, 0.95, 0)}) {
      constexpr int kDraws = 4000;
      std::vector<SampleSpec> specs(kDraws, spec);
      for (int i = 0; i < kDraws; ++i) {
        specs[static_cast<std::size_t>(i)].uniform = (i + 0.5) / kDraws;
      }
      const auto expected = reference_probabilities(logits.data(), vocab, spec);
      std::vector<int> counts(static_cast<std::size_t>(vocab));
      for (const auto& result : sample(*device, logits, vocab, specs)) {
        ++counts[static_cast<std::size_t>(result.token)];
      }
      for (std::size_t i = 0; i < counts.size(); ++i) {
        // An evenly spaced uniform hits each interval to within one point at each end.
        ASSERT_NEAR(counts[i], expected[i] * kDraws, 1.01) << i;
      }
    }
  }
}

TEST(Sample, MatchesScalarReferenceOverAWholeVocabulary) {
  const std::int64_t vocab = 50272;
  const std::int64_t rows = 4;
  const auto logits = random_floats(vocab * rows, 23, 3.0f);
  std::vector<SampleSpec> specs;
  for (std::int32_t i = 0; i < 12; ++i) {
    auto spec = drawn(i % 3 == 0 ? 0 : 0.6 + 0.1 * i, i % 4 == 1 ? 1000 : 0,
                      i % 2 == 0 ? 1.0 : 0.93, (i * 37 % 100) / 100.0);
    spec.row = i % 4;
    spec.num_logprobs = i % 5 - 1;
    spec.target = i == 11 ? 4711 : -1;
    specs.push_back(spec);
  }
  std::vector<SampleResult> expected;
  for (const auto& spec : specs) {
    expected.push_back(reference_sample(logits.data() + spec.row * vocab, vocab, spec));
  }
  std::vector<SampleResult> first;
  for (const auto& device : equal_devices()) {
    const auto results = sample(*device, logits, vocab, specs);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(results[i].token, expected[i].token) << i;
      EXPECT_NEAR(results[i].logprob, expected[i].logprob, 2e-6) << i;
      EXPECT_EQ(results[i].top_tokens, expected[i].top_tokens) << i;
      EXPECT_THAT(results[i].top_logprobs,
                  testing::Pointwise(testing::FloatNear(2e-6f), expected[i].top_logprobs));
      if (!first.empty()) {
        EXPECT_EQ(results[i].logprob, first[i].logprob) << (*device)->description();
        EXPECT_EQ(results[i].top_logprobs, first[i].top_logprobs);
      }
    }
    first = results;
  }
}

TEST(Sample, LogprobsAreOfTheRawLogits) {
  const TestDevice device;
  auto spec = drawn(0.1, 1, 0.5, 0.3);
  spec.num_logprobs = 9;
  const auto result = sample(device, kTenths, 4, {spec})[0];
  EXPECT_EQ(result.token, 3);
  EXPECT_FLOAT_EQ(result.logprob, std::log(0.4f));
  EXPECT_THAT(result.top_tokens, testing::ElementsAre(3, 2, 1, 0));
  EXPECT_FLOAT_EQ(result.top_logprobs[3], std::log(0.1f));
}

TEST(Sample, ScoresATargetWithoutChoosing) {
  const TestDevice device;
  SampleSpec spec;
  spec.target = 1;
  spec.temperature = 1;
  spec.uniform = 0;
  spec.num_logprobs = 0;
  const auto result = sample(device, kTenths, 4, {spec})[0];
  EXPECT_EQ(result.token, 1);
  EXPECT_FLOAT_EQ(result.logprob, std::log(0.2f));
  EXPECT_TRUE(result.top_tokens.empty());
}

TEST(Sample, TiesAmongTopLogprobsGoToLowerIds) {
  const TestDevice device;
  std::vector<float> logits(300, 0.0f);
  logits[200] = 1.0f;
  SampleSpec spec;
  spec.num_logprobs = 4;
  EXPECT_THAT(sample(device, logits, 300, {spec})[0].top_tokens,
              testing::ElementsAre(200, 0, 1, 2));
}

TEST(Sample, LargeLogitsDoNotOverflow) {
  const TestDevice device;
  SampleSpec spec;
  spec.num_logprobs = 2;
  const auto result = sample(device, {3e38f, 3e38f, -3e38f}, 3, {spec})[0];
  EXPECT_FLOAT_EQ(result.logprob, std::log(0.5f));
  EXPECT_THAT(result.top_tokens, testing::ElementsAre(0, 1));
}

TEST(Sample, RefusesLogitsThatAreNotFinite) {
  for (const auto& [bad, word] :
       {std::pair{NAN, "NaN"}, std::pair{INFINITY, "infinity"}, std::pair{-INFINITY, "all"}}) {
    for (const std::size_t place : {0u, 20u, 32u}) {
      for (const auto& isa : isa_names()) {
        const TestDevice device(isa);
        std::vector<float> logits(2 * 33, std::isinf(bad) && bad < 0 ? bad : 1.0f);
        std::fill_n(logits.begin(), 33, 0.0f);
        logits[33 + place] = bad;
        SampleSpec spec;
        spec.row = 1;
        EXPECT_THROW(sample(device, logits, 33, {spec}), JobAborted);
        try {
          std::rethrow_exception(device.abort().cause());
        } catch (const Error& error) {
          EXPECT_THAT(error.what(),
                      testing::AllOf(testing::HasSubstr("row 1"), testing::HasSubstr(word)));
        }
      }
    }
  }
}

TEST(Sample, RefusesATargetOutsideTheVocabulary) {
  const TestDevice device;
  std::vector<SampleResult> results(1);
  SampleArgs args;
  args.logits = kTenths.data();
  args.vocab = 4;
  args.specs.resize(1);
  args.specs[0].target = 4;
  args.results = results;
  EXPECT_THROW(device->sample(device.stream(), std::move(args)), InternalError);
}

}  // namespace
}  // namespace stagecoach::test
