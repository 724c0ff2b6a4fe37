// Packed weights and cache and sparse attention: same requests, same bytes, for every number of
// stages, placement and schedule, between runs with the same compression; and what they save.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "e2e/tiny_opt.hpp"
#include "job/agreement.hpp"
#include "job/run_rank.hpp"
#include "model/convert.hpp"
#include "offload/weight_source.hpp"

namespace stagecoach {
namespace {

using job::JobConfig;
using stage::Percent;
using stage::ScheduleKind;
using stage::Switch;
using testing::TinyOpt;
using Results = std::map<std::string, std::string>;

/// What decides the bytes of a job's results.
struct Kind {
  const char* name;
  Packing weights = Packing::none;
  bool embeddings = false;
  device::KvFormat cache{};
  double sparsity = 1;
};

const Kind kKinds[] = {
    {"int4 weights", Packing::int4},
    {"int4 cache", Packing::none, false, device::KvType::int4},
    {"int8 weights, embeddings and cache", Packing::int8, true, device::KvType::int8},
    {"sparse", Packing::none, false, device::KvType::f16, 0.2},
    {"int4 weights and cache by groups of 32, sparse",
     Packing::int4,
     true,
     {device::KvType::int4, 32},
     0.1},
};

class Compression : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tiny_ = std::make_unique<TinyOpt>();
    prompts_ = tiny_->folder().write("mixed.jsonl", testing::mixed_requests(kRequests));
  }
  static void TearDownTestSuite() { tiny_.reset(); }

  static model::WeightFormat weights_of(const Kind& kind) {
    return {.layers = {kind.weights, kind.cache.group}, .embeddings = kind.embeddings};
  }

  /// Results of the job after `change`, with logprobs in digits that read back exactly.
  static Results run(const Kind& kind, const std::function<void(JobConfig&)>& change) {
    const auto output = tiny_->fresh_file("out");
    auto config = testing::tiny_job(*tiny_, prompts_, output);
    config.num_logprobs = 3;
    config.prompt_logprobs = true;
    config.batch = {.gpu_batch_size = 4,
                    .num_gpu_batches = 2,
                    .prefill_piece = 96,
                    .kv_format = kind.cache,
                    .attention_sparsity = kind.sparsity};
    if (kind.weights != Packing::none) {
      config.model_path = tiny_->packed_store(weights_of(kind));
    }
    config.policies.front().offload_dir = tiny_->folder().path();
    change(config);
    job::run_loopback(config, Log("", "error"));
    return testing::read_results(output);
  }

  static constexpr int kRequests = 20;
  static inline std::unique_ptr<TinyOpt> tiny_;
  static inline std::string prompts_;
};

constexpr Percent kMixes[] = {
    {0, 0, 0, 0, 0, 0},       {0, 100, 0, 100, 0, 100}, {100, 0, 50, 50, 100, 0},
    {50, 50, 33, 33, 50, 50}, {20, 40, 0, 100, 100, 0}, {0, 50, 30, 0, 0, 50},
    {100, 0, 100, 0, 100, 0},
};

TEST_F(Compression, SameBytesForEveryPlacementAndNumberOfStages) {
  for (const auto& kind : kKinds) {
    const auto baseline = run(kind, [](JobConfig&) {});
    ASSERT_EQ(baseline.size(), static_cast<std::size_t>(kRequests));
    for (std::size_t i = 0; i < std::size(kMixes); ++i) {
      SCOPED_TRACE(fmt::format("{}: {}", kind.name, stage::format_percent(kMixes[i])));
      testing::expect_same_results(run(kind,
                                       [&](JobConfig& config) {
                                         auto& policy = config.policies.front();
                                         policy.percent = kMixes[i];
                                         policy.cpu_attention =
                                             i % 2 == 0 ? Switch::off : Switch::on;
                                         config.stages = static_cast<int>(i % 4) + 1;
                                         config.test_staging = i % 3 == 1;
                                       }),
                                   baseline);
    }
  }
}

