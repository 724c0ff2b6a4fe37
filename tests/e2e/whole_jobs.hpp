#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::testing {

using Words = std::vector<std::string>;

Words operator+(Words left, const Words& right);

/// Time in which a job that has failed must be gone.
inline constexpr auto kSoon = std::chrono::seconds(10);

/// A file system in memory that holds no more than `size_bytes`, if this user may mount one.
class SmallDisk {
 public:
  explicit SmallDisk(std::size_t size_bytes);
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  SmallDisk(SmallDisk&&) = delete;
  SmallDisk& operator=(SmallDisk&&) = delete;
  ~SmallDisk();

  [[nodiscard]] bool mounted() const noexcept { return mounted_; }
  /// False where that is not permitted.
  [[nodiscard]] bool make_read_only() const;
  [[nodiscard]] const std::string& folder() const noexcept { return where_.path(); }

 private:
  TempFolder where_;
  bool mounted_;
};

/// One JSON line each: far more work than any test lets be done, 60 tokens a request.
std::string endless_requests();

/// Waits until the output has some results; a fatal failure after a minute.
void wait_for_results(const std::string& output);

/// Expects every line to be a whole result of endless_requests(); returns how many there are.
std::size_t expect_whole_results(const std::string& output);

/// Expects the program to end within kSoon.
ProgramEnd expect_end_soon(Program& program);

/// Whether a process is gone, or dead and only not yet waited for by its parent, within kSoon.
bool ends_soon(pid_t pid);

/// Whether no process has `word` in its command line, within kSoon.
bool all_end_soon(const std::string& word);

/// Lines of `text` that have `part`.
int lines_with(const std::string& text, const std::string& part);

}  // namespace stagecoach::testing
