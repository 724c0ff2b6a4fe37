#include "support/scalar_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace stagecoach::test {
namespace {

using device::AttentionArgs;
using device::SequenceRows;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// One row of weights as numbers.
std::vector<Half> weight_row(const device::Weights& weights, std::int64_t row,
                             std::int64_t columns) {
  const auto from = weights.from_row(row, columns);
  std::vector<Half> numbers(at(columns));
  if (weights.format.packed()) {
    unpack_row(weights.format, from.data, numbers);
  } else {
    std::copy_n(from.halves(), columns, numbers.begin());
  }
  return numbers;
}

double element(const std::byte* data, std::int64_t index, device::KvType type) {
  return type == device::KvType::f16 ? to_float(reinterpret_cast<const Half*>(data)[index])
                                     : reinterpret_cast<const float*>(data)[index];
}

/// Of the KV head at `data`: number `index` of a slot, minimum + code * scale.
double packed_element(const AttentionArgs& args, const std::byte* data, std::int64_t slot,
                      std::int64_t index) {
  const std::int64_t group = args.kv_format.group;
  const std::int64_t groups = (args.head_dim + group - 1) / group;
  const std::int64_t blocks = (args.head_dim + 31) / 32;
  const auto* params = reinterpret_cast<const Half*>(data) + 2 * (slot * groups + index / group);
  const std::byte* codes = data + 4 * groups * args.page_tokens;
  const std::int64_t block = slot * blocks + index / 32;
  unsigned code = 0;
  if (args.kv_format.type == device::KvType::int8) {
    code = std::to_integer<unsigned>(codes[block * 32 + index % 32]);
  } else {
    code = std::to_integer<unsigned>(codes[block * 16 + index % 16]) >> (index % 32 < 16 ? 0 : 4);
    code &= 15u;
  }
  return to_float(params[0]) + static_cast<double>(code) * to_float(params[1]);
}

/// K (`second` false) or V of one position and KV head.
std::vector<double> cached(const AttentionArgs& args, const SequenceRows& sequence,
                           std::int64_t position, std::int64_t kv_head, bool second) {
  const std::int64_t slot = position % args.page_tokens;
  const std::byte* data =
      sequence.pages[at(position / args.page_tokens)] +
      (kv_head + (second ? args.kv_heads : 0)) *
          device::kv_head_bytes(args.kv_format, args.page_tokens, args.head_dim);
  std::vector<double> values;
  for (std::int64_t i = 0; i < args.head_dim; ++i) {
    values.push_back(args.kv_format.packed()
                         ? packed_element(args, data, slot, i)
                         : element(data, slot * args.head_dim + i, args.kv_format.type));
  }
  return values;
}

/// The scaled score of one position.
double score(const AttentionArgs& args, const SequenceRows& sequence, std::int64_t row,
             std::int64_t head, std::int64_t position) {
  const auto key = cached(args, sequence, position, head / (args.heads / args.kv_heads), false);
  const float* query =
      args.query + (sequence.first_row + row) * args.row_stride + head * args.head_dim;
  return args.scale * std::inner_product(key.begin(), key.end(), query, 0.0);
}

/// Which of its positions a row adds up the values of.
std::vector<bool> kept(const AttentionArgs& args, const SequenceRows& sequence, std::int64_t row,
                       std::int64_t head) {
  const std::int64_t earlier = sequence.first_position + row;
  std::vector<bool> result(at(earlier + 1), !sequence.sparse);
  if (!sequence.sparse) {
    return result;
  }
  std::vector<double> scores;
  std::vector<std::int64_t> order(at(earlier));
  std::iota(order.begin(), order.end(), 0);
  for (const auto position : order) {
    scores.push_back(score(args, sequence, row, head, position));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return scores[at(a)] > scores[at(b)]; });
  for (std::int64_t i = 0; i < device::kept_positions(args.sparsity, earlier); ++i) {
    result[at(order[at(i)])] = true;
  }
  result.back() = true;
  return result;
}

