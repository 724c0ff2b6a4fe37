#include "base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>

#include "base/error.hpp"

namespace stagecoach {
namespace {

std::shared_ptr<spdlog::logger> make_logger(const std::string& name, spdlog::sink_ptr sink,
                                            spdlog::level::level_enum level) {
  auto logger = std::make_shared<spdlog::logger>(name, std::move(sink));
  logger->set_pattern(name.empty() ? "%H:%M:%S %l: %v" : "%H:%M:%S %n %l: %v");
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  return logger;
}

spdlog::level::level_enum parse_level(const std::string& level) {
  for (const char* known : {"debug", "info", "warning", "error", "off"}) {
    if (level == known) {
      return spdlog::level::from_str(level);
    }
  }
  throw ConfigError(
      fmt::format("--log-level {}: must be debug, info, warning, error or off", level));
}

}  // namespace

Log::Log(const std::string& name, const std::string& level)
    : logger_(make_logger(name, std::make_shared<spdlog::sinks::stderr_sink_mt>(),
                          parse_level(level))) {}

Log Log::named(const std::string& name) const {
  Log other;
  // A pattern belongs to its sink, so each name has a sink of its own onto the same stream.
  other.logger_ =
      make_logger(name, std::make_shared<spdlog::sinks::stderr_sink_mt>(), logger_->level());
  return other;
}

}  // namespace stagecoach
