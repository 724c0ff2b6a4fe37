#include "plan/node_profile.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"

namespace stagecoach::plan {

NodeProfile read_profile(const std::string& path) {
  if (std::error_code ignored; !std::filesystem::is_regular_file(path, ignored)) {
    throw ConfigError(
        fmt::format("there is no node profile {}; write one with 'stagecoach profile'", path));
  }
  return parse_profile(read_text_file(path), path);
}

}  // namespace stagecoach::plan
