#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace stagecoach::cli {

/// How far a long copy is, on standard error: one line that is redrawn on a terminal, else a new
/// line at most every ten seconds.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ProgressBar(ProgressBar&&) = delete;
  ProgressBar& operator=(ProgressBar&&) = delete;
  /// Leaves the terminal's cursor on a fresh line.
  ~ProgressBar();

  void show(std::uint64_t done_bytes, std::uint64_t total_bytes);

 private:
  using Clock = std::chrono::steady_clock;

  void draw(std::uint64_t done_bytes, std::uint64_t total_bytes, double elapsed_s);

  std::string what_;
  bool terminal_ = false;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace stagecoach::cli
