#include "plan/batch_choice.hpp"

#include <algorithm>
#include <cmath>

namespace stagecoach::plan {
namespace {

using stage::Admission;
using stage::BatchShape;

constexpr std::int64_t kLargestBatch = 1024;
constexpr std::int64_t kMostBatches = 64;

std::int64_t rounded(double value) { return static_cast<std::int64_t>(std::llround(value)); }

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Sequences of one block at once, at most.
double sequences_of(const BatchShape& batch, const MeanRequest& mean) {
  const auto a_block = divide_up(mean.requests, batch.inner_iterations);
  return static_cast<double>(std::min(batch.block(), a_block));
}

SteadyJob whole_blocks(const BatchShape& batch, const MeanRequest& mean) {
  const auto sequences = sequences_of(batch, mean);
  SteadyVisit prompts{.prompt_rows = rounded(sequences * mean.prompt),
                      .prompts = rounded(sequences),
                      .share = 1 / mean.generated};
  SteadyJob job{.visits = {prompts}, .visits_a_request = mean.generated};
  if (mean.generated > 1) {
    job.visits.push_back({.decoding = rounded(sequences),
                          .decode_position = rounded(mean.prompt + mean.generated / 2),
                          .share = 1 - 1 / mean.generated});
  }
  const auto a_block = divide_up(mean.requests, batch.inner_iterations);
  job.visits_a_block = mean.generated * static_cast<double>(divide_up(a_block, rounded(sequences)));
  return job;
}

/// Prompts go through a block one after the other, a piece a visit; each sequence then decodes.
/// What bounds the sequences that begin with each visit is the piece, or the places.
SteadyJob rolling_blocks(const BatchShape& batch, const MeanRequest& mean, std::size_t stages) {
  const auto sequences = sequences_of(batch, mean);
  const auto piece = static_cast<double>(batch.prefill_piece);
  const auto prompt_visits = std::max(1.0, mean.prompt / piece);
  const auto begun =
      std::min(piece / mean.prompt, sequences / (mean.generated - 1 + prompt_visits));
  // Sequences that begin together end together, and so do those that take their places: a piece
  // larger than needed comes in bursts, and the visits between bring no prompt.
  const auto burst = std::min(sequences, piece / mean.prompt);
  const auto prompts = std::max<std::int64_t>(1, rounded(std::ceil(burst - 1e-9)));
  const auto decoding = rounded(std::min(begun * (mean.generated - 1), sequences));
  const auto position = rounded(mean.prompt + mean.generated / 2);
  const auto with_prompt = std::min(1.0, begun / burst);
  // A visit that takes long holds up those behind it on every stage: what counts is whether any of
  // those in flight does.
  const auto in_flight = static_cast<double>(stages > 1 ? batch.inner_iterations : 1);
  const auto held_up = 1 - std::pow(1 - with_prompt, in_flight);
  SteadyVisit visit{
      .prompt_rows = std::max<std::int64_t>(1, rounded(begun * mean.prompt / with_prompt)),
      .prompts = prompts,
      .prompt_position = rounded(std::max(0.0, (mean.prompt - piece) / 2)),
      .decoding = std::clamp<std::int64_t>(decoding, 0, rounded(sequences) - prompts),
      .decode_position = position,
      .share = held_up};
  SteadyJob job{.visits = {visit}, .visits_a_request = prompt_visits + mean.generated - 1};
  if (with_prompt < 1 && decoding > 0) {
    job.visits.push_back({.decoding = decoding, .decode_position = position, .share = 1 - held_up});
  }
  // While a block fills, and while it empties, its visits carry less.
  constexpr double kCostOfAPartialVisit = 0.75;
  const auto partial = std::min(mean.generated - 1, sequences * mean.prompt / piece);
  const auto a_block =
      static_cast<double>(mean.requests) / static_cast<double>(batch.inner_iterations);
  job.visits_a_block = a_block / begun + kCostOfAPartialVisit * partial;
  return job;
}

/// The piece with which prompts and decoding keep pace where all places decode, a multiple of 16.
std::int64_t balanced_piece(std::int64_t block, const MeanRequest& mean) {
  const auto piece = static_cast<double>(block) * mean.prompt / mean.generated;
  return std::clamp<std::int64_t>(16 * divide_up(rounded(piece), 16), 16,
                                  std::max<std::int64_t>(16, 4096));
}

std::vector<std::int64_t> iterations_for(std::int64_t stages) {
  return stages == 1 ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{stages, stages + 1};
}

std::vector<device::KvFormat> caches_of(const PlanRequest& request) {
  std::vector<device::KvFormat> caches{{}};
  caches.insert(caches.end(), request.allowed_caches.begin(), request.allowed_caches.end());
  return caches;
}

std::vector<model::WeightFormat> weights_of(const PlanRequest& request) {
  std::vector<model::WeightFormat> weights{request.weights};
  weights.insert(weights.end(), request.allowed_weights.begin(), request.allowed_weights.end());
  return weights;
}

bool has_gpu(const PlanRequest& request) {
  const auto& nodes = request.cluster.nodes;
  return std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.gpu; });
}

