#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.hpp"

namespace stagecoach::job {

struct LineFileOptions {
  std::string path = "-";                 ///< "-" is standard output
  bool overwrite = false;                 ///< replace an existing file
  std::string flag = "--output";          ///< that named it, for messages
  std::int64_t sync_lines = 256;          ///< lines after which the file is synced,
  std::chrono::seconds sync_interval{5};  ///< or the time, whichever comes first
};

/// An output of whole lines, one a result.
class LineFile {
 public:
  /// Creates the file. ConfigError if it exists and must not be replaced, or cannot be made.
  explicit LineFile(LineFileOptions options);
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  LineFile(LineFile&&) = delete;
  LineFile& operator=(LineFile&&) = delete;
  /// Closes without a sync if `close` was not called. A new file that then holds nothing is
  /// removed: it would be in the next job's way.
  ~LineFile();

  /// Appends a line (with its newline) with one write call, and syncs now and then. When that
  /// fails the file is cut back to its last whole line, and an IoError says how many it holds.
  void append(std::string_view line);

  /// Waits until everything written is on the disk.
  void sync();

  /// Syncs and closes. Nothing may be written afterwards.
  void close();

  [[nodiscard]] std::int64_t lines() const noexcept { return lines_; }

 private:
  void open();
  void put(std::string_view line);
  [[noreturn]] void fail_write(int cause);

  LineFileOptions options_;
  std::string name_;         ///< in messages
  File file_;                ///< not open for standard output
  int descriptor_ = -1;      ///< -1 once closed
  bool is_regular_ = false;  ///< can be cut back
  bool is_new_ = false;      ///< was made here
  std::uint64_t size_bytes_ = 0;
  std::int64_t lines_ = 0;
  std::int64_t unsynced_ = 0;
  std::chrono::steady_clock::time_point last_sync_;
};

/// ConfigError, which names the flag, if there is a file.
void refuse_existing(const std::string& path, const std::string& flag);

}  // namespace stagecoach::job
