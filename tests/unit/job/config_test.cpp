#include "job/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.hpp"

namespace stagecoach::job {
namespace {

using ::testing::HasSubstr;

JobConfig valid() {
  JobConfig config;
  config.model_path = "model.h5";
  config.prompts_path = "in.jsonl";
  config.output_path = "out.jsonl";
  return config;
}

std::string refusal(const std::function<void(JobConfig&)>& spoil) {
  auto config = valid();
  spoil(config);
  try {
    validate(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(JobConfig, CrossesTheWireUnchanged) {
  auto config = valid();
  config.dummy_seed = 0xffffffffffffffffull;
  config.dummy_spec = model::spec_from_settings({{"layers", "3"},
                                                 {"hidden", "64"},
                                                 {"heads", "4"},
                                                 {"ffn", "128"},
                                                 {"vocab", "100"},
                                                 {"max_positions", "32"}},
                                                "here");
  config.tokenizer_path = "tok";
  config.overwrite = config.ordered = config.skip_bad_requests = true;
  config.defaults = {.max_new_tokens = 7,
                     .temperature = 0.1,
                     .top_k = 5,
                     .top_p = 0.3,
                     .seed = 1ull << 63,
                     .stop = {"a", "\n"},
                     .ignore_eos = true};
  config.num_logprobs = 4;
  config.prompt_logprobs = true;
  config.transport = TransportKind::mpi;
  config.stages = 3;
  config.layers_per_stage = {1, 1, 1};
  config.batch = {.gpu_batch_size = 2,
                  .num_gpu_batches = 3,
                  .inner_iterations = 4,
                  .prefill_piece = 5,
                  .page_tokens = 64,
                  .kv_type = device::KvType::f32};
  config.inner_iterations_given = true;
  config.threads = 6;
  config.isa = "avx2";
  config.device_mem_bytes = std::size_t{1} << 40;
  config.timeout_seconds = 0.1;
  config.dry_run = true;
  config.log_level = "debug";
  const auto text = to_json(config);
  const auto back = config_from_json(text);
  EXPECT_EQ(to_json(back), text);
  EXPECT_EQ(back.dummy_seed, config.dummy_seed);
  EXPECT_EQ(back.dummy_spec, config.dummy_spec);
  EXPECT_EQ(back.defaults.stop, config.defaults.stop);
  EXPECT_EQ(back.defaults.temperature, 0.1);
  EXPECT_EQ(back.batch.kv_type, device::KvType::f32);
  // Every field that differs from its default is in the text.
  EXPECT_NE(text, to_json(valid()));
}

TEST(JobConfig, AcceptsTheLeastThatARunNeeds) {
  EXPECT_EQ(refusal([](JobConfig&) {}), "accepted");
}

TEST(JobConfig, RefusesWhatMakesNoSense) {
  EXPECT_THAT(refusal([](JobConfig& c) { c.model_path.clear(); }), HasSubstr("--model"));
  EXPECT_THAT(refusal([](JobConfig& c) { c.dummy_seed = 1; }), HasSubstr("--model"));
  EXPECT_THAT(refusal([](JobConfig& c) { c.prompts_path.clear(); }), HasSubstr("--prompts"));
  EXPECT_THAT(refusal([](JobConfig& c) { c.output_path.clear(); }), HasSubstr("--output"));
  EXPECT_THAT(refusal([](JobConfig& c) {
                c.output_path = "-";
                c.ordered = true;
              }),
              HasSubstr("--ordered"));
  EXPECT_THAT(refusal([](JobConfig& c) { c.defaults.top_p = 1.5; }), HasSubstr("--top-p"));
  EXPECT_THAT(refusal([](JobConfig& c) { c.defaults.temperature = -1; }),
              HasSubstr("--temperature"));
  EXPECT_THAT(refusal([](JobConfig& c) { c.defaults.stop = {""}; }), HasSubstr("--stop"));
  EXPECT_THAT(refusal([](JobConfig& c) { c.batch.page_tokens = 48; }), HasSubstr("--page-tokens"));
  EXPECT_THAT(refusal([](JobConfig& c) {
                c.batch.gpu_batch_size = 1 << 15;
                c.batch.num_gpu_batches = 1 << 15;
              }),
              HasSubstr("their product"));
  EXPECT_THAT(refusal([](JobConfig& c) { c.timeout_seconds = 0; }), HasSubstr("--timeout"));
}

}  // namespace
}  // namespace stagecoach::job
