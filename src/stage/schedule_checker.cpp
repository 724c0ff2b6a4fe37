#include "stage/schedule_checker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace stagecoach::stage {
namespace {

/// For each resource, how many of its steps have surely ended (a vector clock).
using Clock = std::array<std::int64_t, kResources>;

struct Checked {
  const Step* step;
  std::int64_t position;  ///< among the steps of its resource, from 1
  Clock before;           ///< what has ended when it starts
};

std::string name(const Step& step) {
  return fmt::format("visit {} step {} ({})", step.id.visit, step.id.index, to_string(step.kind));
}

bool contains(const std::vector<BufferRef>& buffers, const BufferRef& buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

bool conflict(const Step& a, const Step& b) {
  const auto writes_what = [](const Step& writer, const Step& other) {
    return std::any_of(writer.writes.begin(), writer.writes.end(), [&](const BufferRef& buffer) {
      return contains(other.reads, buffer) || contains(other.writes, buffer);
    });
  };
  return writes_what(a, b) || writes_what(b, a);
}

bool ordered(const Checked& earlier, const Checked& later) {
  return later.before[static_cast<std::size_t>(earlier.step->resource)] >= earlier.position;
}

}  // namespace

std::vector<std::string> check_schedule(const std::vector<Step>& steps) {
  std::vector<std::string> faults;
  std::map<StepId, Checked> done;
  std::vector<Checked> in_order;
  std::array<const Checked*, kResources> last_of{};
  for (const auto& step : steps) {
    const auto resource = static_cast<std::size_t>(step.resource);
    Checked checked{&step, 1, {}};
    const auto join = [&](const Checked& other) {
      for (std::size_t r = 0; r < kResources; ++r) {
        checked.before[r] = std::max(checked.before[r], other.before[r]);
      }
      auto& ended = checked.before[static_cast<std::size_t>(other.step->resource)];
      ended = std::max(ended, other.position);
    };
    if (last_of[resource] != nullptr) {
      join(*last_of[resource]);
      checked.position = last_of[resource]->position + 1;
    }
    for (const auto& wait : step.waits) {
      if (const auto found = done.find(wait); found != done.end()) {
        join(found->second);
      } else {
        faults.push_back(fmt::format("{} waits for visit {} step {}, which does not come before it",
                                     name(step), wait.visit, wait.index));
      }
    }
    for (const auto& earlier : in_order) {
      if (conflict(*earlier.step, step) && !ordered(earlier, checked)) {
        faults.push_back(fmt::format("nothing orders {} and {}", name(*earlier.step), name(step)));
      }
    }
    in_order.push_back(checked);
    last_of[resource] = &done.insert_or_assign(step.id, checked).first->second;
  }
  return faults;
}

}  // namespace stagecoach::stage
