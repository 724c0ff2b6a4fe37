// Same requests, same bytes, wherever weights, cache and activations live, and however the visits
// are ordered.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>

#include "base/aligned_memory.hpp"
#include "base/file.hpp"
#include "e2e/tiny_opt.hpp"
#include "job/run_rank.hpp"
#include "offload/direct_file.hpp"

namespace stagecoach {
namespace {

using job::JobConfig;
using stage::Percent;
using stage::ScheduleKind;
using stage::Switch;
using testing::TinyOpt;
using Results = std::map<std::string, std::string>;

class Placement : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tiny_ = std::make_unique<TinyOpt>();
    prompts_ = tiny_->folder().write("mixed.jsonl", testing::mixed_requests(kRequests));
    baseline_ = run([](JobConfig&) {});
    ASSERT_EQ(baseline_.size(), static_cast<std::size_t>(kRequests));
  }
  static void TearDownTestSuite() { tiny_.reset(); }

  /// Results of the job after `change`; every line has its logprobs in digits that read back
  /// exactly. Blocks of two GPU batches and short pieces, so that everything takes turns.
  static Results run(const std::function<void(JobConfig&)>& change) {
    const auto output = tiny_->fresh_file("out");
    auto config = testing::tiny_job(*tiny_, prompts_, output);
    config.num_logprobs = 3;
    config.prompt_logprobs = true;
    config.batch = {.gpu_batch_size = 4, .num_gpu_batches = 2, .prefill_piece = 96};
    config.policies.front().offload_dir = tiny_->folder().path();
    change(config);
    job::run_loopback(config, Log("", "error"));
    return testing::read_results(output);
  }

  static void expect_baseline(const std::function<void(JobConfig&)>& change) {
    testing::expect_same_results(run(change), baseline_);
  }

  static constexpr int kRequests = 24;
  static inline std::unique_ptr<TinyOpt> tiny_;
  static inline std::string prompts_;
  static inline Results baseline_;
};

constexpr Percent kMixes[] = {
    // One thing in one tier.
    {0, 100, 100, 0, 100, 0},
    {0, 0, 100, 0, 100, 0},
    {100, 0, 0, 100, 100, 0},
    {100, 0, 0, 0, 100, 0},
    {100, 0, 100, 0, 0, 100},
    {100, 0, 100, 0, 0, 0},
    // Everything in one tier.
    {0, 100, 0, 100, 0, 100},
    {0, 0, 0, 0, 0, 0},
    // Weights cut inside a matrix.
    {50, 50, 100, 0, 100, 0},
    {20, 0, 100, 0, 100, 0},
    {33, 33, 100, 0, 100, 0},
    {1, 98, 100, 0, 100, 0},
    {99, 0.5, 100, 0, 100, 0},
    {7, 61, 100, 0, 100, 0},
    // Sequences over two and three tiers.
    {100, 0, 50, 50, 100, 0},
    {100, 0, 50, 0, 100, 0},
    {100, 0, 0, 50, 100, 0},
    {100, 0, 33, 33, 100, 0},
    {100, 0, 10, 80, 100, 0},
    {100, 0, 90, 5, 100, 0},
    // Activations of one batch here, of another there.
    {100, 0, 100, 0, 50, 50},
    {100, 0, 100, 0, 50, 0},
    {100, 0, 100, 0, 0, 50},
    // The paper's policies, and all at once.
    {20, 80, 0, 100, 0, 100},
    {0, 50, 0, 0, 0, 100},
    {10, 90, 0, 100, 0, 100},
    {0, 100, 0, 0, 100, 0},
    {30, 30, 30, 30, 50, 0},
    {25, 25, 25, 50, 0, 50},
    {60, 10, 20, 70, 50, 50},
    {5, 5, 5, 5, 50, 50},
    {0, 20, 40, 0, 0, 0},
};

TEST_F(Placement, EveryMix) {
  static_assert(std::size(kMixes) >= 30);
  for (std::size_t i = 0; i < std::size(kMixes); ++i) {
    SCOPED_TRACE(stage::format_percent(kMixes[i]));
    expect_baseline([&](JobConfig& config) {
      config.policies.front().percent = kMixes[i];
      config.stages = static_cast<int>(i % 4) + 1;
      config.test_staging = i % 3 == 1;
    });
  }
}

constexpr Percent kSpread = {20, 40, 30, 30, 0, 50};