BatchShape finished(const PlanRequest& request, BatchShape batch) {
  batch = stage::shape_for(batch, request.schedule, static_cast<int>(request.cluster.stages()));
  if (batch.admission == Admission::whole) {
    batch.prefill_piece = BatchShape{}.prefill_piece;  // there are none
  }
  for (const auto& one : request.requests) {
    batch.longest_prompt =
        std::max(batch.longest_prompt, one.prompt - (one.generated == 0 ? 1 : 0));
  }
  return batch;
}

/// Pieces, blocks and batches that are worth a look.
bool sensible(const PlanRequest& request, const BatchShape& batch) {
  const auto requests = static_cast<std::int64_t>(request.requests.size());
  const auto a_block = divide_up(requests, std::max<std::int64_t>(batch.inner_iterations, 1));
  return batch.gpu_batch_size >= 1 && batch.gpu_batch_size <= std::min(kLargestBatch, a_block) &&
         batch.num_gpu_batches >= 1 && batch.num_gpu_batches <= kMostBatches &&
         batch.gpu_batch_size * (batch.num_gpu_batches - 1) < a_block &&
         batch.inner_iterations >= 1 && batch.prefill_piece >= 1 && batch.prefill_piece <= 8192;
}

void add_if_new(std::vector<BatchChoice>& choices, const PlanRequest& request, BatchChoice choice) {
  if (!sensible(request, choice.batch)) {
    return;
  }
  choice.batch = finished(request, choice.batch);
  if (std::find(choices.begin(), choices.end(), choice) == choices.end()) {
    choices.push_back(choice);
  }
}

}  // namespace

bool operator==(const BatchChoice& a, const BatchChoice& b) {
  return a.weights == b.weights && a.cpu_attention == b.cpu_attention &&
         a.batch.gpu_batch_size == b.batch.gpu_batch_size &&
         a.batch.num_gpu_batches == b.batch.num_gpu_batches &&
         a.batch.inner_iterations == b.batch.inner_iterations &&
         a.batch.prefill_piece == b.batch.prefill_piece &&
         a.batch.page_tokens == b.batch.page_tokens && a.batch.kv_format == b.batch.kv_format;
}

MeanRequest mean_of(const Workload& requests) {
  MeanRequest mean{
      .prompt = 0, .generated = 0, .requests = static_cast<std::int64_t>(requests.size())};
  for (const auto& request : requests) {
    mean.prompt += static_cast<double>(request.prompt);
    mean.generated += static_cast<double>(request.generated);
  }
  mean.prompt = std::max(1.0, mean.prompt / static_cast<double>(mean.requests));
  mean.generated = std::max(1.0, mean.generated / static_cast<double>(mean.requests));
  return mean;
}

