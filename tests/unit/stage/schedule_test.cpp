#include "stage/schedule.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stage/partition.hpp"
#include "unit/stage/specs.hpp"

namespace stagecoach::stage {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

VisitEntry entry(std::int32_t slot, std::size_t tokens, std::int32_t first_position = 0) {
  VisitEntry made;
  made.slot = slot;
  made.tokens.assign(tokens, 1);
  made.first_position = first_position;
  return made;
}

struct StageSetting {
  std::int64_t layers = 2;
  int stages = 1;
  int stage = 0;
  std::int64_t gpu_batch_size = 2;
  Percent percent{};
  ScheduleKind schedule = ScheduleKind::rolling;
  bool direct = true;
  Switch cpu_attention = Switch::automatic;
  std::int64_t weight_buffers = 2;
  Packing weights = Packing::none;
  std::int64_t packed_product_rows = 0;
  double attention_sparsity = 1;
};

Scheduler scheduler(const StageSetting& setup) {
  StageShape shape{.spec = testing::small_spec(setup.layers),
                   .contents = partition_layers(setup.layers, setup.stages,
                                                {})[static_cast<std::size_t>(setup.stage)],
                   .batch = {.gpu_batch_size = setup.gpu_batch_size,
                             .num_gpu_batches = 2,
                             .attention_sparsity = setup.attention_sparsity},
                   .weights = {.layers = {.packing = setup.weights}}};
  Policy policy;
  policy.percent = setup.percent;
  policy.cpu_attention = setup.cpu_attention;
  return Scheduler(make_plan(shape, policy,
                             {.schedule = setup.schedule,
                              .direct = setup.direct,
                              .packed_product_rows = setup.packed_product_rows},
                             4, 40, setup.weight_buffers));
}

std::vector<std::string> names(const std::vector<Step>& steps) {
  std::vector<std::string> names;
  for (const auto& step : steps) {
    auto name = to_string(step.kind);
    if (step.layer >= 0) {
      name += fmt::format(" {}", step.layer);
    }
    if (step.gpu_batch >= 0) {
      name += fmt::format("/{}", step.gpu_batch);
    }
    names.push_back(name);
  }
  return names;
}

std::vector<Step> of_kind(const VisitSchedule& schedule, StepKind kind) {
  std::vector<Step> found;
  std::copy_if(schedule.steps.begin(), schedule.steps.end(), std::back_inserter(found),
               [&](const Step& step) { return step.kind == kind; });
  return found;
}

std::size_t index_of(const VisitSchedule& schedule, const std::string& name) {
  const auto all = names(schedule.steps);
  const auto found = std::find(all.begin(), all.end(), name);
  EXPECT_NE(found, all.end()) << name;
  return static_cast<std::size_t>(found - all.begin());
}

/// A visit of two GPU batches, each with a decoding sequence that has a page and a half.
Visit decode(std::int64_t number = 0) {
  Visit visit;
  visit.number = number;
  visit.entries = {entry(0, 1, 24), entry(2, 1, 24)};
  return visit;
}

/// A schedule after the sequences of decode() have got their first tokens.
VisitSchedule decode_schedule(const StageSetting& setup) {
  auto made = scheduler(setup);
  Visit prefill;
  prefill.entries = {entry(0, 24), entry(2, 24)};
  (void)made.next(prefill);
  return made.next(decode(1));
}

TEST(CutIntoBatches, GoesBySlotAndLeavesEmptyBatchesOut) {
  const auto batches = cut_into_batches({entry(0, 3), entry(1, 1), entry(5, 2)}, 2);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].num_entries, 2);
  EXPECT_EQ(batches[0].num_rows, 4);
  EXPECT_EQ(batches[1].number, 2);
  EXPECT_EQ(batches[1].first_entry, 2);
  EXPECT_EQ(batches[1].first_row, 4);
  EXPECT_EQ(batches[1].num_rows, 2);
}

TEST(Scheduler, OneResidentStageOnlyComputes) {
  Visit visit;
  visit.entries = {entry(0, 3), entry(2, 1)};
  EXPECT_THAT(names(scheduler({.layers = 1}).next(visit).steps),
              ElementsAre("embed 0/0", "attention_in 0/0", "attention 0/0", "attention_out 0/0",
                          "mlp 0/0", "head 0/0", "embed 0/1", "attention_in 0/1", "attention 0/1",
                          "attention_out 0/1", "mlp 0/1", "head 0/1", "send_tokens"));
}

