#include "device/host/sample.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "device/argument_checks.hpp"

namespace stagecoach::device {
namespace {

/// Token ids of one row from the most to the least likely, sorted only as far as they are asked
/// for.
class Ranking {
 public:
  Ranking(std::span<std::int32_t> ids, const float* logits) : ids_(ids), logits_(logits) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  std::int32_t operator[](std::size_t rank) {
    if (rank >= sorted_) {
      sort_to(std::max(rank + 1, std::max<std::size_t>(64, sorted_ * 4)));
    }
    return ids_[rank];
  }

 private:
  void sort_to(std::size_t count) {
    const auto before = [this](std::int32_t a, std::int32_t b) {
      return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
    };
    count = std::min(count, ids_.size());
    const auto from = ids_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    const auto to = ids_.begin() + static_cast<std::ptrdiff_t>(count);
    if (count < ids_.size() / 16) {
      std::partial_sort(from, to, ids_.end(), before);  // one pass with a small heap
    } else {
      if (to != ids_.end()) {
        std::nth_element(from, to, ids_.end(), before);
      }
      std::sort(from, to, before);
    }
    sorted_ = count;
  }

  std::span<std::int32_t> ids_;
  const float* logits_;
  std::size_t sorted_ = 0;
};

struct Row {
  const float* logits;
  std::size_t vocab;
  LogitSummary summary;

  // Of e^(logit / temperature), relative to the most likely token's.
  [[nodiscard]] double weight(std::int32_t token, double temperature) const {
    return std::exp((static_cast<double>(logits[token]) - static_cast<double>(summary.max)) /
                    temperature);
  }
};

// How many of the `limit` most likely tokens top_p keeps, and their total weight. A token stays
// while those before it have less than top_p of the probability (Hugging Face's TopPLogitsWarper).
struct Kept {
  std::size_t count;
  double weight;
};

Kept keep_top_p(const Row& row, const SampleSpec& spec, Ranking& ranking, std::size_t limit,
                double total) {
  const double enough = spec.top_p * total;
  Kept kept{0, 0};
  while (kept.count < limit && (kept.count == 0 || kept.weight < enough)) {
    kept.weight += row.weight(ranking[kept.count], spec.temperature);
    ++kept.count;
  }
  return kept;
}

double total_of_first(const Row& row, const SampleSpec& spec, Ranking& ranking, std::size_t count) {
  double total = 0;
  for (std::size_t rank = 0; rank < count; ++rank) {
    total += row.weight(ranking[rank], spec.temperature);
  }
  return total;
}

std::int32_t draw(const Row& row, const SampleSpec& spec, Ranking& ranking,
                  const SampleKernels& kernels) {
  const auto top_k = static_cast<std::size_t>(spec.top_k);
  const bool some = spec.top_k > 0 && top_k < row.vocab;
  Kept kept{some ? top_k : row.vocab, 0};
  kept.weight = some ? total_of_first(row, spec, ranking, kept.count)
                     : kernels.sum_exp(row.logits, static_cast<std::int64_t>(row.vocab),
                                       row.summary.max, spec.temperature);
  if (spec.top_p < 1) {
    kept = keep_top_p(row, spec, ranking, kept.count, kept.weight);
  }
  const double target = spec.uniform * kept.weight;
  double reached = 0;
  std::int32_t chosen = ranking[0];
  for (std::size_t rank = 0; rank < kept.count; ++rank) {
    const double weight = row.weight(ranking[rank], spec.temperature);
    if (weight == 0) {
      break;  // rounding left `target` just above the sum of all that can be drawn
    }
    chosen = ranking[rank];
    reached += weight;
    if (reached > target) {
      break;
    }
  }
  return chosen;
}

void add_logprobs(const Row& row, const SampleSpec& spec, Ranking& ranking,
                  const SampleKernels& kernels, SampleResult& result) {
  const double max = row.summary.max;
  const double log_sum =
      std::log(kernels.sum_exp(row.logits, static_cast<std::int64_t>(row.vocab), max, 1.0));
  const auto logprob = [&](std::int32_t token) {
    return static_cast<float>((static_cast<double>(row.logits[token]) - max) - log_sum);
  };
  result.logprob = logprob(result.token);
  const auto count = std::min(static_cast<std::size_t>(spec.num_logprobs), row.vocab);
  for (std::size_t rank = 0; rank < count; ++rank) {
    result.top_tokens.push_back(ranking[rank]);
    result.top_logprobs.push_back(logprob(ranking[rank]));
  }
}

SampleResult sample_row(const SampleArgs& args, const SampleSpec& spec,
                        const SampleKernels& kernels, std::int32_t* ids) {
  const float* logits = args.logits + spec.row * args.vocab;
  const Row row{logits, static_cast<std::size_t>(args.vocab),
                kernels.summarize(logits, args.vocab)};
  check_logits(spec.row, row.summary.has_nan, row.summary.max);
  SampleResult result;
  const bool drawn = spec.target < 0 && spec.temperature > 0;
  if (spec.target >= 0) {
    result.token = spec.target;
  } else if (!drawn) {
    result.token = static_cast<std::int32_t>(row.summary.index);
  }
  if (!drawn && spec.num_logprobs < 0) {
    return result;
  }
  Ranking ranking({ids, row.vocab}, logits);
  if (drawn) {
    result.token = draw(row, spec, ranking, kernels);
  }
  if (spec.num_logprobs >= 0) {
    add_logprobs(row, spec, ranking, kernels, result);
  }
  return result;
}

}  // namespace

std::int64_t sample_worker_floats(std::int64_t vocab) {
  static_assert(sizeof(std::int32_t) == sizeof(float));
  return vocab;
}

void sample(const SampleArgs& args, const SampleKernels& kernels, ThreadPool& pool,
            const Scratch& scratch) {
  pool.parallel_for(static_cast<std::int64_t>(args.specs.size()),
                    [&](std::int64_t index, int worker) {
                      const auto i = static_cast<std::size_t>(index);
                      auto* ids = reinterpret_cast<std::int32_t*>(scratch.of_worker(worker));
                      args.results[i] = sample_row(args, args.specs[i], kernels, ids);
                    });
}

}  // namespace stagecoach::device