SteadyJob steady_job(const BatchShape& batch, const MeanRequest& mean, std::size_t stages) {
  return batch.admission == Admission::whole ? whole_blocks(batch, mean)
                                             : rolling_blocks(batch, mean, stages);
}

std::vector<BatchChoice> first_choices(const PlanRequest& request) {
  const auto mean = mean_of(request.requests);
  std::vector<BatchChoice> choices;
  const auto add = [&](const BatchChoice& formats, std::int64_t block, std::int64_t batches,
                       std::int64_t iterations) {
    for (const std::int64_t larger : {1, 4}) {
      auto choice = formats;
      choice.batch.gpu_batch_size = divide_up(block, batches);
      choice.batch.num_gpu_batches = batches;
      choice.batch.inner_iterations = iterations;
      choice.batch.prefill_piece = larger * balanced_piece(block, mean);
      add_if_new(choices, request, choice);
    }
  };
  for (const auto& weights : weights_of(request)) {
    for (const auto& cache : caches_of(request)) {
      for (const bool cpu : {false, true}) {
        if (cpu && !has_gpu(request)) {
          continue;
        }
        BatchChoice formats{.weights = weights, .batch = {}, .cpu_attention = cpu};
        formats.batch.kv_format = cache;
        const auto iterations =
            iterations_for(static_cast<std::int64_t>(request.cluster.stages())).back();
        for (auto block = divide_up(mean.requests, iterations); block >= 1; block /= 2) {
          if (block > kLargestBatch) {
            continue;
          }
          add(formats, block, 1, iterations);
          add(formats, block, std::min<std::int64_t>(4, block), iterations);
        }
      }
    }
  }
  return choices;
}

std::vector<BatchChoice> neighbours(const PlanRequest& request, const BatchChoice& choice) {
  std::vector<BatchChoice> choices{choice};
  const auto change = [&](auto&& set) {
    auto other = choice;
    set(other);
    add_if_new(choices, request, other);
  };
  const auto& batch = choice.batch;
  for (const auto factor : {2.0, 1.3, 0.77, 0.5}) {
    const auto scaled = [&](std::int64_t value) {
      return std::max<std::int64_t>(1, rounded(factor * static_cast<double>(value)));
    };
    change([&](BatchChoice& c) { c.batch.gpu_batch_size = scaled(batch.gpu_batch_size); });
    change([&](BatchChoice& c) { c.batch.prefill_piece = scaled(batch.prefill_piece); });
  }
  for (const std::int64_t step : {1, -1}) {
    change([&](BatchChoice& c) { c.batch.num_gpu_batches += step; });
    if (request.cluster.stages() > 1) {
      change([&](BatchChoice& c) { c.batch.inner_iterations += step; });
    }
  }
  change([&](BatchChoice& c) { c.batch.num_gpu_batches *= 2; });
  change([&](BatchChoice& c) {  // the same block in fewer or in more GPU batches
    c.batch.num_gpu_batches *= 2;
    c.batch.gpu_batch_size = divide_up(batch.gpu_batch_size, 2);
  });
  change([&](BatchChoice& c) {
    c.batch.num_gpu_batches = divide_up(batch.num_gpu_batches, 2);
    c.batch.gpu_batch_size *= 2;
  });
  change([&](BatchChoice& c) { c.batch.page_tokens = batch.page_tokens == 16 ? 64 : 16; });
  if (has_gpu(request)) {
    change([&](BatchChoice& c) { c.cpu_attention = !c.cpu_attention; });
  }
  choices.erase(choices.begin());
  return choices;
}

BatchChoice least_choice(const PlanRequest& request) {
  BatchChoice least{.weights = request.weights, .batch = {}};
  least.batch.gpu_batch_size = 1;
  least.batch.prefill_piece = 16;
  least.batch.kv_format = caches_of(request).back();
  least.weights = weights_of(request).back();
  least.batch.inner_iterations = 1;
  least.batch = finished(request, least.batch);
  return least;
}

}  // namespace stagecoach::plan