TEST(Scheduler, AMiddleStageReceivesComputesAndSends) {
  Visit visit;
  visit.entries = {entry(0, 3), entry(2, 1)};
  const auto schedule =
      scheduler({.layers = 3, .stages = 3, .stage = 1, .gpu_batch_size = 4}).next(visit);
  EXPECT_THAT(names(schedule.steps),
              ElementsAre("send_plan", "receive_hidden", "attention_in 0/0", "attention 0/0",
                          "attention_out 0/0", "mlp 0/0", "send_hidden"));
  EXPECT_EQ(schedule.steps[1].bytes, 4 * 64 * 4);
  EXPECT_EQ(schedule.steps[6].bytes, 4 * 64 * 4);
}

TEST(Scheduler, CountsTheWorkOfALayer) {
  // Four 64 x 64 matrices and two of 64 x 256: 49152 multiply-adds a row.
  EXPECT_DOUBLE_EQ(layer_flops(testing::small_spec(1), 1, 0), 2.0 * 49152);
  EXPECT_DOUBLE_EQ(layer_flops(testing::small_spec(1), 3, 0), 6.0 * 49152);
  // Each attended position costs two products of 64 numbers.
  EXPECT_DOUBLE_EQ(layer_flops(testing::small_spec(1), 0, 10), 10 * 4.0 * 64);
  Visit visit;
  visit.entries = {entry(0, 3, 5)};  // rows attend to 6, 7 and 8 positions
  const auto schedule = scheduler({.layers = 1}).next(visit);
  double flops = 0;
  for (const auto& step : schedule.steps) {
    flops += step.layer >= 0 && step.kind != StepKind::head ? step.flops : 0;
  }
  EXPECT_DOUBLE_EQ(flops, 6.0 * 49152 + 21 * 4.0 * 64);
}

TEST(Scheduler, AReceiveWaitsOnlyForTheSendThatFreesItsBuffer) {
  auto made = scheduler({.layers = 3, .stages = 3, .stage = 1, .gpu_batch_size = 4});
  Visit visit;
  visit.entries = {entry(0, 1)};
  for (visit.number = 0; visit.number < kHiddenRing; ++visit.number) {
    EXPECT_THAT(made.next(visit).steps[1].waits, IsEmpty());
  }
  const auto waits = made.next(visit).steps[1].waits;
  EXPECT_THAT(waits, Contains(StepId{0, 6}));  // visit 0's send
  for (const auto& wait : waits) {
    EXPECT_EQ(wait.visit, 0);
  }
}

TEST(Scheduler, WeightsOfTheNextLayerStreamInPiecesWhileThisOneIsComputed) {
  auto made = scheduler({.layers = 3, .percent = {0, 0, 100, 0, 100, 0}});
  const auto first = made.next(decode(0));
  const auto image = made.plan().weights.image.size_bytes();
  const auto reads = of_kind(first, StepKind::read_weights);
  // Layer 0 whole before anything, then half of the next layer for each GPU batch, layer 0 of the
  // next visit included.
  EXPECT_THAT(names(reads),
              ElementsAre("read_weights 0", "read_weights 1", "read_weights 1", "read_weights 2",
                          "read_weights 2", "read_weights 0", "read_weights 0"));
  EXPECT_EQ(reads[0].range.size(), image);
  EXPECT_EQ(reads[1].range.size() + reads[2].range.size(), image);
  EXPECT_EQ(reads[1].range.end, reads[2].range.begin);
  EXPECT_THAT(reads[2].waits, IsEmpty()) << "the two halves are read at once";
  // Layer 1 may be read at once: its buffer was never used. Layer 2 takes layer 0's, whose last
  // use is the MLP of the second GPU batch.
  EXPECT_THAT(reads[1].waits, IsEmpty());
  EXPECT_THAT(reads[3].waits, Contains(first.steps[index_of(first, "mlp 0/1")].id));
  const auto second = made.next(decode(1));
  EXPECT_EQ(of_kind(second, StepKind::read_weights).size(), 6u) << "its first layer is there";
  EXPECT_EQ(second.steps[0].kind, StepKind::embed);
}

TEST(Scheduler, OneWeightBufferLoadsALayerWhenTheLastOneIsDone) {
  auto made = scheduler({.layers = 2, .percent = {50, 50, 100, 0, 100, 0}, .weight_buffers = 1});
  const auto schedule = made.next(decode());
  const auto loads = of_kind(schedule, StepKind::load_weights);
  ASSERT_THAT(names(loads), ElementsAre("load_weights 0", "load_weights 1"));
  EXPECT_THAT(loads[1].waits, Contains(schedule.steps[index_of(schedule, "mlp 0/1")].id));
}

