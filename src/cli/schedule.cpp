#include "stage/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/units.hpp"
#include "cli/batch_options.hpp"
#include "cli/commands.hpp"
#include "cli/compression_options.hpp"
#include "cli/options.hpp"
#include "cli/plan_inputs.hpp"
#include "cli/policy_options.hpp"
#include "device/cuda/packed_product_rows.hpp"
#include "stage/batcher.hpp"
#include "stage/partition.hpp"

namespace stagecoach::cli {
namespace {

using Integer = std::int64_t;

/// Rows up to which a product reads packed weights as they lie: on a GPU, and on a CPU.
constexpr Integer kGpuPackedRows = device::cuda::kPackedProductRows;
constexpr Integer kMostRows = std::numeric_limits<Integer>::max();

constexpr const char* kUsage =
    "usage: stagecoach schedule (--model FILE | --spec INI) [--explain] [options]\n"
    "Shows what one stage does in one visit of a job whose requests are all alike.";

po::options_description describe() {
  po::options_description group("What to show");
  group.add_options()("config", po::value<std::string>(),
                      "ini file with any of these options; the command line wins")(
      "model", po::value<std::string>(), "weight store made by 'stagecoach convert'")(
      "spec", po::value<std::string>(), "or an ini file of configs/models")(
      "explain", po::bool_switch(), "every step, not only the sums")(
      "stages", po::value<Integer>()->default_value(1), "stages of the job")(
      "stage", po::value<Integer>()->default_value(0), "the one to show, from 0")(
      "visit", po::value<Integer>(), "which visit, from 0 (the one in the middle of the job)")(
      "prompt-len", po::value<Integer>()->default_value(128), "prompt tokens of every request")(
      "gen-len", po::value<Integer>()->default_value(32), "new tokens of every request")(
      "gpu", po::bool_switch(), "as on a device whose memory disk reads cannot reach");
  group.add(batch_options()).add(compression_options()).add(policy_options());
  return group;
}

/// A visit and its steps.
struct Shown {
  stage::Visit visit;
  stage::VisitSchedule schedule;
};

/// A job of as many requests as there are places, all alike.
struct AlikeJob {
  stage::BatchShape shape;
  std::int64_t page_capacity = 0;
  Integer prompt_len = 0;
  Integer gen_len = 0;
};

/// Calls `take` with each visit of the job until it returns false.
void for_visits(const AlikeJob& job, const std::function<bool(const stage::Visit&)>& take) {
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(job.prompt_len), 0);
  stage::Batcher batcher(job.shape, job.page_capacity,
                         std::vector<stage::SequenceInput>(
                             static_cast<std::size_t>(job.shape.places()),
                             {.prompt = prompt, .max_new_tokens = job.gen_len, .sampling = {}}));
  while (!batcher.done()) {
    for (std::int32_t block = 0; block < job.shape.inner_iterations; ++block) {
      const auto visit = batcher.next_visit(block);
      if (!visit) {
        continue;
      }
      if (!take(*visit)) {
        return;
      }
      std::vector<stage::TokenOutcome> outcomes;
      for (const auto& entry : visit->entries) {
        const auto stored = entry.first_position + static_cast<Integer>(entry.tokens.size());
        outcomes.push_back({0, stored == job.prompt_len + job.gen_len - 1});
      }
      batcher.complete(*visit, outcomes);
    }
  }
}

Integer count_visits(const AlikeJob& job) {
  Integer count = 0;
  for_visits(job, [&](const stage::Visit&) {
    ++count;
    return true;
  });
  return count;
}

Shown find_visit(stage::Scheduler& scheduler, const AlikeJob& job, Integer wanted) {
  Shown shown;
  for_visits(job, [&](const stage::Visit& visit) {
    auto schedule = scheduler.next(visit);
    if (visit.number == wanted) {
      shown = {visit, std::move(schedule)};
    }
    return visit.number < wanted;
  });
  return shown;
}

/// "kv_cpu 0.1 +3", so that a step fits a line.
std::string describe_buffers(const std::vector<stage::BufferRef>& buffers) {
  std::string text;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto& buffer = buffers[i];
    const auto same =
        std::find_if(buffers.begin() + static_cast<std::ptrdiff_t>(i) + 1, buffers.end(),
                     [&](const auto& other) { return other.kind != buffer.kind; });
    const auto more = same - buffers.begin() - static_cast<std::ptrdiff_t>(i) - 1;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(buffer.kind), buffer.index);
    if (buffer.part != 0) {
      text += fmt::format(".{}", buffer.part < 0 ? "all" : fmt::format("{}", buffer.part));
    }
    if (more > 0) {
      text += fmt::format(" +{}", more);
      i += static_cast<std::size_t>(more);
    }
  }
  return text;
}

