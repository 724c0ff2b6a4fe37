#include "device/argument_checks.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace stagecoach::device {
namespace {

void check_format(const PackFormat& format) {
  STAGECOACH_CHECK(
      !format.packed() || format.group == 32 || format.group == 64 || format.group == 128,
      "weights in groups of {}", format.group);
}

bool is_split(const SequenceRows& sequence) {
  return sequence.scores != nullptr || sequence.selection != nullptr || sequence.values != nullptr;
}

void check_sparse(const AttentionArgs& args, const SequenceRows& sequence) {
  STAGECOACH_CHECK(!sequence.sparse || (args.sparsity > 0 && args.sparsity <= 1), "sparsity {}",
                   args.sparsity);
  STAGECOACH_CHECK(!is_split(sequence) || (sequence.sparse && sequence.num_rows == 1),
                   "row {}: scores of a sequence of {} rows", sequence.first_row,
                   sequence.num_rows);
  STAGECOACH_CHECK(sequence.selection == nullptr || sequence.scores != nullptr,
                   "row {}: selected from no scores", sequence.first_row);
}

}  // namespace

void check_linear(const LinearArgs& args) {
  check_format(args.weight.format);
  STAGECOACH_CHECK(args.rows >= 0 && args.in_features > 0 && args.out_features > 0,
                   "a product of {} rows, {} in and {} out", args.rows, args.in_features,
                   args.out_features);
  STAGECOACH_CHECK(args.out_stride >= args.out_features, "out_stride {} < out_features {}",
                   args.out_stride, args.out_features);
}

void check_widen(const WidenArgs& args) {
  check_format(args.weight.format);
  STAGECOACH_CHECK(args.weight.format.packed(), "weights to widen must be packed");
  STAGECOACH_CHECK(args.rows >= 0 && args.columns > 0, "{} rows of {} to widen", args.rows,
                   args.columns);
}

void check_embed(const EmbedArgs& args) {
  check_format(args.token_table.format);
  STAGECOACH_CHECK(args.tokens.size() == args.positions.size(), "{} tokens, {} positions",
                   args.tokens.size(), args.positions.size());
}

void check_attention(const AttentionArgs& args) {
  STAGECOACH_CHECK(args.kv_heads > 0 && args.heads % args.kv_heads == 0, "{} heads, {} KV heads",
                   args.heads, args.kv_heads);
  STAGECOACH_CHECK(args.head_dim > 0 && args.page_tokens > 0, "head_dim {}, page_tokens {}",
                   args.head_dim, args.page_tokens);
  STAGECOACH_CHECK(!args.kv_format.packed() || args.kv_format.group == 32 ||
                       args.kv_format.group == 64 || args.kv_format.group == 128,
                   "groups of {}", args.kv_format.group);
  STAGECOACH_CHECK(std::isfinite(args.scale) && args.scale > 0, "scale {}", args.scale);
  for (const auto& sequence : args.sequences) {
    const auto tokens = static_cast<std::int64_t>(sequence.first_position) + sequence.num_rows;
    STAGECOACH_CHECK(tokens <= static_cast<std::int64_t>(sequence.pages.size()) * args.page_tokens,
                     "{} tokens in {} pages of {}", tokens, sequence.pages.size(),
                     args.page_tokens);
    STAGECOACH_CHECK(sequence.partials.empty() || sequence.partials.size() == sequence.pages.size(),
                     "{} partial results of {} pages", sequence.partials.size(),
                     sequence.pages.size());
    check_sparse(args, sequence);
  }
}

void check_selection(const AttentionArgs& args) {
  for (const auto& sequence : args.sequences) {
    STAGECOACH_CHECK(sequence.scores == nullptr || sequence.selection != nullptr,
                     "row {}: scores without a selection", sequence.first_row);
  }
}

void check_selected(const AttentionArgs& args) {
  for (const auto& sequence : args.sequences) {
    const bool has_parts = std::any_of(sequence.partials.begin(), sequence.partials.end(),
                                       [](const float* partial) { return partial != nullptr; });
    STAGECOACH_CHECK(!sequence.sparse || !has_parts || sequence.selection != nullptr,
                     "row {}: a part of a sparse row before the selection", sequence.first_row);
  }
}

void check_gather(const AttentionArgs& args) {
  for (const auto& sequence : args.sequences) {
    STAGECOACH_CHECK(sequence.values == nullptr || sequence.selection != nullptr,
                     "row {}: values of no selection", sequence.first_row);
  }
}

void check_reach(const AttentionArgs& args) {
  check_selection(args);
  for (const auto& sequence : args.sequences) {
    const auto tokens = static_cast<std::int64_t>(sequence.first_position) + sequence.num_rows;
    const auto seen = sequence.num_rows == 0 ? 0 : (tokens - 1) / args.page_tokens + 1;
    for (std::size_t page = 0; page < static_cast<std::size_t>(seen); ++page) {
      STAGECOACH_CHECK(
          sequence.pages[page] != nullptr ||
              ((!sequence.sparse || sequence.selection != nullptr) && !sequence.partials.empty() &&
               sequence.partials[page] != nullptr),
          "page {} of the sequence of row {} has neither its tokens nor its partial result", page,
          sequence.first_row);
    }
  }
}

void check_sample(const SampleArgs& args) {
  STAGECOACH_CHECK(args.results.size() == args.specs.size(), "{} results for {} specs",
                   args.results.size(), args.specs.size());
  for (const auto& spec : args.specs) {
    STAGECOACH_CHECK(spec.target < args.vocab, "target {} of a vocabulary of {}", spec.target,
                     args.vocab);
  }
}

void check_logits(std::int32_t row, bool has_nan, float largest) {
  if (has_nan || !std::isfinite(largest)) {
    throw Error(fmt::format(
        "logits of row {} are not finite ({}): the model's weights or its f16 range are broken; "
        "check the checkpoint with 'stagecoach info --verify'",
        row,
        has_nan       ? "NaN"
        : largest > 0 ? "infinity"
                      : "all -infinity"));
  }
}

}  // namespace stagecoach::device