TEST(Scheduler, WeightsThatTheDeviceCannotBeReadIntoAreStaged) {
  auto made = scheduler(
      {.layers = 1, .percent = {0, 0, 100, 0, 100, 0}, .direct = false, .weight_buffers = 1});
  const auto schedule = made.next(decode());
  EXPECT_EQ(of_kind(schedule, StepKind::read_weights).size(),
            of_kind(schedule, StepKind::stage_weights).size());
  std::size_t bytes = 0;
  for (const auto& step : of_kind(schedule, StepKind::stage_weights)) {
    EXPECT_EQ(step.resource, Resource::h2d);
    EXPECT_LE(step.range.size(), kWeightStagingBytes);
    bytes += step.range.size();
  }
  EXPECT_EQ(bytes, made.plan().weights.image.size_bytes());
}

TEST(Scheduler, PagesOfTheNextBatchLoadBeforeThisOneIsComputed) {
  const auto schedule =
      decode_schedule({.percent = {100, 0, 0, 100, 100, 0}, .cpu_attention = Switch::off});
  EXPECT_LT(index_of(schedule, "load_kv 0/1"), index_of(schedule, "attention 0/0"));
  EXPECT_LT(index_of(schedule, "load_kv 1/0"), index_of(schedule, "attention 0/1"));
  const auto& load = schedule.steps[index_of(schedule, "load_kv 1/0")];
  EXPECT_EQ(load.bytes,
            2 * static_cast<std::int64_t>(kv_page_bytes(scheduler({}).plan().shape, false)));
  EXPECT_THAT(load.waits, Not(Contains(schedule.steps[index_of(schedule, "mlp 0/1")].id)));
}

TEST(Scheduler, NewRowsGoBackWhileTheNextBatchIsComputed) {
  const auto schedule =
      decode_schedule({.percent = {100, 0, 0, 100, 100, 0}, .cpu_attention = Switch::off});
  const auto& next = schedule.steps[index_of(schedule, "attention_in 0/1")];
  EXPECT_THAT(next.waits, Not(Contains(schedule.steps[index_of(schedule, "save_rows 0/0")].id)));
  EXPECT_EQ(schedule.steps[index_of(schedule, "store_kv 0/0")].resource, Resource::cpu_compute);
}

TEST(Scheduler, ADiskPageIsWrittenOnceWhenItIsFull) {
  auto made = scheduler({.layers = 1, .percent = {100, 0, 0, 0, 100, 0}});
  const auto page = static_cast<std::int64_t>(made.plan().kv.page_bytes);
  std::int64_t pages_written = 0;
  Visit visit;
  visit.entries = {entry(0, 20)};
  for (visit.number = 0; visit.number < 30; ++visit.number) {
    for (const auto& step : of_kind(made.next(visit), StepKind::write_kv)) {
      pages_written += step.bytes / page;
    }
    visit.entries = {entry(0, 1, 20 + static_cast<std::int32_t>(visit.number))};
  }
  // 20 tokens, then 29 more: three full pages of 16.
  EXPECT_EQ(pages_written, 3);
}

/// decode() with sequences whose rows keep a share of the positions.
VisitSchedule sparse_schedule(Scheduler& made) {
  Visit prefill;
  prefill.entries = {entry(0, 24), entry(2, 24)};
  (void)made.next(prefill);
  auto visit = decode(1);
  for (auto& entry : visit.entries) {
    entry.sparse = true;
  }
  return made.next(visit);
}

TEST(Scheduler, SplitSequencesSelectByTheScoresOfAllPages) {
  auto made = scheduler({.percent = {100, 0, 50, 50, 100, 0},
                         .cpu_attention = Switch::off,
                         .attention_sparsity = 0.25});
  const auto schedule = sparse_schedule(made);
  EXPECT_LT(index_of(schedule, "attention_in 0/0"), index_of(schedule, "score_kv 0/0"));
  EXPECT_LT(index_of(schedule, "attend_cpu 0/0"), index_of(schedule, "attention_in 0/1"))
      << "the next batch is computed while the CPU selects";
  const auto& attend = schedule.steps[index_of(schedule, "attend_cpu 0/0")];
  EXPECT_THAT(attend.waits, Contains(schedule.steps[index_of(schedule, "save_scores 0/0")].id));
}

