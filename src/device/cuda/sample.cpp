#include "device/cuda/sample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "device/argument_checks.hpp"
#include "device/cuda/sample_kernels.hpp"

namespace stagecoach::device::cuda {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kOperationAlignment - 1) / kOperationAlignment * kOperationAlignment;
}

/// The specs for the kernel, and how many tokens it will list for all of them.
struct Request {
  std::vector<RowToSample> rows{};
  std::int64_t num_listed = 0;
};

Request request_of(const SampleArgs& args) {
  Request request;
  for (const auto& spec : args.specs) {
    const auto listed =
        std::min<std::int64_t>(std::max<std::int64_t>(spec.num_logprobs, 0), args.vocab);
    STAGECOACH_CHECK(listed <= kMostListed, "{} logprobs of one token: at most {}", listed,
                     kMostListed);
    request.rows.push_back({.row = spec.row,
                            .temperature = spec.temperature,
                            .top_p = spec.top_p,
                            .uniform = spec.uniform,
                            .target = spec.target,
                            .top_k = spec.top_k > 0 && spec.top_k < args.vocab ? spec.top_k : 0,
                            .wants_sum = spec.num_logprobs >= 0 ? 1 : 0,
                            .num_listed = static_cast<std::int32_t>(listed),
                            .first_listed = request.num_listed});
    request.num_listed += listed;
  }
  return request;
}

SampleResult result_of(const RowToSample& row, const SampledRow& sampled,
                       std::span<ListedToken> listed) {
  check_logits(static_cast<std::int32_t>(row.row), std::isnan(sampled.largest), sampled.largest);
  SampleResult result;
  result.token = sampled.token;
  if (row.wants_sum == 0) {
    return result;
  }
  const double largest = sampled.largest;
  const double log_sum = std::log(sampled.sum_exp);
  const auto logprob = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - largest) - log_sum);
  };
  result.logprob = logprob(sampled.logit);
  std::sort(listed.begin(), listed.end(), [](const ListedToken& a, const ListedToken& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
  for (const auto& token : listed) {
    result.top_tokens.push_back(token.token);
    result.top_logprobs.push_back(logprob(token.logit));
  }
  return result;
}

/// `bytes`: a SampledRow a spec, aligned, then the lists.
void read_results(const Request& request, const std::byte* bytes, std::span<SampleResult> results) {
  std::vector<SampledRow> sampled(request.rows.size());
  std::vector<ListedToken> listed(static_cast<std::size_t>(request.num_listed));
  const auto lists_at = aligned(sampled.size() * sizeof(SampledRow));
  std::memcpy(sampled.data(), bytes, sampled.size() * sizeof(SampledRow));
  if (!listed.empty()) {
    std::memcpy(listed.data(), bytes + lists_at, listed.size() * sizeof(ListedToken));
  }
  for (std::size_t i = 0; i < sampled.size(); ++i) {
    const auto& row = request.rows[i];
    results[i] = result_of(row, sampled[i],
                           std::span(listed).subspan(static_cast<std::size_t>(row.first_listed),
                                                     static_cast<std::size_t>(row.num_listed)));
  }
}

}  // namespace

void sample(Operation& operation, const SampleArgs& args) {
  if (args.specs.empty()) {
    return;
  }
  auto request = request_of(args);
  std::byte* const scratch = operation.scratch();
  const auto lists_at = aligned(request.rows.size() * sizeof(SampledRow));
  launch_sample(operation.stream(),
                {.logits = args.logits,
                 .vocab = args.vocab,
                 .specs = operation.upload(std::span<const RowToSample>(request.rows)),
                 .count = static_cast<std::int64_t>(request.rows.size()),
                 .sampled = reinterpret_cast<SampledRow*>(scratch),
                 .listed = reinterpret_cast<ListedToken*>(scratch + lists_at)});
  const auto size = lists_at + static_cast<std::size_t>(request.num_listed) * sizeof(ListedToken);
  operation.download(scratch, size,
                     [request = std::move(request), results = args.results](
                         const std::byte* bytes) { read_results(request, bytes, results); });
}

}  // namespace stagecoach::device::cuda
