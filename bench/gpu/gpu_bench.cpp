// Rates of the CUDA device's operations, each beside what CUDA or cuBLAS itself does in the same
// run. Needs nothing but the device: no MPI, no model.
//
//   gpu_bench [--device N] [--device-mem SIZE] [--page-tokens N] [--repeats N] [--seconds S]
//             [--only GROUP] [--csv FILE] [--small]

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "gpu/cases.hpp"

namespace stagecoach::bench::gpu {
namespace {

struct Group {
  const char* name;
  Case measure;
};
constexpr std::array kGroups = {
    Group{"rows", measure_rows},           Group{"products", measure_products},
    Group{"attention", measure_attention}, Group{"sampling", measure_sampling},
    Group{"copies", measure_copies},       Group{"layers", measure_layers},
};

double number(const std::string& flag, const std::string& text, double least) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= least)) {
    throw ConfigError(fmt::format("{} {}: must be a number of at least {}", flag, text, least));
  }
  return value;
}

/// Sets what one flag says.
void set(Settings& settings, std::string& only, const std::string& flag, const std::string& value) {
  if (flag == "--device") {
    settings.gpu = static_cast<int>(number(flag, value, 0));
  } else if (flag == "--device-mem") {
    settings.memory_bytes = parse_bytes(value, flag);
  } else if (flag == "--page-tokens") {
    settings.page_tokens = static_cast<std::int64_t>(number(flag, value, 1));
  } else if (flag == "--repeats") {
    settings.repeats = static_cast<int>(number(flag, value, 1));
  } else if (flag == "--seconds") {
    settings.seconds = number(flag, value, 0);
  } else if (flag == "--csv") {
    settings.csv = value;
  } else if (flag == "--only") {
    only = value;
  } else {
    throw ConfigError(fmt::format("{}: no such flag; the head of gpu_bench.cpp lists them", flag));
  }
}

int run(const std::vector<std::string>& arguments) {
  Settings settings;
  std::string only;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--small") {
      settings.small = true;
      continue;
    }
    if (i + 1 == arguments.size()) {
      throw ConfigError(
          fmt::format("{}: a value is missing, or there is no such flag", arguments[i]));
    }
    set(settings, only, arguments[i], arguments[i + 1]);
    ++i;
  }
  Workbench bench(settings);
  fmt::print("{}; {} of it for this run; pages of {} tokens; medians of {}\n",
             bench.device().description(), format_bytes(settings.memory_bytes),
             settings.page_tokens, settings.repeats);
  bool found = false;
  for (const auto& group : kGroups) {
    if (only.empty() || only == group.name) {
      group.measure(bench);
      found = true;
    }
  }
  if (!found) {
    throw ConfigError(fmt::format("--only {}: no such group", only));
  }
  if (!settings.csv.empty()) {
    bench.table().write_csv(settings.csv);
  }
  return 0;
}

}  // namespace
}  // namespace stagecoach::bench::gpu

int main(int argc, char** argv) {
  try {
    return stagecoach::bench::gpu::run({argv + 1, argv + argc});
  } catch (const stagecoach::ConfigError& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 1;
  }
}
