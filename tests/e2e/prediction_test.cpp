// What is predicted of a job beside what the engine does: the same bytes on every queue.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "e2e/tiny_opt.hpp"
#include "job/run_rank.hpp"
#include "plan/simulation.hpp"
#include "stage/memory_areas.hpp"

namespace stagecoach {
namespace {

using stage::Resource;
using testing::TinyOpt;

constexpr std::array kBothKnow = {Resource::h2d,        Resource::d2h,  Resource::disk_read,
                                  Resource::disk_write, Resource::send, Resource::cpu_compute};

/// Two stages whose weights, cache and activations lie in all tiers, differently.
job::JobConfig spread_job(const TinyOpt& tiny, const std::string& output) {
  std::string requests;
  for (int i = 0; i < 6; ++i) {
    requests += R"({"id": )" + std::to_string(i) + R"(, "max_new_tokens": )" +
                std::to_string(20 + 7 * i) + R"(, "prompt": "It is the wind, and nothing more."})" +
                "\n";
  }
  auto config = testing::tiny_job(tiny, tiny.folder().write("p.jsonl", requests), output);
  config.stages = 2;
  config.defaults.ignore_eos = true;
  config.batch = {.gpu_batch_size = 2, .num_gpu_batches = 2, .prefill_piece = 8};
  stage::Policy first;
  first.percent = {30, 30, 20, 40, 0, 50};
  first.offload_dir = tiny.folder().path();
  stage::Policy second;
  second.percent = {0, 60, 0, 100, 100, 0};
  config.policies = {first, second};
  config.report_whole_job = true;
  return config;
}

std::size_t planned_bytes(const stage::StagePlan& plan) {
  std::size_t bytes = 0;
  for (const auto area : stage::kAreas) {
    bytes += stage::bytes_of(area, plan);
  }
  return bytes;
}

std::size_t reported_bytes(const stage::MemoryReport& memory) {
  std::size_t bytes = 0;
  for (const auto& line : memory.lines) {
    const auto is_of = [&](stage::Area area) { return line.what == stage::name_of(area); };
    bytes += std::any_of(stage::kAreas.begin(), stage::kAreas.end(), is_of) ? line.size_bytes : 0;
  }
  return bytes;
}

TEST(Prediction, MovesTheBytesThatTheEngineMoves) {
  TinyOpt tiny;
  const auto config = spread_job(tiny, tiny.fresh_file("out"));
  const auto report = job::run_loopback(config, Log("", "error")).value();
  ASSERT_TRUE(report.whole.has_value());
  const auto& whole = *report.whole;
  ASSERT_EQ(whole.plans.size(), 2u);

  const auto profile = plan::read_profile(STAGECOACH_SOURCE_DIR "/tests/data/small-node.ini");
  plan::Workload lengths;
  for (const auto& request : whole.requests) {
    lengths.push_back({request.prompt, request.max_new});
  }
  const auto predicted = plan::simulate(whole.plans, plan::make_cluster({profile}, 2, 2), lengths,
                                        whole.kv_pages_per_layer);
  EXPECT_EQ(predicted.generated_tokens, report.totals.generated_tokens);
  EXPECT_EQ(predicted.prompt_tokens, report.totals.prompt_tokens);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    SCOPED_TRACE(stage);
    EXPECT_EQ(planned_bytes(whole.plans[stage]), reported_bytes(report.stages[stage].memory));
    for (const auto resource : kBothKnow) {
      const auto r = static_cast<std::size_t>(resource);
      EXPECT_EQ(predicted.stages[stage].bytes[r],
                static_cast<double>(report.stages[stage].totals.bytes[r]))
          << to_string(resource);
      EXPECT_EQ(whole.totals[stage].bytes[r], report.stages[stage].totals.bytes[r]);
    }
  }
}

TEST(Prediction, EveryQueueThatWorksIsBusyForSomeOfTheTime) {
  TinyOpt tiny;
  const auto report =
      job::run_loopback(spread_job(tiny, tiny.fresh_file("out")), Log("", "error")).value();
  for (const auto& stage : report.stages) {
    for (const auto resource :
         {Resource::compute, Resource::h2d, Resource::disk_read, Resource::cpu_compute}) {
      const auto busy = stage.totals.busy_seconds[static_cast<std::size_t>(resource)];
      EXPECT_GT(busy, 0) << to_string(resource);
      EXPECT_LT(busy, report.totals.seconds) << to_string(resource);
    }
  }
  EXPECT_EQ(report.stages[1].totals.busy_seconds[static_cast<std::size_t>(Resource::disk_write)],
            0);
  const auto& totals = report.totals;
  EXPECT_EQ(totals.first_tokens, 6);
  EXPECT_GT(totals.prefill_seconds, 0);
  EXPECT_LT(totals.prefill_seconds, totals.seconds);
  EXPECT_DOUBLE_EQ(
      totals.decode_tokens_per_second(),
      static_cast<double>(totals.generated_tokens - 6) / (totals.seconds - totals.prefill_seconds));
}

}  // namespace
}  // namespace stagecoach
