#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/process.hpp"
#include "job/agreement.hpp"

namespace {

using stagecoach::cli::Process;
using Arguments = std::vector<std::string>;

struct Command {
  const char* name;
  const char* summary;
  int (*run)(Process&, const Arguments&);
};

constexpr std::array kCommands = {
    Command{"convert", "make a weight store from a checkpoint, or from dummy weights",
            [](Process&, const Arguments& a) { return stagecoach::cli::convert_command(a); }},
    Command{"info", "show a model's shapes and memory, verify a store",
            [](Process&, const Arguments& a) { return stagecoach::cli::info_command(a); }},
    Command{"run", "generate text for a file of prompts, over one or many stages",
            [](Process& p, const Arguments& a) { return stagecoach::cli::run_command(p, a); }},
    Command{"eval", "perplexity, last words and log probabilities, over one or many stages",
            [](Process& p, const Arguments& a) { return stagecoach::cli::eval_command(p, a); }},
    Command{"profile", "measure this machine, for plans and simulations",
            [](Process& p, const Arguments& a) { return stagecoach::cli::profile_command(p, a); }},
    Command{"schedule", "show what one stage does in one visit, step by step",
            [](Process&, const Arguments& a) { return stagecoach::cli::schedule_command(a); }},
    Command{"plan", "find placement and batches for a job, and say how fast it will be",
            [](Process&, const Arguments& a) { return stagecoach::cli::plan_command(a); }},
    Command{"simulate", "how fast a job would be on other machines, and why",
            [](Process&, const Arguments& a) { return stagecoach::cli::simulate_command(a); }},
};

void print_usage(std::FILE* out) {
  std::fprintf(out, "usage: stagecoach COMMAND [options]\n\n");
  for (const auto& command : kCommands) {
    std::fprintf(out, "  %-9s %s\n", command.name, command.summary);
  }
  std::fprintf(out, "\n'stagecoach COMMAND --help' lists a command's options. Version %s.\n",
               STAGECOACH_VERSION);
}

int dispatch(Process& process, const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments[0] == "help") {
    print_usage(arguments.empty() ? stderr : stdout);
    return arguments.empty() ? 2 : 0;
  }
  if (arguments[0] == "--version") {
    std::printf("stagecoach %s\n", STAGECOACH_VERSION);
    return 0;
  }
  const auto found = std::find_if(kCommands.begin(), kCommands.end(), [&](const Command& command) {
    return command.name == arguments[0];
  });
  if (found == kCommands.end()) {
    throw stagecoach::ConfigError(
        fmt::format("no command {}; 'stagecoach --help' lists them", arguments[0]));
  }
  return found->run(process, {arguments.begin() + 1, arguments.end()});
}

}  // namespace

int main(int argc, char** argv) {
  // A file at its size limit is a failed write, with a message, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  Process process;
  try {
    return dispatch(process, {argv + 1, argv + argc});
  } catch (const stagecoach::job::JobRefused& refusal) {
    // All ranks end here, each by itself and with the same exit code.
    if (refusal.speaks()) {
      std::fprintf(stderr, "stagecoach: %s\n", refusal.what());
    }
    return refusal.exit_code();
  } catch (const stagecoach::ConfigError& error) {
    process.complain(error.what());
    return process.end_job(2);
  } catch (const std::bad_alloc&) {
    process.complain("out of memory");
    return process.end_job(1);
  } catch (const std::exception& error) {
    process.complain(error.what());
    return process.end_job(1);
  }
}
