#include "plan/simulation.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include "base/error.hpp"
#include "plan/node_clock.hpp"
#include "plan/stage_replay.hpp"
#include "stage/batcher.hpp"

namespace stagecoach::plan {
namespace {

using stage::Resource;
using stage::StepKind;

/// When a request's first visit was made and its tokens came.
struct RequestTimes {
  double first_visit = 0;
  double first_token = 0;
  double last_token = 0;
  std::int64_t tokens = 0;
};

/// The first stage's control loop (job::Coordinator): blocks take turns, and a block's next visit
/// is made when its last one has come back.
class VirtualCoordinator {
 public:
  VirtualCoordinator(const stage::BatchShape& shape, std::int64_t pages, const Workload& requests)
      : requests_(requests),
        prompt_(longest_prompt(requests), 0),
        times_(requests.size()),
        blocks_(static_cast<std::size_t>(shape.inner_iterations)),
        batcher_(shape, pages, inputs(requests, prompt_)) {}

  /// The next visit to be issued; none: wait for tokens, or it is over.
  [[nodiscard]] const stage::Visit* wanted(double now) {
    while (!over_ && !visit_) {
      auto& block = blocks_[block_];
      if (block.visit) {
        if (!block.returned) {
          return nullptr;
        }
        complete(block);
      }
      visit_ = batcher_.next_visit(static_cast<std::int32_t>(block_));
      if (visit_) {
        any_ = true;
        note_first_visits(now);
      } else {
        next_block();
      }
    }
    return visit_ ? &*visit_ : nullptr;
  }

  /// The wanted visit has been issued.
  std::shared_ptr<const stage::Visit> issued() {
    auto shared = std::make_shared<const stage::Visit>(*std::exchange(visit_, std::nullopt));
    blocks_[block_] = {.visit = shared, .returned = false};
    next_block();
    return shared;
  }

  /// The tokens of a block's visit have come back.
  void take_tokens(std::int32_t block, double now) {
    auto& here = blocks_[static_cast<std::size_t>(block)];
    here.returned = true;
    for (const auto& entry : here.visit->entries) {
      if (entry.samples()) {
        auto& times = times_[static_cast<std::size_t>(batcher_.sequence_at(block, entry.slot))];
        times.first_token = times.tokens++ == 0 ? now : times.first_token;
        times.last_token = now;
      }
    }
  }

  [[nodiscard]] bool over() const noexcept { return over_; }
  [[nodiscard]] const std::vector<RequestTimes>& times() const noexcept { return times_; }

 private:
  struct Block {
    std::shared_ptr<const stage::Visit> visit;
    bool returned = false;
  };

  static std::size_t longest_prompt(const Workload& requests) {
    std::int64_t longest = 0;
    for (const auto& request : requests) {
      longest = std::max(longest, request.prompt);
    }
    return static_cast<std::size_t>(longest);
  }

  static std::vector<stage::SequenceInput> inputs(const Workload& requests,
                                                  const std::vector<std::int32_t>& prompt) {
    std::vector<stage::SequenceInput> inputs;
    inputs.reserve(requests.size());
    for (const auto& request : requests) {
      inputs.push_back({.prompt = std::span(prompt).first(static_cast<std::size_t>(request.prompt)),
                        .max_new_tokens = request.generated,
                        .sampling = {}});
    }
    return inputs;
  }

  void complete(Block& block) {
    std::vector<stage::TokenOutcome> outcomes;
    outcomes.reserve(block.visit->entries.size());
    for (const auto& entry : block.visit->entries) {
      const auto sequence = static_cast<std::size_t>(
          batcher_.sequence_at(static_cast<std::int32_t>(block_), entry.slot));
      outcomes.push_back(
          {0, entry.samples() && times_[sequence].tokens == requests_[sequence].generated});
    }
    batcher_.complete(*block.visit, outcomes);
    block = {};
  }

  void note_first_visits(double now) {
    for (const auto& entry : visit_->entries) {
      if (entry.first_position == 0) {
        times_[static_cast<std::size_t>(
                   batcher_.sequence_at(static_cast<std::int32_t>(block_), entry.slot))]
            .first_visit = now;
      }
    }
  }