/// Max, weight and values of positions `first` to `end` - 1 into `out`.
void attend_some(const AttentionArgs& args, const SequenceRows& sequence, std::int64_t row,
                 std::int64_t head, std::int64_t first, std::int64_t end, double* out) {
  const auto chosen = kept(args, sequence, row, head);
  std::fill_n(out, args.head_dim + 2, 0.0);
  std::vector<double> scores;
  for (std::int64_t p = first; p < end; ++p) {
    scores.push_back(score(args, sequence, row, head, p));
  }
  out[0] = *std::max_element(scores.begin(), scores.end());
  for (std::int64_t p = first; p < end; ++p) {
    const double weight = std::exp(scores[at(p - first)] - out[0]);
    out[1] += weight;
    if (!chosen[at(p)]) {
      continue;
    }
    const auto value = cached(args, sequence, p, head / (args.heads / args.kv_heads), true);
    for (std::int64_t i = 0; i < args.head_dim; ++i) {
      out[2 + i] += weight * value[at(i)];
    }
  }
}

void attend_row(const AttentionArgs& args, const SequenceRows& sequence, std::int64_t row,
                std::int64_t head, double* out) {
  std::vector<double> all(at(args.head_dim + 2));
  attend_some(args, sequence, row, head, 0, sequence.first_position + row + 1, all.data());
  for (std::int64_t i = 0; i < args.head_dim; ++i) {
    out[i] = all[at(2 + i)] / all[1];
  }
}

std::vector<std::int32_t> by_likelihood(const float* logits, std::int64_t vocab) {
  std::vector<std::int32_t> ids(at(vocab));
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

std::vector<double> softmax(const float* logits, std::int64_t vocab, double temperature) {
  const double max = *std::max_element(logits, logits + vocab);
  std::vector<double> probabilities;
  for (std::int64_t i = 0; i < vocab; ++i) {
    probabilities.push_back(std::exp((logits[i] - max) / temperature));
  }
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (auto& p : probabilities) {
    p /= sum;
  }
  return probabilities;
}

void renormalize(std::vector<double>& probabilities) {
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (auto& p : probabilities) {
    p /= sum;
  }
}

std::int32_t choose(const float* logits, std::int64_t vocab, const device::SampleSpec& spec,
                    const std::vector<std::int32_t>& ranking) {
  if (spec.target >= 0) {
    return spec.target;
  }
  if (spec.temperature == 0) {
    return ranking.front();
  }
  const auto probabilities = reference_probabilities(logits, vocab, spec);
  double reached = 0;
  std::int32_t chosen = ranking.front();
  for (const auto id : ranking) {
    if (probabilities[at(id)] == 0) {
      continue;
    }
    chosen = id;
    reached += probabilities[at(id)];
    if (reached > spec.uniform) {
      break;
    }
  }
  return chosen;
}

}  // namespace

std::vector<Sum> reference_linear(const device::LinearArgs& args) {
  std::vector<Sum> result;
  std::vector<std::vector<Half>> weight;
  for (std::int64_t o = 0; o < args.out_features; ++o) {
    weight.push_back(weight_row(args.weight, o, args.in_features));
  }
  for (std::int64_t r = 0; r < args.rows; ++r) {
    for (std::int64_t o = 0; o < args.out_features; ++o) {
      Sum sum;
      const auto add = [&sum](double term) {
        sum.value += term;
        sum.magnitude += std::abs(term);
      };
      for (std::int64_t i = 0; i < args.in_features; ++i) {
        add(static_cast<double>(args.x[r * args.in_features + i]) * to_float(weight[at(o)][at(i)]));
      }
      if (args.bias != nullptr) {
        add(to_float(args.bias[o]));
      }
      if (args.epilogue == device::Epilogue::add_to_out) {
        add(args.out[r * args.out_stride + o]);
      }
      if (args.epilogue == device::Epilogue::relu) {
        sum.value = std::max(sum.value, 0.0);
      }
      result.push_back(sum);
    }
  }
  return result;
}

