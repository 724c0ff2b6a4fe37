// Random policies, budgets, stages, schedules and batch shapes: the same bytes as with everything
// resident, no more memory than planned and allowed, and nothing held at the end.
//
// STAGECOACH_TEST_SEED repeats a run, STAGECOACH_TEST_DRAWS makes it longer.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>

#include "base/hash.hpp"
#include "e2e/tiny_opt.hpp"
#include "job/agreement.hpp"
#include "job/run_rank.hpp"
#include "support/named_flags.hpp"

namespace stagecoach {
namespace {

using job::JobConfig;
using job::JobRefused;
using stage::Percent;
using stage::ScheduleKind;
using stage::Switch;
using testing::TinyOpt;
using Results = std::map<std::string, std::string>;

constexpr std::size_t kMebibyte = std::size_t{1} << 20;
constexpr int kRequests = 24;
constexpr int kLayers = 8;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Whole numbers and choices, the same for a seed everywhere.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(std::int64_t count) { return between(1, count) == 1; }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return *(choices.begin() + between(0, static_cast<std::int64_t>(choices.size()) - 1));
  }

 private:
  std::mt19937_64 random_;
};

/// Budgets: more than is needed, just enough, or any, which may be refused.
enum class Room { roomy, tight, guessed };
constexpr Room kRooms[] = {Room::roomy, Room::tight, Room::roomy, Room::tight, Room::guessed};

/// Shares of device and CPU: often all in one tier, else cut anywhere.
std::pair<double, double> draw_shares(Draw& draw) {
  switch (draw.between(0, 4)) {
    case 0:
      return {100, 0};
    case 1:
      return {0, 100};
    case 2:
      return {0, 0};
    default: {
      const auto device = draw.between(0, 100);
      return {device, draw.between(0, 100 - device)};
    }
  }
}

stage::Policy draw_policy(Draw& draw, Room room, const std::string& folder) {
  stage::Policy policy;
  auto& percent = policy.percent;
  std::tie(percent.weights_device, percent.weights_cpu) = draw_shares(draw);
  std::tie(percent.cache_device, percent.cache_cpu) = draw_shares(draw);
  std::tie(percent.hidden_device, percent.hidden_cpu) = draw_shares(draw);
  policy.offload_dir = folder;
  policy.cpu_attention = draw.one_of({Switch::off, Switch::on, Switch::automatic});
  policy.pin_weights = draw.one_of({Switch::off, Switch::automatic, Switch::automatic, Switch::on});
  policy.widen_weights = draw.one_of({Switch::off, Switch::on, Switch::automatic});
  policy.weight_buffers = draw.one_of<std::int64_t>({0, 0, 0, 1, 2, 3, 5});
  const auto budget = [&](std::int64_t most) {
    switch (room) {
      case Room::roomy:
        return 512 * kMebibyte;
      case Room::tight:
        return kMebibyte;  // to be raised to what is asked for
      default:
        return static_cast<std::size_t>(draw.between(1, most)) * kMebibyte;
    }
  };
  policy.device_mem_bytes = budget(48);
  policy.cpu_mem_bytes = budget(96);
  policy.disk_mem_bytes = budget(24);
  return policy;
}

/// What decides a job's results beside its requests.
struct Kind {
  std::int64_t page_tokens = 16;
  device::KvFormat kv_format{};
  model::WeightFormat weights{};
  double sparsity = 1;

  [[nodiscard]] std::string name() const {
    return fmt::format("pages of {}, cache {} by {}, weights {}, sparsity {}", page_tokens,
                       static_cast<int>(kv_format.type), kv_format.group, describe(weights),
                       sparsity);
  }
};

Kind draw_kind(Draw& draw) {
  using device::KvType;
  Kind kind{.page_tokens = draw.one_of<std::int64_t>({16, 16, 32, 64})};
  kind.kv_format = draw.one_of({KvType::f16, KvType::f16, KvType::f32, KvType::int4, KvType::int8});
  if (draw.one_in(3)) {
    kind.weights.layers.packing = draw.one_of({Packing::int4, Packing::int8});
    kind.weights.embeddings = draw.one_in(2);
  }
  kind.sparsity = draw.one_in(3) ? 0.2 : 1.0;
  return kind;
}