  void next_block() {
    block_ = (block_ + 1) % blocks_.size();
    if (block_ == 0) {
      over_ = !any_ && batcher_.done();
      any_ = false;
    }
  }

  const Workload& requests_;
  std::vector<std::int32_t> prompt_;
  std::vector<RequestTimes> times_;
  std::vector<Block> blocks_;
  stage::Batcher batcher_;
  std::optional<stage::Visit> visit_;
  std::size_t block_ = 0;
  bool any_ = false;
  bool over_ = false;
};

/// Whether one schedule and one cost serve both stages.
bool alike(const stage::StagePlan& a, const stage::StagePlan& b) {
  const auto& x = a.shape.contents;
  const auto& y = b.shape.contents;
  return x.layers == y.layers && x.embedding == y.embedding && x.head == y.head &&
         a.policy == b.policy && a.kv.pools == b.kv.pools &&
         a.weights.buffers == b.weights.buffers && a.weights.pinned == b.weights.pinned &&
         a.direct == b.direct && a.wire_on_device == b.wire_on_device &&
         a.weights.packed_product_rows == b.weights.packed_product_rows;
}

class Simulation {
 public:
  Simulation(const std::vector<stage::StagePlan>& plans, const Cluster& cluster,
             const Workload& requests, std::int64_t pages, const SimulationOptions& options)
      : cluster_(cluster),
        options_(options),
        coordinator_(plans.front().shape.batch, pages, requests),
        edges_(plans.size()),
        on_the_way_(plans.size()),
        arrived_(plans.size()),
        to_pass_on_(plans.size()) {
    STAGECOACH_CHECK(plans.size() == cluster.stages());
    make_stages(plans);
    for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
      const auto first = std::find(cluster.node_of_stage.begin(), cluster.node_of_stage.end(), n);
      STAGECOACH_CHECK(first != cluster.node_of_stage.end());
      nodes_.emplace_back(stages_[static_cast<std::size_t>(first - cluster.node_of_stage.begin())]
                              .costs()
                              .capacity());
    }
  }

  SimulationResult run(const Workload& requests);

 private:
  enum class EventKind { node, plan, hidden, tokens };
  struct Event {
    double time = 0;
    std::uint64_t order = 0;
    EventKind kind{};
    std::size_t index = 0;      ///< of a node, or of the stage that receives
    std::uint64_t version = 0;  ///< of the node

    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  /// Hidden states from a stage to the next: under way once both sides have begun.
  struct Edge {
    bool sender = false;
    bool receiver = false;
  };

  void make_stages(const std::vector<stage::StagePlan>& plans);
  void push(Event event);
  void handle(const Event& event);
  void settle();
  bool settle_stage(std::size_t stage);
  void issue(std::size_t stage);
  void begin(std::size_t stage, const StageReplay::Running& running);
  void end(std::size_t stage, Resource resource);
  void pass_on(std::size_t from, std::size_t to, EventKind kind);
  void transfer(std::size_t edge);
  void trace(std::size_t stage, Resource resource);
  void watch(std::size_t node);
  [[nodiscard]] SimulationResult result(const Workload& requests);

