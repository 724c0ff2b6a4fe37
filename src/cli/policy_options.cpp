#include "cli/policy_options.hpp"

#include <fmt/ranges.h>

#include <map>
#include <sstream>
#include <string>

#include "base/ini_file.hpp"
#include "base/units.hpp"

namespace stagecoach::cli {
namespace {

using Text = std::string;
using Settings = std::map<std::string, std::string>;

stage::Switch parse_switch(const std::string& text, const std::string& flag) {
  if (text == "on") {
    return stage::Switch::on;
  }
  if (text == "off") {
    return stage::Switch::off;
  }
  if (text == "auto") {
    return stage::Switch::automatic;
  }
  throw ConfigError(fmt::format("{} {}: must be on, off or auto", flag, text));
}

/// Takes one setting into the policy; false: there is none of that name.
bool set(stage::Policy& policy, const std::string& key, const std::string& value,
         const std::string& flag) {
  if (key == "percent") {
    policy.percent = stage::parse_percent(value, flag);
  } else if (key == "device-mem") {
    policy.device_mem_bytes = parse_bytes(value, flag);
  } else if (key == "cpu-mem") {
    policy.cpu_mem_bytes = parse_bytes(value, flag);
  } else if (key == "pinned-mem") {
    policy.pinned_mem_bytes = parse_bytes(value, flag);
  } else if (key == "disk-mem") {
    policy.disk_mem_bytes = parse_bytes(value, flag);
  } else if (key == "offload-dir") {
    policy.offload_dir = value;
  } else if (key == "pin-weights") {
    policy.pin_weights = parse_switch(value, flag);
  } else if (key == "cpu-attention") {
    policy.cpu_attention = parse_switch(value, flag);
  } else if (key == "widen-weights") {
    policy.widen_weights = parse_switch(value, flag);
  } else if (key == "weight-buffers") {
    policy.weight_buffers = static_cast<std::int64_t>(parse_unsigned(value, flag));
  } else {
    return false;
  }
  return true;
}

constexpr const char* kKeys[] = {"percent",       "device-mem",    "cpu-mem",     "pinned-mem",
                                 "disk-mem",      "offload-dir",   "pin-weights", "cpu-attention",
                                 "widen-weights", "weight-buffers"};

stage::Policy with(stage::Policy policy, const Settings& settings, const std::string& where) {
  for (const auto& [key, value] : settings) {
    if (!set(policy, key, value, fmt::format("{}: {}", where, key))) {
      throw ConfigError(fmt::format("{}: {} is no part of a policy; these are: {}", where, key,
                                    fmt::join(kKeys, ", ")));
    }
  }
  return policy;
}

/// A policy a file; or one file, with a policy a section.
std::vector<stage::Policy> read_files(const std::string& names, const stage::Policy& base) {
  std::vector<std::string> paths;
  std::istringstream in(names);
  for (std::string path; std::getline(in, path, ',');) {
    paths.push_back(path);
  }
  std::vector<stage::Policy> policies;
  for (const auto& path : paths) {
    for (const auto& section : read_ini_sections(path)) {
      const auto where = section.name.empty() ? path : fmt::format("{} [{}]", path, section.name);
      policies.push_back(with(base, section.settings, where));
    }
  }
  return policies;
}

/// "stage 2", with nothing or a remark for people behind it.
bool is_stage(const std::string& name, std::size_t stage) {
  const auto expected = fmt::format("stage {}", stage);
  return name.starts_with(expected) &&
         (name.size() == expected.size() || name[expected.size()] == ':');
}

/// The [stage N] sections of a job file. What the command line says wins.
std::vector<stage::Policy> read_sections(const Options& options, const stage::Policy& base) {
  const auto& path = options.text("config");
  std::vector<stage::Policy> policies;
  for (const auto& section : options.sections()) {
    if (!is_stage(section.name, policies.size())) {
      throw ConfigError(
          fmt::format("{} line {}: [{}] must be [stage {}]: there is one a stage, in "
                      "their order",
                      path, section.line, section.name, policies.size()));
    }
    auto settings = section.settings;
    for (const std::string key : kKeys) {
      if (options.on_command_line(key)) {
        settings.erase(key);
      }
    }
    policies.push_back(with(base, settings, fmt::format("{} [{}]", path, section.name)));
  }
  return policies;
}

stage::Policy read_base(const Options& options) {
  stage::Policy base;
  for (const std::string key : kKeys) {
    if (options.has(key)) {
      const auto value =
          key == "percent" ? fmt::format("{}", fmt::join(options.get<std::vector<Text>>(key), " "))
                           : options.text(key);
      set(base, key, value, "--" + key);
    }
  }
  return base;
}

void check_count(const std::vector<stage::Policy>& policies, bool one_for_all, int stages,
                 const std::string& where) {
  if (policies.size() != static_cast<std::size_t>(stages) &&
      !(one_for_all && policies.size() == 1)) {
    throw ConfigError(fmt::format("{}: {} policies for {} stages", where, policies.size(), stages));
  }
}

}  // namespace

po::options_description policy_options() {
  po::options_description group("Where a stage keeps what");
  group.add_options()("percent", po::value<std::vector<Text>>()->multitoken(),
                      "WG WC CG CC HG HC: per cent of weights, cache and activations on device and "
                      "CPU, the rest on disk (100 0 100 0 100 0)")(
      "device-mem", po::value<Text>(), "device memory of a stage, like 16GiB (what is free)")(
      "cpu-mem", po::value<Text>(), "DRAM beside it (what is free)")(
      "pinned-mem", po::value<Text>(), "of that, what may be pinned (what the system allows)")(
      "disk-mem", po::value<Text>(), "disk space for cache and activations (what is free)")(
      "offload-dir", po::value<Text>(), "folder for cache and activations on disk")(
      "pin-weights", po::value<Text>()->default_value("auto"),
      "keep weights in DRAM from being paged out: on, off or auto")(
      "cpu-attention", po::value<Text>()->default_value("auto"),
      "attend to pages in DRAM where they are: on, off or auto")(
      "widen-weights", po::value<Text>()->default_value("auto"),
      "widen packed weights once a visit, for all its GPU batches: on, off or auto")(
      "weight-buffers", po::value<Text>()->default_value("0"),
      "layers of streamed weights on the device; 0: as many as fit, at most 3")(
      "stage-policy", po::value<Text>(),
      "ini files with any of the above, one a stage, with commas; or one file with a section a "
      "stage")("schedule", po::value<Text>()->default_value("rolling"),
               "rolling, zigzag, row or flexgen")(
      "no-overlap", po::bool_switch(), "one step after the other, to see what overlap is worth");
  return group;
}

std::vector<stage::Policy> read_policies(const Options& options, int stages) {
  const bool files = options.has("stage-policy");
  if (files && !options.sections().empty()) {
    throw ConfigError(
        fmt::format("--stage-policy and the [stage N] sections of {} exclude each other",
                    options.text("config")));
  }
  std::vector<stage::Policy> policies{read_base(options)};
  if (files) {
    const auto& names = options.text("stage-policy");
    policies = read_files(names, policies.front());
    check_count(policies, true, stages, "--stage-policy " + names);
  } else if (!options.sections().empty()) {
    policies = read_sections(options, policies.front());
    check_count(policies, false, stages, options.text("config"));
  }
  for (const auto& policy : policies) {
    stage::validate(policy);
  }
  return policies;
}

}  // namespace stagecoach::cli