std::vector<std::int64_t> draw_partition(Draw& draw, int stages) {
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages), 1);
  for (int i = stages; i < kLayers; ++i) {
    layers[static_cast<std::size_t>(draw.between(0, stages - 1))] += 1;
  }
  return layers;
}

class RandomPlacement : public ::testing::Test {
 protected:
  RandomPlacement() {
    std::istringstream lines(testing::mixed_requests(kRequests));
    for (std::string line; std::getline(lines, line);) {
      requests_.push_back(line);
    }
  }

  JobConfig resident(const Kind& kind) {
    auto config = testing::tiny_job(tiny_, "", tiny_.fresh_file("out"));
    config.num_logprobs = 3;
    config.prompt_logprobs = true;
    config.batch.page_tokens = kind.page_tokens;
    config.batch.kv_format = kind.kv_format;
    config.batch.attention_sparsity = kind.sparsity;
    if (kind.weights.packed()) {
      config.model_path = tiny_.packed_store(kind.weights);
    }
    return config;
  }

  std::optional<job::RunReport> run(JobConfig config, const std::vector<int>& requests) {
    std::string lines;
    for (const int i : requests) {
      lines += requests_.at(static_cast<std::size_t>(i)) + "\n";
    }
    config.prompts_path = tiny_.folder().write("prompts.jsonl", lines);
    return job::run_loopback(config, Log("", "error"));
  }

  /// What these requests give with everything resident: one job gives all.
  Results expected(const Kind& kind, const std::vector<int>& requests) {
    auto& all = resident_[kind.name()];
    if (all.empty()) {
      std::vector<int> every(kRequests);
      std::iota(every.begin(), every.end(), 0);
      const auto config = resident(kind);
      run(config, every);
      all = testing::read_results(config.output_path);
    }
    Results some;
    for (const int i : requests) {
      const auto id = nlohmann::json::parse(requests_.at(static_cast<std::size_t>(i))).at("id");
      some.insert(*all.find(id.is_string() ? id.get<std::string>() : id.dump()));
    }
    return some;
  }

  /// Runs the job of one draw; says whether it ran or was refused.
  bool run_draw(std::uint64_t seed, Room room);
  JobConfig draw_job(Draw& draw, Room room, const Kind& kind);
  std::vector<int> draw_requests(Draw& draw, bool few);

  TinyOpt tiny_;
  testing::TempFolder offload_;
  std::vector<std::string> requests_;
  std::map<std::string, Results> resident_;  ///< by kind
};

JobConfig RandomPlacement::draw_job(Draw& draw, Room room, const Kind& kind) {
  auto config = resident(kind);
  config.stages = static_cast<int>(draw.between(1, 4));
  config.layers_per_stage = draw_partition(draw, config.stages);
  config.threads = static_cast<int>(draw.between(1, 2));
  config.batch.gpu_batch_size = draw.between(1, 6);
  config.batch.num_gpu_batches = draw.between(1, 4);
  config.batch.prefill_piece = draw.one_of<std::int64_t>({13, 48, 96, 500});
  if (draw.one_in(3)) {
    config.batch.inner_iterations = draw.between(1, 6);
    config.inner_iterations_given = true;
  }
  config.schedule = draw.one_of({ScheduleKind::rolling, ScheduleKind::rolling, ScheduleKind::zigzag,
                                 ScheduleKind::row, ScheduleKind::flexgen});
  config.overlap = !draw.one_in(5);
  config.disk_backend =
      draw.one_of({offload::DiskBackend::automatic, offload::DiskBackend::threads});
  config.test_staging = draw.one_in(2);
  config.test_delay_seed = draw.one_in(5) ? static_cast<std::uint64_t>(draw.between(1, 99)) : 0;
  config.policies.clear();
  const int policies = draw.one_in(2) ? 1 : config.stages;
  for (int i = 0; i < policies; ++i) {
    config.policies.push_back(draw_policy(draw, room, offload_.path()));
  }
  return config;
}

std::vector<int> RandomPlacement::draw_requests(Draw& draw, bool few) {
  std::vector<int> all(kRequests);
  std::iota(all.begin(), all.end(), 0);
  const auto count =
      static_cast<std::size_t>(few ? draw.between(1, 4) : draw.between(1, kRequests));
  std::vector<int> some;
  while (some.size() < count) {
    const auto at = all.begin() + draw.between(0, static_cast<std::int64_t>(all.size()) - 1);
    some.push_back(*at);
    all.erase(at);
  }
  return some;
}

