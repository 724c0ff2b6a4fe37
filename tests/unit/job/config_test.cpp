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
  config.device = "cuda:3";
  config.stages = 3;
  config.layers_per_stage = {1, 1, 1};
  config.batch = {.gpu_batch_size = 2,
                  .num_gpu_batches = 3,
                  .inner_iterations = 4,
                  .prefill_piece = 5,
                  .page_tokens = 64,
                  .kv_format = {device::KvType::int4, 128},
                  .attention_sparsity = 0.25};
  config.compression = {Packing::int8, 32, true};
  config.inner_iterations_given = true;
  config.threads = 6;
  config.isa = "avx2";
  config.schedule = stage::ScheduleKind::zigzag;
  config.overlap = false;
  config.disk_backend = offload::DiskBackend::threads;
  config.test_delay_seed = 9;
  config.test_staging = true;
  config.timeout_seconds = 0.1;
  config.dry_run = true;
  config.log_level = "debug";
  config.eval = {.perplexity_path = "t",
                 .method = PerplexityMethod::stream,
                 .documents = DocumentSplit::lines,
                 .window = 5,
                 .stride = 4,
                 .last_word_path = "w",
                 .logprobs_path = "p",
                 .logprobs_output_path = "o",
                 .report_path = "r"};
  const auto text = to_json(config);
  const auto back = config_from_json(text);
  EXPECT_EQ(to_json(back), text);
  ASSERT_TRUE(back.eval);
  EXPECT_EQ(back.eval->perplexity_path, "t");
  EXPECT_EQ(back.eval->method, PerplexityMethod::stream);
  EXPECT_EQ(back.eval->documents, DocumentSplit::lines);
  EXPECT_EQ(back.eval->window, 5);
  EXPECT_EQ(back.eval->stride, 4);
  EXPECT_EQ(back.eval->last_word_path, "w");
  EXPECT_EQ(back.eval->logprobs_path, "p");
  EXPECT_EQ(back.eval->logprobs_output_path, "o");
  EXPECT_EQ(back.eval->report_path, "r");
  EXPECT_EQ(back.device, "cuda:3");
  EXPECT_EQ(back.transport, TransportKind::mpi);
  EXPECT_EQ(back.dummy_seed, config.dummy_seed);
  EXPECT_EQ(back.dummy_spec, config.dummy_spec);
  EXPECT_EQ(back.defaults.stop, config.defaults.stop);
  EXPECT_EQ(back.defaults.temperature, 0.1);
  EXPECT_EQ(back.batch.kv_format, device::KvFormat(device::KvType::int4, 128));
  EXPECT_EQ(back.batch.attention_sparsity, 0.25);
  EXPECT_EQ(back.compression.weights, Packing::int8);
  EXPECT_EQ(back.compression.group, 32);
  EXPECT_TRUE(back.compression.embeddings);
  EXPECT_EQ(back.schedule, config.schedule);
  EXPECT_FALSE(back.overlap);
  EXPECT_EQ(back.disk_backend, config.disk_backend);
  EXPECT_EQ(back.test_delay_seed, 9u);
  EXPECT_TRUE(back.test_staging);
  // Every field that differs from its default is in the text.
  EXPECT_NE(text, to_json(valid()));
}

TEST(JobConfig, PoliciesCrossTheWireUnchanged) {
  auto config = valid();
  config.policies.resize(3);
  config.policies[0] = {.percent = {33.333, 66.667, 100.0 / 3, 0.1, 1e-7, 99},
                        .device_mem_bytes = std::size_t{1} << 40,
                        .cpu_mem_bytes = ~std::size_t{0},
                        .pinned_mem_bytes = 3,
                        .disk_mem_bytes = 4,
                        .offload_dir = "/a b/\"c\"",
                        .pin_weights = stage::Switch::on,
                        .cpu_attention = stage::Switch::off,
                        .weight_buffers = 7};
  config.policies[1].pin_weights = stage::Switch::off;
  config.policies[1].cpu_attention = stage::Switch::on;
  EXPECT_EQ(config_from_json(to_json(config)).policies, config.policies);
}

TEST(JobConfig, EveryScheduleAndBackendCrossesTheWire) {
  using stage::ScheduleKind;
  auto config = valid();
  for (const auto kind :
       {ScheduleKind::rolling, ScheduleKind::zigzag, ScheduleKind::row, ScheduleKind::flexgen}) {
    config.schedule = kind;
    EXPECT_EQ(config_from_json(to_json(config)).schedule, kind);
  }
  for (const auto backend : {offload::DiskBackend::automatic, offload::DiskBackend::uring,
                             offload::DiskBackend::threads}) {
    config.disk_backend = backend;
    EXPECT_EQ(config_from_json(to_json(config)).disk_backend, backend);
  }
}

TEST(JobConfig, EveryTransportCrossesTheWire) {
  auto config = valid();
  for (const auto kind : {TransportKind::automatic, TransportKind::mpi, TransportKind::nccl,
                          TransportKind::loopback}) {
    config.transport = kind;
    EXPECT_EQ(config_from_json(to_json(config)).transport, kind);
  }
  auto text = to_json(config);
  text.replace(text.find("loopback"), 8, "pigeons!");
  EXPECT_THROW(config_from_json(text), FormatError);
}

TEST(JobConfig, OnePolicyIsForAllStages) {
  auto config = valid();
  config.stages = 3;
  config.policies[0].weight_buffers = 5;
  EXPECT_EQ(config.policy(2).weight_buffers, 5);
  config.policies.resize(3);
  EXPECT_EQ(config.policy(0).weight_buffers, 5);
  EXPECT_EQ(config.policy(2).weight_buffers, 0);
}

TEST(JobConfig, PoliciesAreOneOrOneAStageAndEachIsChecked) {
  EXPECT_THAT(refusal([](JobConfig& c) {
                c.stages = 3;
                c.policies.resize(2);
              }),
              HasSubstr("2 policies for 3 stages"));
  EXPECT_EQ(refusal([](JobConfig& c) {
              c.stages = 3;
              c.policies.resize(3);
            }),
            "accepted");
  EXPECT_THAT(refusal([](JobConfig& c) {
                c.stages = 2;
                c.policies.resize(2);
                c.policies[1].percent.weights_cpu = 1;
              }),
              HasSubstr("weights"));
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
  for (const auto* device :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:+1", "CUDA", "host:0"}) {
    EXPECT_THAT(refusal([device](JobConfig& c) { c.device = device; }), HasSubstr("--device"))
        << device;
  }
  EXPECT_THAT(refusal([](JobConfig& c) { c.timeout_seconds = 0; }), HasSubstr("--timeout"));
}

}  // namespace
}  // namespace stagecoach::job
