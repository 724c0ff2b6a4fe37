// The engine's numbers against float64 outputs that an independent implementation computed.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/file.hpp"
#include "device/host/host_device.hpp"
#include "e2e/tiny_opt.hpp"
#include "job/model_access.hpp"
#include "job/run_rank.hpp"
#include "model/tokenizer.hpp"
#include "offload/kv_pages.hpp"
#include "stage/decoder_layer.hpp"

namespace stagecoach {
namespace {

using nlohmann::json;
using testing::TinyOpt;

/// All logits of a prompt, by the layers of the product and a head of three operations.
class Forward {
 public:
  Forward(const TinyOpt& tiny, device::KvType kv_format)
      : model_(job::open_model(testing::tiny_job(tiny, "", ""))),
        device_(device::make_host_device({}, abort_)),
        kv_format_(kv_format) {
    device_->reserve_scratch({.max_in_features = model_.spec.ffn,
                              .head_dim = model_.spec.head_dim,
                              .page_tokens = kPageTokens,
                              .vocab = model_.spec.vocab});
    const offload::LayerImage image(model::layer_tensors(model_.spec));
    weights_ = std::make_unique<offload::StageWeights>(
        model_.spec,
        offload::StageContents{
            .first_layer = 0, .layers = model_.spec.layers, .embedding = true, .head = true},
        model::WeightFormat{}, image, offload::cut_by_shares(image, {}), *model_.weights, *device_,
        dram_, 1, nullptr);
  }

  std::vector<float> logits(const std::vector<std::int32_t>& tokens) {
    const auto& spec = model_.spec;
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const auto page_bytes = static_cast<std::size_t>(
        2 * spec.kv_heads * device::kv_head_bytes(kv_format_, kPageTokens, spec.head_dim));
    const auto pages = offload::pages_for(rows, kPageTokens);
    const auto kv =
        device_->allocate(page_bytes * static_cast<std::size_t>(pages * spec.layers), "kv");
    std::vector<float> hidden(static_cast<std::size_t>(rows * spec.hidden));
    std::vector<float> memory(
        static_cast<std::size_t>(stage::LayerWorkspace::size_floats(spec, rows)));
    const stage::LayerWorkspace workspace(spec, rows, memory.data());
    std::vector<float> result(static_cast<std::size_t>(rows * spec.vocab));

    const auto stream = device_->create_stream("test");
    device::EmbedArgs embed{.tokens = tokens,
                            .token_table = weights_->token_table(),
                            .position_table = weights_->position_table(),
                            .out = hidden.data(),
                            .width = spec.hidden};
    for (std::int32_t i = 0; i < rows; ++i) {
      embed.positions.push_back(i + static_cast<std::int32_t>(spec.position_offset));
    }
    device_->embed(*stream, embed);
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
      const auto weights = weights_->layer(layer, nullptr, 0);
      stage::DecoderLayer decoder(*device_, *stream, spec, weights, workspace, hidden.data(), rows);
      decoder.attention_in();
      auto args =
          stage::attention_args(spec, workspace.qkv, workspace.attention, kPageTokens, kv_format_);
      args.sequences = {{.num_rows = static_cast<std::int32_t>(rows)}};
      for (std::int64_t page = 0; page < pages; ++page) {
        args.sequences[0].pages.push_back(
            kv.data() + static_cast<std::size_t>(layer * pages + page) * page_bytes);
      }
      device_->store_kv(*stream, args);
      device_->attention(*stream, args);
      decoder.attention_out();
      decoder.mlp();
    }
    device_->layer_norm(*stream, {.x = hidden.data(),
                                  .weight = weights_->final_norm().weight,
                                  .bias = weights_->final_norm().bias,
                                  .out = hidden.data(),
                                  .rows = rows,
                                  .width = spec.hidden});
    device_->linear(*stream, {.x = hidden.data(),
                              .weight = weights_->head(),
                              .out = result.data(),
                              .rows = rows,
                              .in_features = spec.hidden,
                              .out_features = spec.vocab,
                              .out_stride = spec.vocab});
    stream->record().wait();
    return result;
  }

 private:
  static constexpr std::int64_t kPageTokens = 16;