/// Changes what a refusal asks to be changed; false if it names nothing. The stage that refuses is
/// named unless it is the first.
bool follow_advice(JobConfig& config, const std::string& message) {
  std::size_t stage = 0;
  if (message.rfind("rank ", 0) == 0) {
    stage = std::stoul(message.substr(5));
  }
  auto& policy = config.policies.at(config.policies.size() == 1 ? 0 : stage);
  bool any = message.find("--pin-weights auto") != std::string::npos;
  if (any) {
    policy.pin_weights = Switch::automatic;
  }
  for (const auto& named : testing::named_flags(message)) {
    auto& budget = named.flag == "--device-mem" ? policy.device_mem_bytes
                   : named.flag == "--cpu-mem"  ? policy.cpu_mem_bytes
                                                : policy.disk_mem_bytes;
    EXPECT_GT(named.size_bytes, budget) << message;
    budget = named.size_bytes;
    any = true;
  }
  return any;
}

std::string describe(const JobConfig& config, const std::vector<int>& requests) {
  return fmt::format("requests {}\n{}", ::testing::PrintToString(requests), job::to_json(config));
}

void expect_within_plan(const job::RunReport& report, const JobConfig& config) {
  ASSERT_EQ(report.stages.size(), static_cast<std::size_t>(config.stages));
  for (std::size_t i = 0; i < report.stages.size(); ++i) {
    SCOPED_TRACE(fmt::format("stage {}", i));
    const auto& stage = report.stages[i];
    const auto& policy = config.policy(static_cast<int>(i));
    EXPECT_TRUE(stage.memory.fits()) << stage::format_report(stage.memory);
    EXPECT_LE(stage.memory.budgets.device, policy.device_mem_bytes);
    EXPECT_LE(stage.memory.budgets.cpu, policy.cpu_mem_bytes);
    EXPECT_LE(stage.memory.budgets.disk, policy.disk_mem_bytes);
    for (const auto tier : offload::kTiers) {
      EXPECT_LE(static_cast<std::size_t>(stage.peak_bytes.of(tier)), stage.memory.total_bytes(tier))
          << to_string(tier);
    }
    EXPECT_GT(stage.peak_bytes.device, 0);
    EXPECT_EQ(stage.live_pages, 0);
    EXPECT_EQ(stage.open_pages, 0);
  }
}

bool RandomPlacement::run_draw(std::uint64_t seed, Room room) {
  Draw draw(seed);
  const auto kind = draw_kind(draw);
  auto config = draw_job(draw, room, kind);
  const auto requests = draw_requests(draw, config.test_delay_seed != 0);
  for (int refusals = 0;; ++refusals) {
    SCOPED_TRACE(describe(config, requests));
    try {
      const auto report = run(config, requests);
      testing::expect_same_results(testing::read_results(config.output_path),
                                   expected(kind, requests));
      expect_within_plan(report.value(), config);
      return true;
    } catch (const JobRefused& refusal) {
      EXPECT_EQ(refusal.exit_code(), 2) << refusal.what();
      EXPECT_THAT(refusal.what(), ::testing::HasSubstr("--"));
      if (room != Room::tight || refusals > 2 * config.stages) {
        EXPECT_EQ(room, Room::guessed) << refusal.what();
        return false;
      }
      if (!follow_advice(config, refusal.what())) {
        ADD_FAILURE() << "no flag is named: " << refusal.what();
        return false;
      }
    }
  }
}

TEST_F(RandomPlacement, SameResultsWithinPlanAndBudgets) {
  const auto seed = setting("STAGECOACH_TEST_SEED", std::random_device()());
  const auto draws = setting("STAGECOACH_TEST_DRAWS", 25);
  fmt::print("STAGECOACH_TEST_SEED={}\n", seed);
  std::uint64_t ran = 0;
  for (std::uint64_t i = 0; i < draws && !HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("STAGECOACH_TEST_SEED={}, draw {}", seed, i));
    ran += run_draw(mix_bits(seed + i), kRooms[i % std::size(kRooms)]) ? 1 : 0;
    EXPECT_TRUE(std::filesystem::is_empty(offload_.path()));
  }
  if (!HasFailure()) {
    fmt::print("{} of {} draws ran, the others were refused\n", ran, draws);
    EXPECT_GE(ran * 4, draws * 3);
  }
}

}  // namespace
}  // namespace stagecoach