TEST_F(Compression, SameBytesForEverySchedule) {
  const auto& kind = kKinds[4];
  const auto baseline = run(kind, [](JobConfig&) {});
  for (const auto schedule :
       {ScheduleKind::rolling, ScheduleKind::zigzag, ScheduleKind::row, ScheduleKind::flexgen}) {
    for (const auto cpu_attention : {Switch::off, Switch::on}) {
      SCOPED_TRACE(
          fmt::format("{} {}", stage::to_string(schedule), static_cast<int>(cpu_attention)));
      testing::expect_same_results(run(kind,
                                       [&](JobConfig& config) {
                                         config.schedule = schedule;
                                         config.stages = 2;
                                         config.policies.front().percent = {20, 40, 30, 40, 50, 50};
                                         config.policies.front().cpu_attention = cpu_attention;
                                         config.test_staging = true;
                                       }),
                                   baseline);
    }
  }
}

TEST_F(Compression, SameBytesForEveryBatchShapeAndPiece) {
  for (const auto& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const auto baseline = run(kind, [](JobConfig&) {});
    for (const std::int64_t piece : {1, 7, 512}) {
      testing::expect_same_results(run(kind,
                                       [&](JobConfig& config) {
                                         config.batch.gpu_batch_size = 1 + piece % 5;
                                         config.batch.num_gpu_batches = 3;
                                         config.batch.prefill_piece = piece;
                                       }),
                                   baseline);
    }
  }
}

TEST_F(Compression, SameBytesWidenedOrNot) {
  const auto& kind = kKinds[0];
  const auto baseline = run(kind, [](JobConfig&) {});
  for (const auto& percent : {Percent{}, Percent{30, 30, 100, 0, 100, 0}}) {
    testing::expect_same_results(run(kind,
                                     [&](JobConfig& config) {
                                       config.policies.front().percent = percent;
                                       config.policies.front().widen_weights = Switch::on;
                                     }),
                                 baseline);
  }
}

TEST_F(Compression, SameBytesWithDelays) {
  const auto& kind = kKinds[4];
  const auto baseline = run(kind, [](JobConfig&) {});
  for (const auto cpu_attention : {Switch::off, Switch::on}) {
    testing::expect_same_results(run(kind,
                                     [&](JobConfig& config) {
                                       config.test_delay_seed = 7;
                                       config.disk_backend = offload::DiskBackend::threads;
                                       config.stages = 2;
                                       config.test_staging = true;
                                       auto& policy = config.policies.front();
                                       policy.percent = {10, 30, 20, 60, 0, 50};
                                       policy.cpu_attention = cpu_attention;
                                       policy.widen_weights = Switch::on;
                                     }),
                                 baseline);
  }
}

TEST_F(Compression, AF16StorePackedAtLoadIsThePackedStore) {
  for (const auto& kind : {kKinds[0], kKinds[2]}) {
    SCOPED_TRACE(kind.name);
    testing::expect_same_results(
        run(kind,
            [&](JobConfig& config) {
              config.model_path = tiny_->store();
              config.compression = {kind.weights, kind.cache.group, kind.embeddings};
              config.policies.front().percent = {50, 50, 100, 0, 100, 0};
            }),
        run(kind, [](JobConfig&) {}));
  }
}

/// Copies a packed store, every packed tensor as the f16 numbers that it means.
void write_meaning(const std::string& from, const std::string& to) {
  auto index = model::read_store_index(from);
  const auto source = offload::open_store_source(index);
  model::StoreWriter writer(to, index.spec, index.tokenizer, {});
  for (const auto& [group, tensors] : index.groups) {
    for (const auto& stored : tensors) {
      const auto& tensor = stored.tensor;
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.size_bytes()));
      source->read(group, tensor, 0, bytes, {});
      if (!tensor.format.packed()) {
        writer.append(group, tensor.name, bytes);
        continue;
      }
      std::vector<Half> row(static_cast<std::size_t>(tensor.columns()));
      for (std::int64_t i = 0; i < tensor.rows(); ++i) {
        unpack_row(tensor.format, bytes.data() + i * tensor.row_bytes(), row);
        writer.append(group, tensor.name, std::as_bytes(std::span(row)));
      }
    }
  }
  writer.finish();
}