TEST_F(Placement, EverySchedule) {
  for (const auto schedule :
       {ScheduleKind::rolling, ScheduleKind::zigzag, ScheduleKind::row, ScheduleKind::flexgen}) {
    for (const bool overlap : {true, false}) {
      for (const int stages : {1, 3}) {
        SCOPED_TRACE(
            fmt::format("{}, overlap {}, {} stages", stage::to_string(schedule), overlap, stages));
        expect_baseline([&](JobConfig& config) {
          config.schedule = schedule;
          config.overlap = overlap;
          config.stages = stages;
          config.policies.front().percent = kSpread;
          config.test_staging = stages == 3;
        });
      }
    }
  }
}

TEST_F(Placement, CpuAttention) {
  for (const auto cpu_attention : {Switch::off, Switch::on}) {
    for (const auto& percent : {Percent{100, 0, 0, 100, 100, 0}, Percent{100, 0, 50, 25, 100, 0},
                                Percent{0, 100, 0, 0, 100, 0}}) {
      SCOPED_TRACE(stage::format_percent(percent));
      expect_baseline([&](JobConfig& config) {
        config.policies.front().percent = percent;
        config.policies.front().cpu_attention = cpu_attention;
        config.stages = 2;
      });
    }
  }
}

TEST_F(Placement, WeightBuffers) {
  for (const std::int64_t buffers : {1, 2, 3, 9}) {
    SCOPED_TRACE(buffers);
    expect_baseline([&](JobConfig& config) {
      config.policies.front().percent = {10, 40, 100, 0, 100, 0};
      config.policies.front().weight_buffers = buffers;
    });
  }
}

TEST_F(Placement, DiskThreads) {
  expect_baseline([](JobConfig& config) {
    config.disk_backend = offload::DiskBackend::threads;
    config.policies.front().percent = {0, 0, 0, 0, 0, 0};
  });
}

/// The part of a file that the page cache holds, from 0 to 1.
double cached_part(const std::string& path) {
  const File file(path, File::Mode::read);
  const auto size = static_cast<std::size_t>(file.size_bytes());
  void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  std::vector<unsigned char> pages((size + kPageBytes - 1) / kPageBytes);
  EXPECT_EQ(::mincore(mapped, size, pages.data()), 0);
  ::munmap(mapped, size);
  const auto cached =
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; });
  return static_cast<double>(cached) / static_cast<double>(pages.size());
}

TEST_F(Placement, StreamedWeightsAreNotKeptInThePageCache) {
  if (!offload::DirectFile::open_for_reading(tiny_->store()).direct()) {
    GTEST_SKIP() << "this file system has no direct reads";
  }
  const auto store = tiny_->folder().file("uncached.h5");
  std::filesystem::copy_file(tiny_->store(), store);
  const File file(store, File::Mode::read);
  file.sync();
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  ASSERT_LT(cached_part(store), 0.1);
  expect_baseline([&](JobConfig& config) {
    config.model_path = store;
    config.policies.front().percent = {0, 0, 100, 0, 100, 0};
  });
  // Only the index and the tables, which are a tenth of it, were read through it.
  EXPECT_LT(cached_part(store), 0.4);
}

TEST_F(Placement, PageSizes) {
  for (const std::int64_t page_tokens : {32, 64}) {
    const auto change = [&](JobConfig& config) { config.batch.page_tokens = page_tokens; };
    const auto resident = run(change);
    testing::expect_same_results(run([&](JobConfig& config) {
                                   change(config);
                                   config.policies.front().percent = kSpread;
                                   config.stages = 2;
                                 }),
                                 resident);
  }
}

TEST_F(Placement, EachStageItsOwnPolicy) {
  expect_baseline([](JobConfig& config) {
    config.stages = 3;
    config.policies.assign(3, config.policies.front());
    config.policies[0].percent = {0, 0, 0, 100, 0, 0};
    config.policies[2].percent = {50, 50, 0, 0, 100, 0};
  });
}

TEST_F(Placement, DelaysAndScarcePages) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    expect_baseline([&](JobConfig& config) {
      config.test_delay_seed = seed;
      config.disk_backend = offload::DiskBackend::threads;  // whose accesses sanitizers see
      config.stages = 2;
      config.policies.front().percent = {10, 30, 20, 40, 0, 50};
      config.policies.front().disk_mem_bytes = std::size_t{9} << 20;
    });
  }
}

}  // namespace
}  // namespace stagecoach
