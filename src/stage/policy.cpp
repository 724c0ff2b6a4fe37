#include "stage/policy.hpp"

#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::stage {
namespace {

constexpr std::array<std::pair<ScheduleKind, const char*>, 4> kSchedules = {
    {{ScheduleKind::rolling, "rolling"},
     {ScheduleKind::zigzag, "zigzag"},
     {ScheduleKind::row, "row"},
     {ScheduleKind::flexgen, "flexgen"}}};

void check_pair(double device, double cpu, const char* what) {
  const bool good = std::isfinite(device) && std::isfinite(cpu) && device >= 0 && cpu >= 0 &&
                    device + cpu <= 100 + 1e-9;
  if (!good) {
    throw ConfigError(fmt::format(
        "--percent: {} on device {} and CPU {}: both must be 0 to 100, and their sum at "
        "most 100 (the rest is on disk)",
        what, device, cpu));
  }
}

}  // namespace

Percent parse_percent(const std::string& text, const std::string& flag) {
  std::vector<double> numbers;
  bool good = true;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    const auto* const end = word.data() + word.size();
    const auto [stop, code] = std::from_chars(word.data(), end, numbers.emplace_back());
    good = good && code == std::errc{} && stop == end && std::isfinite(numbers.back());
  }
  if (!good || numbers.size() != 6) {
    throw ConfigError(fmt::format(
        "{} {}: must be six numbers: weights, cache and activations, each on device and CPU", flag,
        text));
  }
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
}

std::string format_percent(const Percent& percent) {
  return fmt::format("{} {} {} {} {} {}", percent.weights_device, percent.weights_cpu,
                     percent.cache_device, percent.cache_cpu, percent.hidden_device,
                     percent.hidden_cpu);
}

void validate(const Policy& policy) {
  const auto& percent = policy.percent;
  check_pair(percent.weights_device, percent.weights_cpu, "weights");
  check_pair(percent.cache_device, percent.cache_cpu, "cache");
  check_pair(percent.hidden_device, percent.hidden_cpu, "activations");
  if (policy.weight_buffers < 0 || policy.weight_buffers > 64) {
    throw ConfigError("--weight-buffers: must be 1 to 64, or 0 for 2 or 3");
  }
  const bool spills = percent.cache().disk() > 1e-9 || percent.hidden().disk() > 1e-9;
  if (spills && policy.offload_dir.empty()) {
    throw ConfigError(
        fmt::format("--percent {}: puts cache or activations on disk: give a folder with "
                    "--offload-dir",
                    format_percent(percent)));
  }
}

ScheduleKind parse_schedule(const std::string& text, const std::string& flag) {
  std::vector<std::string> names;
  for (const auto& [kind, name] : kSchedules) {
    if (text == name) {
      return kind;
    }
    names.emplace_back(name);
  }
  throw ConfigError(fmt::format("{} {}: must be one of {}", flag, text, fmt::join(names, ", ")));
}

std::string to_string(ScheduleKind kind) {
  for (const auto& [known, name] : kSchedules) {
    if (known == kind) {
      return name;
    }
  }
  return "?";
}

BatchShape shape_for(BatchShape batch, ScheduleKind kind, int stages) {
  if (batch.inner_iterations == 0) {
    batch.inner_iterations = default_inner_iterations(stages);
  }
  if (kind != ScheduleKind::rolling) {
    batch.admission = Admission::whole;
  }
  if (kind == ScheduleKind::row) {
    batch.num_gpu_batches = 1;
  }
  return batch;
}

}  // namespace stagecoach::stage
