#include "cli/progress_bar.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/units.hpp"

namespace stagecoach::cli {
namespace {

constexpr auto kRedrawEvery = std::chrono::milliseconds(200);
constexpr auto kLineEvery = std::chrono::seconds(10);
constexpr int kBarWidth = 30;

std::string bar_of(double part) {
  const auto full = static_cast<std::size_t>(part * kBarWidth);
  return "[" + std::string(full, '#') + std::string(kBarWidth - full, ' ') + "]";
}

}  // namespace

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

ProgressBar::~ProgressBar() {
  if (drawn_ && terminal_) {
    std::fputc('\n', stderr);
  }
}

void ProgressBar::show(std::uint64_t done_bytes, std::uint64_t total_bytes) {
  const auto now = Clock::now();
  const bool whole = done_bytes >= total_bytes;
  const bool due = terminal_ ? now - last_ >= kRedrawEvery || whole
                             : now - last_ >= kLineEvery || (whole && drawn_);
  if (due && total_bytes > 0) {
    last_ = now;
    draw(done_bytes, total_bytes, std::chrono::duration<double>(now - start_).count());
  }
}

void ProgressBar::draw(std::uint64_t done_bytes, std::uint64_t total_bytes, double elapsed_s) {
  drawn_ = true;
  const double part = static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
  const double rate = elapsed_s > 0 ? static_cast<double>(done_bytes) / elapsed_s : 0;
  const auto text =
      fmt::format("{} {:3.0f} % of {}, {}/s", what_, part * 100, format_bytes(total_bytes),
                  format_bytes(static_cast<std::size_t>(rate)));
  if (terminal_) {
    fmt::print(stderr, "\r{} {}   ", bar_of(part), text);
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  std::fflush(stderr);
}

}  // namespace stagecoach::cli