TEST(Scheduler, OfSplitSequencesKeysAndSelectedValuesMove) {
  auto made = scheduler({.percent = {100, 0, 0, 100, 100, 0},
                         .cpu_attention = Switch::off,
                         .attention_sparsity = 0.25});
  const auto dense =
      decode_schedule({.percent = {100, 0, 0, 100, 100, 0}, .cpu_attention = Switch::off});
  const auto sparse = sparse_schedule(made);
  const auto keys = sparse.steps[index_of(sparse, "load_kv 0/0")].bytes;
  EXPECT_EQ(2 * keys, dense.steps[index_of(dense, "load_kv 0/0")].bytes);
  // Four heads: each a selection, and six of 24 positions with 16 values of two bytes.
  EXPECT_EQ(sparse.steps[index_of(sparse, "load_partials 0/0")].bytes, 4 * 8 + 4 * 6 * (4 + 32));
}

TEST(Scheduler, PromptsAreNotSplit) {
  auto made = scheduler({.percent = {100, 0, 0, 100, 100, 0},
                         .cpu_attention = Switch::off,
                         .attention_sparsity = 0.25});
  Visit prefill;
  prefill.entries = {entry(0, 24), entry(2, 1)};
  EXPECT_THAT(of_kind(made.next(prefill), StepKind::score_kv), IsEmpty());
}

TEST(Scheduler, PackedWeightsAreWidenedOnceAVisitForAllBatches) {
  for (const Percent percent : {Percent{}, Percent{50, 25, 100, 0, 100, 0}}) {
    const auto schedule = decode_schedule({.percent = percent, .weights = Packing::int4});
    EXPECT_EQ(of_kind(schedule, StepKind::mlp).size(), 4u) << "two layers of two batches";
    const auto widened = of_kind(schedule, StepKind::widen_weights);
    ASSERT_EQ(widened.size(), 2u) << "one a layer";
    EXPECT_EQ(widened[0].resource, Resource::compute);
    EXPECT_EQ(widened[0].reads.empty(), percent.weights_device == 100) << "of streamed weights";
    const auto products = of_kind(schedule, StepKind::mlp);
    EXPECT_THAT(products[0].reads, Contains(BufferRef{BufferKind::wide_weights}));
  }
}

TEST(Scheduler, FewRowsReadPackedWeightsAsTheyLie) {
  const StageSetting setting{.weights = Packing::int4, .packed_product_rows = 2};
  EXPECT_THAT(of_kind(decode_schedule(setting), StepKind::widen_weights), IsEmpty())
      << "a row a batch";
  auto made = scheduler(setting);
  Visit prompt;
  prompt.entries = {entry(0, 3)};
  EXPECT_EQ(of_kind(made.next(prompt), StepKind::widen_weights).size(), 2u);
  EXPECT_THAT(of_kind(decode_schedule({}), StepKind::widen_weights), IsEmpty()) << "not packed";
}

TEST(Scheduler, CpuAttentionRunsBesideTheNextBatch) {
  const auto schedule = decode_schedule({.percent = {100, 0, 0, 100, 100, 0}});
  EXPECT_THAT(of_kind(schedule, StepKind::load_kv), IsEmpty());
  EXPECT_LT(index_of(schedule, "attend_cpu 0/0"), index_of(schedule, "attention_in 0/1"));
  EXPECT_LT(index_of(schedule, "attention_in 0/1"), index_of(schedule, "attention 0/0"));
  EXPECT_LT(index_of(schedule, "attention_in 1/0"), index_of(schedule, "attention 0/1"));
  EXPECT_THAT(schedule.steps[index_of(schedule, "attention 0/0")].waits,
              Contains(schedule.steps[index_of(schedule, "load_partials 0/0")].id));
}

TEST(Scheduler, CpuAttentionOfDiskPagesReadsThemIntoDram) {
  const auto schedule =
      decode_schedule({.percent = {100, 0, 0, 0, 100, 0}, .cpu_attention = Switch::on});
  const auto reads = of_kind(schedule, StepKind::read_kv);
  ASSERT_EQ(reads.size(), 4u);
  for (const auto& read : reads) {
    ASSERT_EQ(read.writes.size(), 1u);
    EXPECT_EQ(read.writes[0].kind, BufferKind::kv_cpu_staging);
  }
}

TEST(Scheduler, PromptPiecesAreAttendedOnTheDevice) {
  auto made = scheduler({.percent = {100, 0, 0, 100, 100, 0}, .cpu_attention = Switch::on});
  Visit visit;
  visit.entries = {entry(0, 24)};
  (void)made.next(visit);
  visit.number = 1;
  visit.entries = {entry(0, 8, 24)};
  const auto schedule = made.next(visit);
  EXPECT_THAT(of_kind(schedule, StepKind::attend_cpu), IsEmpty());
  EXPECT_EQ(of_kind(schedule, StepKind::load_kv).size(), 2u);
}