std::vector<double> reference_layer_norm(const device::LayerNormArgs& args) {
  std::vector<double> result;
  const auto width = static_cast<double>(args.width);
  for (std::int64_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.width;
    const double mean = std::accumulate(x, x + args.width, 0.0) / width;
    double variance = 0;
    for (std::int64_t i = 0; i < args.width; ++i) {
      variance += (x[i] - mean) * (x[i] - mean) / width;
    }
    for (std::int64_t i = 0; i < args.width; ++i) {
      result.push_back((x[i] - mean) / std::sqrt(variance + args.epsilon) *
                           to_float(args.weight[i]) +
                       to_float(args.bias[i]));
    }
  }
  return result;
}

std::vector<double> reference_embed(const device::EmbedArgs& args) {
  std::vector<double> result;
  for (std::size_t t = 0; t < args.tokens.size(); ++t) {
    const auto token = weight_row(args.token_table, args.tokens[t], args.width);
    for (std::int64_t i = 0; i < args.width; ++i) {
      result.push_back(static_cast<double>(to_float(token[at(i)])) +
                       to_float(args.position_table[args.positions[t] * args.width + i]));
    }
  }
  return result;
}

std::vector<double> reference_attention(const AttentionArgs& args) {
  std::int64_t rows = 0;
  for (const auto& sequence : args.sequences) {
    rows = std::max<std::int64_t>(rows, sequence.first_row + sequence.num_rows);
  }
  std::vector<double> out(at(rows * args.heads * args.head_dim));
  for (const auto& sequence : args.sequences) {
    for (std::int64_t row = 0; row < sequence.num_rows; ++row) {
      for (std::int64_t head = 0; head < args.heads; ++head) {
        attend_row(args, sequence, row, head,
                   out.data() + ((sequence.first_row + row) * args.heads + head) * args.head_dim);
      }
    }
  }
  return out;
}

std::vector<double> reference_attention_partial(const AttentionArgs& args,
                                                const SequenceRows& sequence, std::int64_t page) {
  std::vector<double> result(at(sequence.num_rows * args.heads * (args.head_dim + 2)),
                             std::numeric_limits<double>::quiet_NaN());
  const std::int64_t first = page * args.page_tokens;
  for (std::int64_t row = 0; row < sequence.num_rows; ++row) {
    const std::int64_t end =
        std::min(first + args.page_tokens, sequence.first_position + row + std::int64_t{1});
    for (std::int64_t head = 0; head < args.heads && first < end; ++head) {
      attend_some(args, sequence, row, head, first, end,
                  result.data() + (row * args.heads + head) * (args.head_dim + 2));
    }
  }
  return result;
}

std::vector<double> reference_probabilities(const float* logits, std::int64_t vocab,
                                            const device::SampleSpec& spec) {
  auto probabilities = softmax(logits, vocab, spec.temperature);
  const auto ranking = by_likelihood(logits, vocab);
  if (spec.top_k > 0 && spec.top_k < vocab) {
    for (std::int64_t rank = spec.top_k; rank < vocab; ++rank) {
      probabilities[at(ranking[at(rank)])] = 0;
    }
    renormalize(probabilities);
  }
  if (spec.top_p < 1) {
    double before = 0;  // the probability of all more likely tokens
    for (std::int64_t rank = 0; rank < vocab; ++rank) {
      auto& p = probabilities[at(ranking[at(rank)])];
      const double own = p;
      if (rank > 0 && before >= spec.top_p) {
        p = 0;
      }
      before += own;
    }
    renormalize(probabilities);
  }
  return probabilities;
}

device::SampleResult reference_sample(const float* logits, std::int64_t vocab,
                                      const device::SampleSpec& spec) {
  const auto ranking = by_likelihood(logits, vocab);
  device::SampleResult result;
  result.token = choose(logits, vocab, spec, ranking);
  if (spec.num_logprobs < 0) {
    return result;
  }
  const auto raw = softmax(logits, vocab, 1.0);
  result.logprob = static_cast<float>(std::log(raw[at(result.token)]));
  for (std::int64_t rank = 0; rank < std::min<std::int64_t>(spec.num_logprobs, vocab); ++rank) {
    result.top_tokens.push_back(ranking[at(rank)]);
    result.top_logprobs.push_back(static_cast<float>(std::log(raw[at(ranking[at(rank)])])));
  }
  return result;
}

}  // namespace stagecoach::test
