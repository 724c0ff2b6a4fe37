// How a schedule becomes CUDA's events, and that faults in it would be seen.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "cuda/engine_case.hpp"
#include "device/cuda/cuda_event.hpp"
#include "support/cuda_standin/standin.hpp"

namespace stagecoach::test {
namespace {

using cuda_standin::OrderEvent;
using stage::Percent;
using stage::Resource;
using stage::ScheduleKind;
using stage::Step;
using stage::StepId;
using stage::Switch;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr Resource kCudaResources[] = {Resource::compute, Resource::h2d, Resource::d2h};

constexpr Percent kSpread = {20, 80, 30, 30, 50, 0};

const EngineOptions kCases[] = {
    {.percent = {100, 0, 100, 0, 100, 0}},
    {.percent = kSpread},
    {.percent = {0, 100, 0, 0, 0, 0}},
    {.percent = kSpread, .cpu_attention = Switch::on},
    {.percent = kSpread, .compressed = true},
    {.percent = kSpread, .sparse = true},
    {.percent = kSpread, .schedule = ScheduleKind::flexgen},
    {.percent = kSpread, .schedule = ScheduleKind::zigzag, .cpu_attention = Switch::on},
};

class CudaEngine : public ::testing::Test {
 protected:
  void SetUp() override { cuda_standin::reset({}); }
  void TearDown() override { cuda_standin::reset({}); }
};

cudaEvent_t native_event(const device::Event& event) {
  return dynamic_cast<const device::cuda::CudaEvent&>(*event.state()).native();
}

class CudaSchedule : public CudaEngine, public ::testing::WithParamInterface<std::size_t> {
 protected:
  static const EngineOptions& options() { return kCases[GetParam()]; }
};

INSTANTIATE_TEST_SUITE_P(Every, CudaSchedule, ::testing::Range<std::size_t>(0, std::size(kCases)),
                         [](const auto& test) { return std::to_string(test.param); });

bool on_cuda(Resource resource) {
  return std::find(std::begin(kCudaResources), std::end(kCudaResources), resource) !=
         std::end(kCudaResources);
}

/// "25.18", for messages.
std::vector<std::string> names(const std::set<StepId>& steps) {
  std::vector<std::string> names;
  for (const auto& step : steps) {
    names.push_back(fmt::format("{}.{}", step.visit, step.index));
  }
  return names;
}

/// What each step on a CUDA stream waits for on another, by the schedule. The engine has let go of
/// what is a whole ring of visits old: it had ended before the step was issued.
std::map<StepId, std::set<StepId>> scheduled_waits(const std::vector<Step>& steps) {
  std::map<StepId, Resource> resource_of;
  std::map<StepId, std::set<StepId>> waits;
  for (const auto& step : steps) {
    resource_of[step.id] = step.resource;
    if (!on_cuda(step.resource)) {
      continue;
    }
    auto& of_step = waits[step.id];
    for (const auto& wait : step.waits) {
      if (on_cuda(resource_of.at(wait)) && wait.visit > step.id.visit - stage::kHiddenRing) {
        of_step.insert(wait);
      }
    }
  }
  return waits;
}

/// The same by CUDA's own calls: the waits of a stream between a step's event and the one before.
std::map<StepId, std::set<StepId>> recorded_waits(const std::vector<Step>& steps,
                                                  const std::vector<OrderEvent>& log,
                                                  const TappedDevice& tapped) {
  std::map<int, StepId> step_of;
  for (const auto resource : kCudaResources) {
    const auto& records = tapped.stream(to_string(resource)).records();
    std::size_t next = 0;
    for (const auto& step : steps) {
      if (step.resource == resource) {
        step_of[cuda_standin::event_number(native_event(records.at(next)))] = step.id;
        ++next;
      }
    }
  }
  // The device's own rings used some of the events before; a step's record was the last.
  std::map<int, std::int64_t> last;
  for (const auto& entry : log) {
    last[entry.event] = std::max(last[entry.event], entry.generation);
  }
  std::map<StepId, std::set<StepId>> waits;
  std::map<int, std::set<StepId>> pending;  // of a stream
  for (const auto& entry : log) {
    const auto step = step_of.find(entry.event);
    if (step == step_of.end() || entry.generation < last[entry.event]) {
      continue;
    }
    if (entry.kind == OrderEvent::Kind::wait) {
      pending[entry.stream].insert(step->second);
    } else {
      waits[step->second] = std::exchange(pending[entry.stream], {});
    }
  }
  return waits;
}

TEST_P(CudaSchedule, EventsAreItsDependencies) {
  const EngineCase job(options());
  const auto steps = job.steps();
  cuda_standin::log_order(true);
  job.run({}, [&](const TappedDevice& tapped) {
    const auto recorded = recorded_waits(steps, cuda_standin::order_log(), tapped);
    std::size_t count = 0;
    for (const auto& [step, waits] : scheduled_waits(steps)) {
      EXPECT_EQ(names(recorded.at(step)), names(waits))
          << "step " << step.index << " of visit " << step.visit;
      count += waits.size();
    }
    // Where everything is on the device, nothing crosses streams.
    EXPECT_EQ(count > 0, options().percent != Percent({100, 0, 100, 0, 100, 0}));
  });
}

TEST_P(CudaSchedule, GivesTheSameOutcomesWhateverNoEventOrders) {
  const EngineCase job(options());
  const auto expected = job.run({});
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    cuda_standin::reset({.adversary_seed = seed});
    EXPECT_EQ(job.run({}), expected) << "seed " << seed;
  }
}

struct Planted {
  const char* name;
  Fault fault;
};

const Planted kFaults[] = {
    {"computing waits for nothing", {.deaf = "compute"}},
    {"loads into buffers still in use", {.deaf = "h2d"}},
    {"stores what is not computed", {.deaf = "d2h"}},
    {"copies by the wrong stream", {.wrong_copy = "d2h"}},
};

TEST_F(CudaEngine, PlantedFaultsAreSeen) {
  const EngineCase job({.percent = kSpread});
  const auto expected = job.run({});
  for (const auto& planted : kFaults) {
    int seen = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      cuda_standin::reset({.adversary_seed = seed});
      try {
        seen += job.run(planted.fault) != expected ? 1 : 0;
      } catch (const Error&) {
        ++seen;  // NaN where a token should be chosen
      }
    }
    EXPECT_GE(seen, 3) << planted.name;
  }
}

