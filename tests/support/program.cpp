#include "support/program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace stagecoach::testing {
namespace {

constexpr auto kTick = std::chrono::milliseconds(5);

std::string temporary_file() {
  auto path = (std::filesystem::temp_directory_path() / "stagecoach-program-XXXXXX").string();
  const int descriptor = ::mkstemp(path.data());
  if (descriptor < 0) {
    throw std::runtime_error("cannot make a temporary file");
  }
  ::close(descriptor);
  return path;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

[[noreturn]] void become(const std::vector<std::string>& command, const std::string& out,
                         const std::string& err) {
  ::setpgid(0, 0);
  ::dup2(::open("/dev/null", O_RDONLY), 0);
  ::dup2(::open(out.c_str(), O_WRONLY | O_TRUNC), 1);
  ::dup2(::open(err.c_str(), O_WRONLY | O_TRUNC), 2);
  std::vector<char*> arguments;
  for (const auto& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

bool is_rank(const std::filesystem::path& process, pid_t group, int rank) {
  const auto environment = read_file((process / "environ").string());
  const auto wanted = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
  const std::string with_end = wanted + '\0';
  const auto pid = static_cast<pid_t>(std::strtol(process.filename().c_str(), nullptr, 10));
  if (environment.find(with_end) == std::string::npos) {
    return false;
  }
  // Ranks have process groups of their own; their parent is mpiexec.
  std::istringstream status(read_file((process / "status").string()));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("PPid:", 0) == 0) {
      return std::strtol(line.c_str() + 5, nullptr, 10) == group && pid > 0;
    }
  }
  return false;
}

}  // namespace

Program::Program(const std::vector<std::string>& command)
    : out_path_(temporary_file()), err_path_(temporary_file()) {
  pid_ = ::fork();
  if (pid_ < 0) {
    throw std::runtime_error("cannot fork");
  }
  if (pid_ == 0) {
    become(command, out_path_, err_path_);
  }
  ::setpgid(pid_, pid_);
}

Program::~Program() {
  if (pid_ > 0) {
    // SIGTERM first: mpiexec then ends its ranks, which are not in its process group.
    ::kill(pid_, SIGCONT);
    ::kill(pid_, SIGTERM);
    if (!wait(std::chrono::seconds(5))) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  ::unlink(out_path_.c_str());
  ::unlink(err_path_.c_str());
}

std::optional<ProgramEnd> Program::wait(std::chrono::milliseconds at_most) {
  const auto deadline = std::chrono::steady_clock::now() + at_most;
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      return std::nullopt;
    }
    std::this_thread::sleep_for(kTick);
  }
  pid_ = -1;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ProgramEnd{code, read_file(out_path_), read_file(err_path_)};
}

pid_t Program::find_rank(int rank) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < deadline) {
    std::error_code ignored;
    for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
      if (is_rank(process.path(), pid_, rank)) {
        return static_cast<pid_t>(std::strtol(process.path().filename().c_str(), nullptr, 10));
      }
    }
    std::this_thread::sleep_for(kTick);
  }
  return -1;
}

ProgramEnd run_program(const std::vector<std::string>& command) {
  Program program(command);
  const auto end = program.wait(std::chrono::minutes(2));
  if (!end) {
    ADD_FAILURE() << command.front() << " did not end in two minutes";
    return {};
  }
  return *end;
}

std::vector<std::string> mpiexec(int ranks) {
  std::vector<std::string> command = {"mpiexec",
                                      "-n",
                                      std::to_string(ranks),
                                      "--oversubscribe",
                                      "--bind-to",
                                      "none",
                                      "--mca",
                                      "mpi_yield_when_idle",
                                      "1"};
  if (::geteuid() == 0) {
    command.emplace_back("--allow-run-as-root");
  }
  return command;
}

}  // namespace stagecoach::testing