  const Cluster& cluster_;
  const SimulationOptions options_;
  VirtualCoordinator coordinator_;
  std::vector<std::unique_ptr<VisitSource>> sources_;
  std::vector<StageReplay> stages_;
  std::vector<NodeClock> nodes_;
  std::vector<std::uint64_t> watched_;
  std::vector<Edge> edges_;  ///< [k]: from stage k to k + 1
  using Visits = std::deque<std::shared_ptr<const stage::Visit>>;
  std::vector<Visits> on_the_way_;  ///< to a stage: plans, and to the first one tokens
  std::vector<Visits> arrived_;     ///< not issued yet
  std::vector<Visits> to_pass_on_;  ///< whose plans or tokens the stage's next sends carry
  std::vector<std::size_t> unsettled_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  double now_ = 0;
  std::vector<TracedStep> trace_;
};

void Simulation::make_stages(const std::vector<stage::StagePlan>& plans) {
  std::vector<std::size_t> made_for;
  for (std::size_t k = 0; k < plans.size(); ++k) {
    const auto& profile = cluster_.of_stage(k);
    std::size_t source = 0;
    while (source < sources_.size() &&
           !(alike(plans[made_for[source]], plans[k]) &&
             (cluster_.node_of_stage[made_for[source]] == cluster_.node_of_stage[k] ||
              cluster_.of_stage(made_for[source]) == profile))) {
      ++source;
    }
    if (source == sources_.size()) {
      sources_.push_back(std::make_unique<VisitSource>(plans[k], profile, options_.most_layers));
      made_for.push_back(k);
    }
    stages_.emplace_back(*sources_[source]);
  }
  watched_.assign(cluster_.nodes.size(), 0);
}

void Simulation::push(Event event) {
  event.order = order_++;
  events_.push(event);
}

SimulationResult Simulation::run(const Workload& requests) {
  unsettled_ = {0};
  settle();
  while (!events_.empty()) {
    const auto event = events_.top();
    events_.pop();
    if (event.kind == EventKind::node && event.version != nodes_[event.index].version()) {
      continue;
    }
    now_ = event.time;
    handle(event);
    settle();
  }
  STAGECOACH_CHECK(coordinator_.over());
  return result(requests);
}

void Simulation::handle(const Event& event) {
  switch (event.kind) {
    case EventKind::node: {
      const auto work = nodes_[event.index].finish();
      end(static_cast<std::size_t>(work.stage), work.resource);
      watch(event.index);
      return;
    }
    case EventKind::plan:
      arrived_[event.index].push_back(std::move(on_the_way_[event.index].front()));
      on_the_way_[event.index].pop_front();
      unsettled_.push_back(event.index);
      return;
    case EventKind::hidden:
      edges_[event.index - 1] = {};
      end(event.index - 1, Resource::send);
      end(event.index, Resource::receive);
      return;
    case EventKind::tokens:
      coordinator_.take_tokens(on_the_way_[0].front()->block, now_);
      on_the_way_[0].pop_front();
      unsettled_.push_back(0);
      return;
  }
}

/// Begins whatever can begin now.
void Simulation::settle() {
  while (!unsettled_.empty()) {
    const auto stage = unsettled_.back();
    unsettled_.pop_back();
    while (settle_stage(stage)) {
    }
  }
}

bool Simulation::settle_stage(std::size_t stage) {
  auto& replay = stages_[stage];
  if (replay.can_issue()) {
    if (stage == 0 && coordinator_.wanted(now_) != nullptr) {
      arrived_[0].push_back(coordinator_.issued());
    }
    if (!arrived_[stage].empty()) {
      issue(stage);
      return true;
    }
  }
  if (const auto resource = replay.begin_next(now_)) {
    begin(stage, replay.running(*resource));
    return true;
  }
  watch(cluster_.node_of_stage[stage]);
  return false;
}

void Simulation::issue(std::size_t stage) {
  const auto visit = arrived_[stage].front();
  arrived_[stage].pop_front();
  to_pass_on_[stage].push_back(visit);
  stages_[stage].issue(*visit);
}

/// Plans and tokens are short: they arrive a latency later, and hold nobody up.
void Simulation::pass_on(std::size_t from, std::size_t to, EventKind kind) {
  on_the_way_[to].push_back(std::move(to_pass_on_[from].front()));
  to_pass_on_[from].pop_front();
  push({.time = now_ + cluster_.link_after(from).latency_seconds, .kind = kind, .index = to});
  end(from, Resource::send);
}

void Simulation::begin(std::size_t stage, const StageReplay::Running& running) {
  switch (running.first_step().kind) {
    case StepKind::send_plan:
      pass_on(stage, stage + 1, EventKind::plan);
      return;
    case StepKind::send_tokens:
      pass_on(stage, 0, EventKind::tokens);
      return;
    case StepKind::send_hidden:
      edges_[stage].sender = true;
      transfer(stage);
      return;
    case StepKind::receive_hidden:
      edges_[stage - 1].receiver = true;
      transfer(stage - 1);
      return;
    default: {
      const auto node = cluster_.node_of_stage[stage];
      nodes_[node].start({static_cast<std::int32_t>(stage), running.group->resource},
                         running.group->cost, now_);
    }
  }
}

void Simulation::transfer(std::size_t edge) {
  if (!edges_[edge].sender || !edges_[edge].receiver) {
    return;
  }
  stages_[edge].begin_again(Resource::send, now_);
  stages_[edge + 1].begin_again(Resource::receive, now_);
  const auto& link = cluster_.link_after(edge);
  const auto rows = stages_[edge].running(Resource::send).first_step().rows;
  const auto bytes = stages_[edge].costs().wire_bytes(rows);
  push({.time = now_ + link.latency_seconds + bytes / link.bytes_per_second,
        .kind = EventKind::hidden,
        .index = edge + 1});
}

void Simulation::end(std::size_t stage, Resource resource) {
  if (options_.trace) {
    trace(stage, resource);
  }
  stages_[stage].end(resource, now_);
  unsettled_.push_back(stage);
}

/// Of a group each step gets its part of the time.
void Simulation::trace(std::size_t stage, Resource resource) {
  const auto& running = stages_[stage].running(resource);
  const auto& group = *running.group;
  const auto stretch = group.cost.seconds > 0 ? (now_ - running.began) / group.cost.seconds : 0;
  auto start = running.began;
  for (auto i = group.first; i < group.end; ++i) {
    const auto& step = running.visit->steps[static_cast<std::size_t>(i)];
    const auto seconds = stretch * running.visit->costs[static_cast<std::size_t>(i)].seconds;
    const auto end = i + 1 == group.end ? now_ : start + seconds;
    trace_.push_back({.stage = static_cast<std::int32_t>(stage),
                      .kind = step.kind,
                      .resource = resource,
                      .visit = step.id.visit,
                      .layer = step.layer,
                      .gpu_batch = step.gpu_batch,
                      .start_seconds = start,
                      .end_seconds = end});
    start = end;
  }
}

/// Sees to it that the node's next end is among the events.
void Simulation::watch(std::size_t node) {
  if (!nodes_[node].idle() && watched_[node] != nodes_[node].version()) {
    watched_[node] = nodes_[node].version();
    push({.time = nodes_[node].next_end(),
          .kind = EventKind::node,
          .index = node,
          .version = nodes_[node].version()});
  }
}

SimulationResult Simulation::result(const Workload& requests) {
  SimulationResult result;
  const auto& times = coordinator_.times();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    result.prompt_tokens += requests[i].prompt;
    result.generated_tokens += times[i].tokens;
    result.seconds = std::max(result.seconds, times[i].last_token);
    result.prefill_seconds = std::max(result.prefill_seconds, times[i].first_token);
    const auto latency = times[i].last_token - times[i].first_visit;
    result.mean_latency_seconds += latency / static_cast<double>(requests.size());
    result.max_latency_seconds = std::max(result.max_latency_seconds, latency);
  }
  for (const auto& stage : stages_) {
    result.stages.push_back(stage.use());
  }
  result.trace = std::move(trace_);
  return result;
}

}  // namespace

double StageUse::bubble_seconds() const {
  return last_compute_seconds - first_compute_seconds -
         busy_seconds[static_cast<std::size_t>(Resource::compute)];
}

double SimulationResult::decode_tokens_per_second(std::int64_t requests) const {
  return static_cast<double>(generated_tokens - requests) / (seconds - prefill_seconds);
}

SimulationResult simulate(const std::vector<stage::StagePlan>& plans, const Cluster& cluster,
                          const Workload& requests, std::int64_t kv_pages_per_layer,
                          const SimulationOptions& options) {
  STAGECOACH_CHECK(!plans.empty() && !requests.empty());
  return Simulation(plans, cluster, requests, kv_pages_per_layer, options).run(requests);
}

}  // namespace stagecoach::plan
