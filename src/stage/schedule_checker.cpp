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
  StepId id{};
  StepKind kind{};
  Resource resource{};
  std::int64_t position = 0;  ///< among the steps of its resource, from 1
  Clock before{};             ///< what has ended when it begins
};

/// Who touched a buffer last. Older accesses are ordered before these, or a fault was found.
struct Accesses {
  std::vector<Checked> writer;  ///< none or one
  std::vector<Checked> readers;
};

std::string name(const Checked& step) {
  return fmt::format("visit {} step {} ({})", step.id.visit, step.id.index, to_string(step.kind));
}

bool ordered(const Checked& earlier, const Checked& later) {
  return later.before[static_cast<std::size_t>(earlier.resource)] >= earlier.position;
}

class Checker {
 public:
  void check(const Step& step) {
    const auto checked = place(step);
    for (const auto& buffer : step.reads) {
      expect_ordered(accesses_[buffer].writer, checked, buffer);
    }
    for (const auto& buffer : step.writes) {
      expect_ordered(accesses_[buffer].writer, checked, buffer);
      expect_ordered(accesses_[buffer].readers, checked, buffer);
    }
    for (const auto& buffer : step.reads) {
      accesses_[buffer].readers.push_back(checked);
    }
    for (const auto& buffer : step.writes) {
      accesses_[buffer] = {.writer = {checked}, .readers = {}};
    }
    done_[step.id] = checked;
    last_of_[static_cast<std::size_t>(step.resource)] = checked;
  }

  std::vector<std::string> take_faults() { return std::move(faults_); }

 private:
  Checked place(const Step& step) {
    Checked checked{step.id, step.kind, step.resource, 1, {}};
    const auto join = [&](const Checked& other, bool ended) {
      for (std::size_t r = 0; r < kResources; ++r) {
        checked.before[r] = std::max(checked.before[r], other.before[r]);
      }
      if (ended) {
        auto& count = checked.before[static_cast<std::size_t>(other.resource)];
        count = std::max(count, other.position);
      }
    };
    const auto& last = last_of_[static_cast<std::size_t>(step.resource)];
    if (last.position > 0) {
      join(last, one_at_a_time(step.resource));
      checked.position = last.position + 1;
    }
    for (const auto& wait : step.waits) {
      if (const auto found = done_.find(wait); found != done_.end()) {
        join(found->second, true);
      } else {
        faults_.push_back(
            fmt::format("{} waits for visit {} step {}, which does not come before it",
                        name(checked), wait.visit, wait.index));
      }
    }
    return checked;
  }

  void expect_ordered(const std::vector<Checked>& earlier, const Checked& later,
                      const BufferRef& buffer) {
    for (const auto& step : earlier) {
      if (!ordered(step, later)) {
        faults_.push_back(fmt::format("nothing orders {} and {}: both touch {} {}.{}", name(step),
                                      name(later), to_string(buffer.kind), buffer.index,
                                      buffer.part));
      }
    }
  }

  std::map<StepId, Checked> done_;
  std::map<BufferRef, Accesses> accesses_;
  std::array<Checked, kResources> last_of_{};
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> check_schedule(const std::vector<Step>& steps) {
  Checker checker;
  for (const auto& step : steps) {
    checker.check(step);
  }
  return checker.take_faults();
}

}  // namespace stagecoach::stage
