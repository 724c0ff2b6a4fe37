#include "plan/trace.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace stagecoach::plan {
namespace {

constexpr double kMicroseconds = 1e6;

std::string describe(const TracedStep& step) {
  auto text = fmt::format(R"("visit":{})", step.visit);
  if (step.layer >= 0) {
    text += fmt::format(R"(,"layer":{})", step.layer);
  }
  if (step.gpu_batch >= 0) {
    text += fmt::format(R"(,"gpu_batch":{})", step.gpu_batch);
  }
  return text;
}

}  // namespace

std::string format_trace(const std::vector<TracedStep>& steps) {
  std::string text = "[\n";
  std::set<std::pair<std::int32_t, stage::Resource>> rows;
  for (const auto& step : steps) {
    rows.emplace(step.stage, step.resource);
  }
  for (const auto& [stage, resource] : rows) {
    text += fmt::format(
        R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"stage {0}"}}}},)"
        "\n"
        R"({{"name":"thread_name","ph":"M","pid":{0},"tid":{1},"args":{{"name":"{2}"}}}},)"
        "\n",
        stage, static_cast<int>(resource), to_string(resource));
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    text += fmt::format(
        R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}}{})"
        "\n",
        to_string(step.kind), step.stage, static_cast<int>(step.resource),
        kMicroseconds * step.start_seconds, kMicroseconds * (step.end_seconds - step.start_seconds),
        describe(step), i + 1 < steps.size() ? "," : "");
  }
  return text + "]\n";
}

}  // namespace stagecoach::plan
