#include "e2e/whole_jobs.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <thread>

#include "e2e/tiny_opt.hpp"

namespace stagecoach::testing {
namespace {

using Clock = std::chrono::steady_clock;

bool soon(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + kSoon;
  while (!condition()) {
    if (Clock::now() > deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

SmallDisk::SmallDisk(std::size_t size_bytes)
    : mounted_(::mount("tmpfs", where_.path().c_str(), "tmpfs", 0,
                       fmt::format("size={}", size_bytes).c_str()) == 0) {}

SmallDisk::~SmallDisk() {
  if (mounted_) {
    ::umount2(where_.path().c_str(), MNT_DETACH);
  }
}

bool SmallDisk::make_read_only() const {
  return ::mount(nullptr, where_.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0;
}

std::string endless_requests() {
  std::string lines;
  for (int i = 0; i < 4000; ++i) {
    lines +=
        fmt::format(
            R"({{"id":{},"prompt":"In the beginning","max_new_tokens":60,"ignore_eos":true}})", i) +
        "\n";
  }
  return lines;
}

void wait_for_results(const std::string& output) {
  const auto deadline = Clock::now() + std::chrono::minutes(1);
  std::error_code error;
  while (std::filesystem::file_size(output, error) < 2000 || error) {
    ASSERT_LT(Clock::now(), deadline) << "no results";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::size_t expect_whole_results(const std::string& output) {
  const auto text = read_all(output);
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  const auto results = read_results(output);  // throws on a broken line
  for (const auto& [id, line] : results) {
    EXPECT_EQ(nlohmann::json::parse(line).at("completion_tokens"), 60);
  }
  return results.size();
}

ProgramEnd expect_end_soon(Program& program) {
  const auto end = program.wait(kSoon);
  EXPECT_TRUE(end.has_value()) << "still running after ten seconds";
  return end.value_or(ProgramEnd{});
}

bool ends_soon(pid_t pid) {
  return soon([&] {
    const auto text = read_all(fmt::format("/proc/{}/stat", pid));
    const auto state = text.rfind(") ");
    return state == std::string::npos || text[state + 2] == 'Z' || text[state + 2] == 'X';
  });
}

bool all_end_soon(const std::string& word) {
  return soon([&] {
    std::error_code ignored;
    for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
      if (read_all((process.path() / "cmdline").string()).find(word) != std::string::npos) {
        return false;
      }
    }
    return true;
  });
}

int lines_with(const std::string& text, const std::string& part) {
  int count = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    count += line.find(part) != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace stagecoach::testing