  AbortSignal abort_;
  MemoryBudget dram_{"CPU memory", std::size_t{1} << 30};
  job::ModelAccess model_;
  std::unique_ptr<device::Device> device_;
  device::KvFormat kv_format_;
  std::unique_ptr<offload::StageWeights> weights_;
};

/// The largest difference between logits and the reference's rows.
double worst_logit(device::KvType kv_format) {
  const TinyOpt tiny;
  const auto reference = testing::tiny_opt_reference().at("logits");
  const auto tokens = reference.at("token_ids").get<std::vector<std::int32_t>>();
  const auto logits = Forward(tiny, kv_format).logits(tokens);
  double worst = 0;
  for (std::size_t i = 0; i < reference.at("rows").size(); ++i) {
    const auto row = reference.at("rows")[i].get<std::vector<double>>();
    const auto position = reference.at("row_positions")[i].get<std::size_t>();
    for (std::size_t t = 0; t < row.size(); ++t) {
      worst = std::max(worst, std::abs(row[t] - logits[position * row.size() + t]));
    }
  }
  return worst;
}

TEST(Reference, LogitsAgree) {
  const double worst = worst_logit(device::KvType::f16);
  std::printf("largest difference of a logit, f16 KV: %.2e\n", worst);
  EXPECT_LT(worst, 1.5e-2);
}

TEST(Reference, LogitsAgreeCloselyWithF32Kv) {
  const double worst = worst_logit(device::KvType::f32);
  std::printf("largest difference of a logit, f32 KV: %.2e\n", worst);
  EXPECT_LT(worst, 1e-3);
}

/// The differences between the highest logits of the first step are the reference's; near ties may
/// have changed places.
void expect_top_logits(const json& top, const json& expected) {
  ASSERT_EQ(top.size(), 10u);
  for (std::size_t k = 1; k < 10; ++k) {
    EXPECT_NEAR(top[0].at("logprob").get<double>() - top[k].at("logprob").get<double>(),
                expected[0][1].get<double>() - expected[k][1].get<double>(), 2e-2);
  }
}

TEST(Reference, GreedyTokensAndTextAreItsOwn) {
  TinyOpt tiny;
  const auto reference = testing::tiny_opt_reference().at("generation");
  std::string lines;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const auto& expected = reference[i];
    lines += json{{"id", i},
                  {"prompt", expected.at("prompt")},
                  {"max_new_tokens", expected.at("greedy_token_ids").size()},
                  {"ignore_eos", true}}
                 .dump() +
             "\n";
  }
  const auto output = tiny.fresh_file("out");
  auto config = testing::tiny_job(tiny, tiny.folder().write("prompts.jsonl", lines), output);
  config.num_logprobs = 10;
  job::run_loopback(config, Log("", "error"));
  const auto results = testing::read_results(output);
  ASSERT_EQ(results.size(), reference.size());
  std::size_t compared = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const auto& expected = reference[i];
    const auto result = json::parse(results.at(std::to_string(i)));
    const auto tokens = result.at("token_ids").get<std::vector<int>>();
    const auto greedy = expected.at("greedy_token_ids").get<std::vector<int>>();
    ASSERT_EQ(tokens.size(), greedy.size());
    EXPECT_EQ(result.at("prompt_tokens").get<std::size_t>(),
              expected.at("prompt_token_ids").size());
    bool same = true;
    for (std::size_t t = 0; t < tokens.size() && same; ++t) {
      same = tokens[t] == greedy[t];
      if (!same) {
        // After a near tie the continuations are different texts.
        EXPECT_LT(expected.at("top2_margins")[t].get<double>(), 2e-2)
            << "prompt " << i << " token " << t;
      } else {
        EXPECT_NEAR(result.at("logprobs")[t].at("logprob").get<double>(),
                    expected.at("logprobs")[t].get<double>(), 2e-2);
        ++compared;
      }
    }
    if (same) {
      EXPECT_EQ(result.at("text"), expected.at("greedy_text"));
    }
    expect_top_logits(result.at("logprobs")[0].at("top"), expected.at("first_step_top10"));
  }
  std::printf("%zu greedy tokens compared\n", compared);
  EXPECT_GT(compared, 500u);
}

/// Token stream of heldout.txt as the reference's method says, in windows of 511 tokens: a request
/// needs room for one new token in the context of 512.
std::vector<std::vector<std::int32_t>> heldout_windows(const TinyOpt& tiny) {
  const auto model = job::open_model(testing::tiny_job(tiny, "", ""));
  const model::Tokenizer tokenizer(model.tokenizer, model.spec.vocab);
  const auto text = read_text_file(testing::tiny_opt_folder() + "/heldout.txt");
  std::vector<std::int32_t> stream;
  for (std::size_t begin = 0; begin < text.size();) {
    auto end = text.find("\n\n", begin);
    end = end == std::string::npos ? text.size() : end;
    if (const auto document = text.substr(begin, end - begin); !document.empty()) {
      stream.push_back(2);
      const auto tokens = tokenizer.encode(document);
      stream.insert(stream.end(), tokens.begin(), tokens.end());
    }
    begin = end + 2;
  }
  std::vector<std::vector<std::int32_t>> windows;
  for (std::size_t first = 0; first + 513 <= stream.size(); first += 512) {
    const auto begin = stream.begin() + static_cast<std::ptrdiff_t>(first);
    windows.emplace_back(begin, begin + 511);
  }
  return windows;
}

TEST(Reference, PerplexityFromPromptLogprobsAgrees) {
  TinyOpt tiny;
  const auto windows = heldout_windows(tiny);
  const auto reference = testing::tiny_opt_reference().at("perplexity");
  EXPECT_EQ(windows.size() * 512, reference.at("tokens").get<std::size_t>());
  std::string lines;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    lines += json{{"id", i}, {"prompt_token_ids", windows[i]}, {"max_new_tokens", 1}}.dump() + "\n";
  }
  const auto output = tiny.fresh_file("out");
  auto config = testing::tiny_job(tiny, tiny.folder().write("windows.jsonl", lines), output);
  config.prompt_logprobs = true;
  config.threads = 2;
  job::run_loopback(config, Log("", "error"));
  double sum = 0;
  std::size_t count = 0;
  for (const auto& [id, line] : testing::read_results(output)) {
    const auto scores = json::parse(line).at("prompt_logprobs");
    ASSERT_EQ(scores.size(), 511u);
    EXPECT_TRUE(scores[0].is_null());
    for (std::size_t t = 1; t < scores.size(); ++t) {
      sum -= scores[t].at("logprob").get<double>();
      ++count;
    }
  }
  const double perplexity = std::exp(sum / static_cast<double>(count));
  std::printf("perplexity %.4f over %zu tokens, reference %.4f\n", perplexity, count,
              reference.at("perplexity").get<double>());
  EXPECT_NEAR(perplexity / reference.at("perplexity").get<double>(), 1, 0.002);
}

}  // namespace
}  // namespace stagecoach
