// Whole jobs on the CUDA device, by its stand-in: the tokens of the host device, and the same bytes
// wherever weights, cache and activations live, whatever the order of what no event orders.

#include <gtest/gtest.h>

#include "cuda/cuda_jobs.hpp"
#include "support/cuda_standin/standin.hpp"

namespace stagecoach {
namespace {

using job::JobConfig;
using stage::Percent;
using stage::ScheduleKind;
using stage::Switch;
using testing::Results;
using testing::TinyOpt;

class CudaJob : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    cuda_standin::reset(enough());
    tiny_ = std::make_unique<TinyOpt>();
    prompts_ = tiny_->folder().write("greedy.jsonl", testing::greedy_requests(kNewTokens));
    on_host_ = run([](JobConfig& config) { config.device = "host"; });
    for (int stages = 1; stages <= 4; ++stages) {
      on_cuda_.push_back(run([&](JobConfig& config) { config.stages = stages; }));
    }
  }
  static void TearDownTestSuite() { tiny_.reset(); }
  void TearDown() override { cuda_standin::reset(enough()); }

  /// Memory for four stages.
  static cuda_standin::Settings enough() {
    cuda_standin::Settings settings;
    settings.memory_bytes = std::size_t{4} << 30;
    return settings;
  }

  /// Results of a greedy job on the CUDA device, after `change`. Attention on the CPU is off: it
  /// computes in another precision.
  static Results run(const std::function<void(JobConfig&)>& change) {
    const auto output = tiny_->fresh_file("out");
    auto config = testing::tiny_job(*tiny_, prompts_, output);
    config.device = "cuda";
    config.num_logprobs = 3;
    config.prompt_logprobs = true;
    config.batch = {.gpu_batch_size = 4, .num_gpu_batches = 2, .prefill_piece = 96};
    config.policies.front().offload_dir = tiny_->folder().path();
    config.policies.front().cpu_attention = Switch::off;
    change(config);
    job::run_loopback(config, Log("", "error"));
    return testing::read_results(output);
  }

  /// As with everything on the device. The pieces of a prompt depend on the number of stages, and
  /// so do a few bits.
  static void expect_same_bytes(int stages, const std::function<void(JobConfig&)>& change) {
    testing::expect_same_results(run([&](JobConfig& config) {
                                   config.stages = stages;
                                   change(config);
                                 }),
                                 on_cuda_.at(static_cast<std::size_t>(stages - 1)));
  }

  static constexpr int kNewTokens = 8;
  static inline std::unique_ptr<TinyOpt> tiny_;
  static inline std::string prompts_;
  static inline Results on_host_;
  static inline std::vector<Results> on_cuda_;  ///< by the number of stages
};

constexpr Percent kMixes[] = {
    {0, 100, 100, 0, 100, 0}, {0, 0, 100, 0, 100, 0},   {100, 0, 0, 100, 100, 0},
    {100, 0, 0, 0, 100, 0},   {100, 0, 100, 0, 0, 100}, {100, 0, 100, 0, 0, 0},
    {0, 0, 0, 0, 0, 0},       {33, 33, 33, 33, 50, 50}, {7, 61, 10, 80, 100, 0},
};

TEST_F(CudaJob, GivesTheTokensOfTheHost) {
  for (const auto& results : on_cuda_) {
    testing::expect_same_greedy_tokens(results, on_host_);
  }
}

TEST_F(CudaJob, SameBytesForEveryPlacementAndNumberOfStages) {
  for (std::size_t i = 0; i < std::size(kMixes); ++i) {
    SCOPED_TRACE(stage::format_percent(kMixes[i]));
    expect_same_bytes(static_cast<int>(i % 4) + 1,
                      [&](JobConfig& config) { config.policies.front().percent = kMixes[i]; });
  }
}

constexpr Percent kSpread = {20, 40, 30, 30, 0, 50};

TEST_F(CudaJob, SameBytesForEverySchedule) {
  for (const auto schedule :
       {ScheduleKind::rolling, ScheduleKind::zigzag, ScheduleKind::row, ScheduleKind::flexgen}) {
    SCOPED_TRACE(stage::to_string(schedule));
    const auto on_device = run([&](JobConfig& config) {
      config.schedule = schedule;
      config.stages = 2;
    });
    testing::expect_same_greedy_tokens(on_device, on_host_);
    testing::expect_same_results(run([&](JobConfig& config) {
                                   config.schedule = schedule;
                                   config.stages = 2;
                                   config.policies.front().percent = kSpread;
                                 }),
                                 on_device);
  }
}

TEST_F(CudaJob, SameBytesWithoutOverlap) {
  expect_same_bytes(1, [](JobConfig& config) {
    config.overlap = false;
    config.policies.front().percent = kSpread;
  });
}

