// The decisive property: same requests, same tokens, bit for bit, however the job is cut.

#include <gtest/gtest.h>

#include "e2e/tiny_opt.hpp"
#include "job/run_rank.hpp"

namespace stagecoach {
namespace {

using testing::TinyOpt;
using Results = std::map<std::string, std::string>;

class Invariance : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tiny_ = std::make_unique<TinyOpt>();
    prompts_ = tiny_->folder().write("mixed.jsonl", testing::mixed_requests(kRequests));
    baseline_ = run([](job::JobConfig&) {});
    ASSERT_EQ(baseline_.size(), static_cast<std::size_t>(kRequests));
  }
  static void TearDownTestSuite() { tiny_.reset(); }

  /// Results of the job after `change`; every line has its logprobs in digits that read back
  /// exactly.
  static Results run(const std::function<void(job::JobConfig&)>& change) {
    const auto output = tiny_->fresh_file("out");
    auto config = testing::tiny_job(*tiny_, prompts_, output);
    config.num_logprobs = 3;
    config.prompt_logprobs = true;
    config.batch = {.gpu_batch_size = 8, .num_gpu_batches = 1, .prefill_piece = 512};
    change(config);
    job::run_loopback(config, Log("", "error"));
    return testing::read_results(output);
  }

  static void expect_baseline(const Results& results) {
    testing::expect_same_results(results, baseline_);
  }

  static constexpr int kRequests = 40;
  static inline std::unique_ptr<TinyOpt> tiny_;
  static inline std::string prompts_;
  static inline Results baseline_;
};

TEST_F(Invariance, TheJobHasEveryKindOfEnd) {
  int length = 0, eos = 0, stop = 0;
  for (const auto& [id, line] : baseline_) {
    const auto reason = nlohmann::json::parse(line).at("finish_reason").get<std::string>();
    length += reason == "length" ? 1 : 0;
    eos += reason == "eos" ? 1 : 0;
    stop += reason == "stop" ? 1 : 0;
  }
  EXPECT_GT(length, 5);
  EXPECT_GT(stop, 2);
  EXPECT_GE(eos, 3);
}

TEST_F(Invariance, NumberOfStages) {
  for (const int stages : {2, 3, 4, 8}) {
    SCOPED_TRACE(stages);
    expect_baseline(run([&](job::JobConfig& config) { config.stages = stages; }));
  }
}

TEST_F(Invariance, UnevenStages) {
  expect_baseline(run([](job::JobConfig& config) {
    config.stages = 3;
    config.layers_per_stage = {1, 5, 2};
  }));
}

TEST_F(Invariance, BatchShapes) {
  struct Shape {
    std::int64_t gpu_batch_size, num_gpu_batches, inner_iterations;
  };
  for (const auto& shape : {Shape{1, 1, 1}, Shape{3, 2, 2}, Shape{16, 2, 1}, Shape{2, 5, 3}}) {
    SCOPED_TRACE(shape.gpu_batch_size);
    expect_baseline(run([&](job::JobConfig& config) {
      config.stages = 2;
      config.batch.gpu_batch_size = shape.gpu_batch_size;
      config.batch.num_gpu_batches = shape.num_gpu_batches;
      config.batch.inner_iterations = shape.inner_iterations;
      config.inner_iterations_given = true;
    }));
  }
}

TEST_F(Invariance, PrefillPieces) {
  for (const std::int64_t piece : {1, 7, 64, 2000}) {
    SCOPED_TRACE(piece);
    expect_baseline(run([&](job::JobConfig& config) { config.batch.prefill_piece = piece; }));
  }
}

TEST_F(Invariance, Threads) {
  expect_baseline(run([](job::JobConfig& config) { config.threads = 3; }));
}

TEST_F(Invariance, ScarceKvPages) {
  // Room for little more than the longest request: admission has to wait again and again.
  expect_baseline(run([](job::JobConfig& config) {
    config.stages = 2;
    config.batch.gpu_batch_size = 4;
    config.policies.front().device_mem_bytes = std::size_t{17} << 20;
  }));
}

TEST_F(Invariance, RepeatedRun) {
  expect_baseline(run([](job::JobConfig& config) { config.stages = 4; }));
}

TEST_F(Invariance, ARequestAlone) {
  // Its neighbours do not matter, not even their absence.
  std::istringstream in(testing::mixed_requests(kRequests));
  int checked = 0;
  for (std::string line; std::getline(in, line); ++checked) {
    if (checked % 8 != 1) {
      continue;
    }
    const auto parsed = nlohmann::json::parse(line).at("id");
    const auto id = parsed.is_string() ? parsed.get<std::string>() : parsed.dump();
    const auto prompts = tiny_->folder().write("one.jsonl", line + "\n");
    const auto results = run([&](job::JobConfig& config) { config.prompts_path = prompts; });
    EXPECT_EQ(results.at(id), baseline_.at(id));
  }
}

}  // namespace
}  // namespace stagecoach