/// A failing call ends in one clear error, or was one that only gave something back.
void expect_clear_end(const EngineCase& job, const std::vector<std::vector<std::byte>>& expected,
                      std::int64_t call, std::map<std::string, int>& failed) {
  cuda_standin::reset({.fail_call = call});
  std::string message;
  try {
    EXPECT_EQ(job.run({}), expected) << "call " << call << ", " << cuda_standin::failed_call();
  } catch (const Error& error) {
    message = error.what();
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_THAT(message, AnyOf(HasSubstr("CUDA"), HasSubstr("cuBLAS"), HasSubstr("cuda:0")));
  }
  ++failed[cuda_standin::failed_call()];
}

TEST_F(CudaEngine, EveryCallThatFailsOnceEndsClearly) {
  const EngineCase job({.percent = kSpread});
  cuda_standin::reset({});
  const auto expected = job.run({});
  const auto calls = cuda_standin::calls();
  std::map<std::string, int> failed;
  // All of the beginning and the end, and every so many between.
  constexpr std::int64_t kEnds = 30;
  const auto step = std::max<std::int64_t>(1, calls / 50);
  for (std::int64_t call = 1; call <= calls;
       call += call < kEnds || call > calls - kEnds ? 1 : step) {
    expect_clear_end(job, expected, call, failed);
  }
  for (const auto& [name, count] : failed) {
    std::printf("%-32s %d\n", name.c_str(), count);
  }
  EXPECT_GE(failed.size(), 12u);
}

}  // namespace
}  // namespace stagecoach::test