TEST_F(CudaJob, SameBytesWhateverNoEventOrders) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    auto settings = enough();
    settings.adversary_seed = seed;
    cuda_standin::reset(settings);
    expect_same_bytes(static_cast<int>(seed % 3) + 1, [&](JobConfig& config) {
      config.policies.front().percent = seed % 2 == 0 ? kSpread : Percent{10, 30, 20, 40, 0, 50};
      config.test_delay_seed = seed;
    });
  }
}

TEST_F(CudaJob, SameBytesWhereNothingCanBePinned) {
  auto settings = enough();
  settings.pinnable_bytes = 0;
  cuda_standin::reset(settings);
  expect_same_bytes(1, [&](JobConfig& config) { config.policies.front().percent = kSpread; });
}

TEST_F(CudaJob, AttentionOnTheCpuGivesTheTokensOfTheHost) {
  for (const auto& percent : {Percent{100, 0, 0, 100, 100, 0}, Percent{100, 0, 50, 25, 100, 0},
                              Percent{0, 100, 0, 0, 0, 100}}) {
    SCOPED_TRACE(stage::format_percent(percent));
    testing::expect_same_greedy_tokens(run([&](JobConfig& config) {
                                         config.policies.front().percent = percent;
                                         config.policies.front().cpu_attention = Switch::on;
                                         config.stages = 2;
                                       }),
                                       on_host_);
  }
}

TEST_F(CudaJob, BatchShapesAndPagesGiveTheTokensOfTheHost) {
  struct Shape {
    stage::BatchShape batch;
    int stages;
  };
  const Shape shapes[] = {
      {{.gpu_batch_size = 1, .num_gpu_batches = 1, .prefill_piece = 7}, 1},
      {{.gpu_batch_size = 16, .num_gpu_batches = 1, .prefill_piece = 512}, 2},
      {{.gpu_batch_size = 3, .num_gpu_batches = 3, .prefill_piece = 50, .page_tokens = 32}, 3},
      {{.gpu_batch_size = 5, .num_gpu_batches = 2, .prefill_piece = 200, .page_tokens = 64}, 4},
  };
  for (const auto& shape : shapes) {
    SCOPED_TRACE(fmt::format("batches of {}, {} stages", shape.batch.gpu_batch_size, shape.stages));
    testing::expect_same_greedy_tokens(run([&](JobConfig& config) {
                                         config.batch = shape.batch;
                                         config.stages = shape.stages;
                                         config.policies.front().percent = kSpread;
                                       }),
                                       on_host_);
  }
}

struct Compressed {
  const char* name;
  double near;  ///< a 4-bit code flips where f16 moves a number over an edge
  void (*change)(JobConfig&);
};

constexpr Compressed kCompressed[] = {
    {"int4 weights and cache", 0.25,
     [](JobConfig& config) {
       config.compression = {.weights = Packing::int4, .group = 64};
       config.batch.kv_format = device::KvFormat(device::KvType::int4, 64);
     }},
    {"int8 weights, f32 cache", 0.03,
     [](JobConfig& config) {
       config.compression = {.weights = Packing::int8, .group = 32};
       config.batch.kv_format = device::KvType::f32;
     }},
    {"sparse attention, int8 cache", 0.06,
     [](JobConfig& config) {
       config.batch.attention_sparsity = 0.3;
       config.batch.kv_format = device::KvFormat(device::KvType::int8, 32);
     }},
};

TEST_F(CudaJob, CompressionAndSparseAttentionGiveTheTokensOfTheHost) {
  for (const auto& compressed : kCompressed) {
    SCOPED_TRACE(compressed.name);
    // Few visits: widening takes long here.
    const auto change = [&](JobConfig& config) {
      config.batch = {.gpu_batch_size = 6, .num_gpu_batches = 2, .prefill_piece = 300};
      compressed.change(config);
      config.stages = 2;
    };
    const auto host = run([&](JobConfig& config) {
      change(config);
      config.device = "host";
    });
    for (const auto cpu_attention : {Switch::off, Switch::on}) {
      testing::expect_same_greedy_tokens(run([&](JobConfig& config) {
                                           compressed.change(config);
                                           config.policies.front().percent =
                                               cpu_attention == Switch::on
                                                   ? Percent{30, 70, 30, 30, 50, 50}
                                                   : Percent{100, 0, 100, 0, 100, 0};
                                           config.policies.front().cpu_attention = cpu_attention;
                                           config.stages = 2;
                                         }),
                                         host, compressed.near, 0.75);
    }
  }
}

}  // namespace
}  // namespace stagecoach
