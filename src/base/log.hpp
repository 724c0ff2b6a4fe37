#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string>

namespace stagecoach {

/// Where a rank's log lines go: standard error, one whole line a call, with time, rank and level.
/// Passed down by reference; copies share the sink. Safe to use from any thread.
class Log {
 public:
  /// `name` stands in every line ("rank 2"); an empty one is left out. `level`: "debug", "info",
  /// "warning", "error" or "off"; anything else is a ConfigError.
  explicit Log(const std::string& name, const std::string& level = "info");

  template <typename... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    logger_->debug(format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    logger_->info(format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    logger_->warn(format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    logger_->error(format, std::forward<Args>(args)...);
  }

  /// The same destination under another name and the same level.
  [[nodiscard]] Log named(const std::string& name) const;

 private:
  Log() = default;
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace stagecoach