std::string describe_waits(const stage::Step& step) {
  std::string text;
  for (const auto& wait : step.waits) {
    text += text.empty() ? "" : " ";
    text += wait.visit == step.id.visit ? fmt::format("{}", wait.index)
                                        : fmt::format("{}:{}", wait.visit, wait.index);
  }
  return text;
}

std::string or_blank(Integer number) { return number < 0 ? "" : fmt::format("{}", number); }

void print_steps(const Shown& shown) {
  constexpr const char* kRow =
      "{:>5} {:<10} {:<15} {:>5} {:>5} {:>6} {:>10} {:>11}  {:<18} {} -> {}\n";
  fmt::print(kRow, "step", "queue", "what", "layer", "batch", "rows", "GFLOP", "moved", "waits for",
             "reads", "writes");
  for (const auto& step : shown.schedule.steps) {
    fmt::print(kRow, step.id.index, to_string(step.resource), to_string(step.kind),
               or_blank(step.layer), or_blank(step.gpu_batch),
               step.rows > 0 ? fmt::format("{}", step.rows) : "",
               step.flops > 0 ? fmt::format("{:.4g}", step.flops * 1e-9) : "",
               step.bytes > 0 ? format_bytes(static_cast<std::size_t>(step.bytes)) : "",
               describe_waits(step), describe_buffers(step.reads), describe_buffers(step.writes));
  }
}

void print_sums(const Shown& shown) {
  fmt::print("visit {} of block {}: {} sequences, {} rows, {} steps\n", shown.visit.number,
             shown.visit.block, shown.visit.entries.size(), shown.visit.rows(),
             shown.schedule.steps.size());
  fmt::print("{:<12} {:>6} {:>12} {:>12}\n", "queue", "steps", "GFLOP", "moved");
  for (int r = 0; r < stage::kResources; ++r) {
    const auto resource = static_cast<stage::Resource>(r);
    Integer steps = 0;
    Integer bytes = 0;
    double flops = 0;
    for (const auto& step : shown.schedule.steps) {
      if (step.resource == resource) {
        ++steps;
        bytes += step.bytes;
        flops += step.flops;
      }
    }
    if (steps > 0) {
      fmt::print("{:<12} {:>6} {:>12.4g} {:>12}\n", to_string(resource), steps, flops * 1e-9,
                 format_bytes(static_cast<std::size_t>(bytes)));
    }
  }
}

stage::StagePlan read_plan(const Options& options, Integer prompt_len, Integer pages) {
  const auto model = read_model_shape(options, "schedule");
  const auto stages = static_cast<int>(options.integer("stages", 1, 4096));
  const auto stage = static_cast<int>(options.integer("stage", 0, stages - 1));
  const auto policies = read_policies(options, stages);
  const auto schedule = stage::parse_schedule(options.text("schedule"), "--schedule");
  auto batch = read_batch_shape(options);
  batch.longest_prompt = prompt_len;
  batch = stage::shape_for(batch, schedule, stages);
  const stage::StageShape shape{
      .spec = model.spec,
      .contents =
          stage::partition_layers(model.spec.layers, stages, {})[static_cast<std::size_t>(stage)],
      .batch = batch,
      .weights = job::choose_format(read_compression(options), model.stored)};
  const auto& policy =
      policies.size() == 1 ? policies.front() : policies[static_cast<std::size_t>(stage)];
  const auto buffers = policy.weight_buffers > 0 ? policy.weight_buffers : 2;
  return stage::make_plan(shape, policy,
                          {.schedule = schedule,
                           .overlap = !options.flag("no-overlap"),
                           .direct = !options.flag("gpu"),
                           .packed_product_rows = options.flag("gpu") ? kGpuPackedRows : kMostRows},
                          pages, pages * batch.places(), buffers);
}

}  // namespace

int schedule_command(const std::vector<std::string>& arguments) {
  const auto options = parse_options("schedule", kUsage, describe(), arguments);
  if (!options) {
    return 0;
  }
  const auto prompt_len = options->integer("prompt-len", 1, Integer{1} << 20);
  const auto gen_len = options->integer("gen-len", 1, Integer{1} << 20);
  const auto pages =
      offload::pages_for(prompt_len + gen_len - 1, options->integer("page-tokens", 16, 64));
  stage::Scheduler scheduler(read_plan(*options, prompt_len, pages));
  const auto& shape = scheduler.plan().shape.batch;
  const AlikeJob job{shape, pages * shape.places(), prompt_len, gen_len};
  const auto visits = count_visits(job);
  const auto wanted = options->has("visit") ? options->integer("visit", 0, visits - 1) : visits / 2;
  const auto shown = find_visit(scheduler, job, wanted);
  if (options->flag("explain")) {
    print_steps(shown);
  }
  print_sums(shown);
  return 0;
}

}  // namespace stagecoach::cli