TEST_F(Compression, PackedWeightsComputeAsTheF16NumbersThatTheyMean) {
  const Kind packed{"all weights", Packing::int4, true};
  const auto store = tiny_->folder().file("meaning.h5");
  write_meaning(tiny_->packed_store(weights_of(packed)), store);
  testing::expect_same_results(run(packed, [](JobConfig&) {}),
                               run({"f16"}, [&](JobConfig& config) { config.model_path = store; }));
}

TEST_F(Compression, DiskNeedsAPackedStore) {
  try {
    run(kKinds[0], [](JobConfig& config) {
      config.model_path = tiny_->store();
      config.compression.weights = Packing::int4;
      config.policies.front().percent = {50, 0, 100, 0, 100, 0};
      config.dry_run = true;  // known beforehand
    });
    FAIL() << "expected a refusal";
  } catch (const job::JobRefused& refusal) {
    EXPECT_EQ(refusal.exit_code(), 2);
    EXPECT_THAT(refusal.what(), ::testing::HasSubstr("convert"));
    EXPECT_THAT(refusal.what(), ::testing::HasSubstr("--quantize int4"));
  }
}

TEST_F(Compression, APackedStoreIsNotPackedOtherwise) {
  try {
    run(kKinds[0], [](JobConfig& config) { config.compression.weights = Packing::int8; });
    FAIL() << "expected a refusal";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("int4, groups of 64"));
  }
}

/// Layers wide enough that vectors and padding do not matter.
model::ModelSpec wide_spec() {
  model::ModelSpec spec;
  spec.layers = 2;
  spec.hidden = 1024;
  spec.heads = spec.kv_heads = 16;
  spec.head_dim = 64;
  spec.ffn = 4096;
  spec.vocab = 512;
  spec.max_positions = 256;
  spec.position_offset = 2;
  return spec;
}

/// What the one stage of a job moved, with weights and cache outside the device.
stage::EngineTotals moved(const std::string& store, const device::KvFormat& cache,
                          const Percent& percent, const std::string& folder) {
  std::string prompts;
  for (int i = 0; i < 4; ++i) {
    std::vector<int> tokens(60, 5 + i);
    prompts +=
        nlohmann::json{
            {"id", i}, {"prompt_token_ids", tokens}, {"max_new_tokens", 20}, {"ignore_eos", true}}
            .dump() +
        "\n";
  }
  const testing::TempFolder out;
  JobConfig config;
  config.model_path = store;
  config.prompts_path = out.write("prompts.jsonl", prompts);
  config.output_path = out.file("out.jsonl");
  config.threads = 2;
  config.log_level = "error";
  config.batch = {.gpu_batch_size = 2, .num_gpu_batches = 2, .kv_format = cache};
  config.policies.front() = {
      .percent = percent, .offload_dir = folder, .cpu_attention = Switch::off};
  return job::run_loopback(config, Log("", "error"))->stages.at(0).totals;
}

TEST_F(Compression, Int4MovesLessThan29PerCent) {
  const auto spec = wide_spec();
  const auto plain = tiny_->folder().file("wide.h5");
  const auto packed = tiny_->folder().file("wide-int4.h5");
  model::convert_dummy(spec, 1, plain, false, nullptr);
  model::convert_dummy(spec, 1, packed, false, nullptr, {.layers = {Packing::int4}});
  constexpr auto kMost = 0.29;
  const auto bytes = [](const stage::EngineTotals& totals, stage::Resource resource) {
    return static_cast<double>(totals.bytes[static_cast<std::size_t>(resource)]);
  };
  const auto expect_less = [&](const Percent& percent, stage::Resource resource) {
    const auto f16 = moved(plain, device::KvType::f16, percent, tiny_->folder().path());
    const auto int4 = moved(packed, device::KvType::int4, percent, tiny_->folder().path());
    EXPECT_GT(bytes(f16, resource), 1e8);
    EXPECT_EQ(f16.rows, int4.rows);
    EXPECT_LE(bytes(int4, resource), kMost * bytes(f16, resource)) << to_string(resource);
  };
  expect_less({0, 0, 100, 0, 100, 0}, stage::Resource::disk_read);
  expect_less({0, 100, 0, 100, 100, 0}, stage::Resource::h2d);
}

}  // namespace
}  // namespace stagecoach