TEST(Scheduler, ActivationsComeAndGoLayerByLayer) {
  auto made = scheduler({.percent = {100, 0, 100, 0, 0, 100}});
  const auto schedule = made.next(decode());
  // Embedded and sampled where they are; between the layers to DRAM and back.
  EXPECT_THAT(names(of_kind(schedule, StepKind::store_hidden)),
              ElementsAre("store_hidden 0/0", "store_hidden 0/1"));
  EXPECT_THAT(names(of_kind(schedule, StepKind::load_hidden)),
              ElementsAre("load_hidden 1/0", "load_hidden 1/1"));
  EXPECT_LT(index_of(schedule, "load_hidden 1/0"), index_of(schedule, "mlp 0/1"));
}

TEST(Scheduler, OneGpuBatchKeepsItsActivationsAtWork) {
  auto made = scheduler({.percent = {100, 0, 100, 0, 0, 0}});
  Visit visit;
  visit.entries = {entry(0, 1)};
  const auto schedule = made.next(visit);
  EXPECT_THAT(of_kind(schedule, StepKind::write_hidden), IsEmpty());
  EXPECT_THAT(of_kind(schedule, StepKind::load_hidden), IsEmpty());
}

TEST(Scheduler, TheWireBringsOffloadedActivationsToDram) {
  auto made = scheduler({.layers = 3, .stages = 3, .stage = 1, .percent = {100, 0, 100, 0, 50, 0}});
  const auto schedule = made.next(decode());
  EXPECT_EQ(schedule.steps[1].writes[0].kind, BufferKind::hidden_cpu);
  EXPECT_EQ(of_kind(schedule, StepKind::load_hidden).size(), 2u);
  EXPECT_EQ(of_kind(schedule, StepKind::store_hidden).size(), 2u);
  EXPECT_THAT(of_kind(schedule, StepKind::read_hidden), IsEmpty());
}

TEST(FlexgenSchedule, AsksForAllWeightsOfTheNextPhaseInTheFirstSlot) {
  auto made = scheduler(
      {.layers = 2, .percent = {0, 0, 100, 0, 100, 0}, .schedule = ScheduleKind::flexgen});
  const auto schedule = made.next(decode());
  const auto mlp_read = index_of(schedule, "read_weights 0");
  const auto& plan = made.plan();
  ASSERT_EQ(plan.weights.units.size(), 2u);
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    if (schedule.steps[i].kind == StepKind::read_weights) {
      at.push_back(i);
    }
  }
  // Attention of layer 0, its MLP, attention and MLP of layer 1, attention of the next visit.
  ASSERT_EQ(at.size(), 5u);
  EXPECT_EQ(mlp_read, at[0]);
  EXPECT_LT(at[1], index_of(schedule, "attention 0/0"));
  EXPECT_GT(at[2], index_of(schedule, "attention 0/1"));
  EXPECT_LT(at[2], index_of(schedule, "mlp 0/0"));
}

TEST(FlexgenSchedule, SynchronisesAfterEverySlot) {
  auto made = scheduler(
      {.layers = 2, .percent = {0, 0, 100, 0, 100, 0}, .schedule = ScheduleKind::flexgen});
  const auto schedule = made.next(decode());
  // The second batch's attention waits for the weights that only the MLP needs.
  const auto reads = of_kind(schedule, StepKind::read_weights);
  EXPECT_THAT(schedule.steps[index_of(schedule, "embed 0/1")].waits, Contains(reads[1].id));
  // The rolling schedule's does not.
  const auto ours = scheduler({.layers = 2, .percent = {0, 0, 100, 0, 100, 0}}).next(decode());
  EXPECT_THAT(ours.steps[index_of(ours, "attention 0/1")].waits, IsEmpty());
}

TEST(FlexgenSchedule, PageableWeightsAreCopiedOnTheComputeStream) {
  auto made = scheduler(
      {.layers = 2, .percent = {0, 100, 100, 0, 100, 0}, .schedule = ScheduleKind::flexgen});
  for (const auto& step : of_kind(made.next(decode()), StepKind::load_weights)) {
    EXPECT_EQ(step.resource, Resource::compute);
  }
}

TEST(Scheduler, GivesTheSameStepsForTheSameVisits) {
  const StageSetting setup{.percent = {20, 40, 30, 30, 0, 50}};
  const auto first = decode_schedule(setup);
  const auto second = decode_schedule(setup);
  ASSERT_EQ(names(first.steps), names(second.steps));
  for (std::size_t i = 0; i < first.steps.size(); ++i) {
    EXPECT_EQ(first.steps[i].waits, second.steps[i].waits);
    EXPECT_EQ(first.steps[i].writes, second.steps[i].writes);
  }
}

}  // namespace
}  // namespace stagecoach::stage
