#include "job/lines.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.hpp"
#include "model/json_fields.hpp"

namespace stagecoach::job {
namespace {

void strip_byte_order_mark(std::string& text) {
  if (text.starts_with("\xef\xbb\xbf")) {
    text.erase(0, 3);
  }
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

std::ifstream open_input(const std::string& path, const char* flag) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw ConfigError(
        fmt::format("cannot read {}: it is a folder; name a file with {}", path, flag));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw ConfigError(
        fmt::format("cannot read {}: {}; check {}", path, std::strerror(errno), flag));
  }
  return in;
}

std::int64_t read_lines(std::istream& in, const std::string& name, OnError on_error, const Log& log,
                        const std::function<void(const std::string&, std::int64_t)>& take) {
  std::int64_t skipped = 0;
  std::string text;
  for (std::int64_t line = 1; std::getline(in, text); ++line) {
    if (line == 1) {
      strip_byte_order_mark(text);
    }
    if (is_blank(text)) {
      continue;
    }
    try {
      take(text, line);
    } catch (const ConfigError& error) {
      const auto what = fmt::format("{}:{}: {}", name, line, error.what());
      if (on_error == OnError::stop) {
        throw ConfigError(what);
      }
      log.warning("{}; skipped", what);
      ++skipped;
    }
  }
  if (in.bad()) {
    throw IoError(fmt::format("cannot read {} to its end: {}", name, std::strerror(errno)));
  }
  return skipped;
}

void UniqueIds::add(const std::string& id, std::int64_t line) {
  const auto [first, is_new] = line_of_id_.emplace(id, line);
  if (!is_new) {
    throw ConfigError(fmt::format("id {} is that of line {} too; ids must differ",
                                  model::describe_json(id), first->second));
  }
}

}  // namespace stagecoach::job
