#include "support/named_flags.hpp"

#include <sstream>

namespace stagecoach::testing {

std::vector<NamedFlag> named_flags(const std::string& message) {
  std::vector<NamedFlag> flags;
  std::istringstream in(message);
  std::string before;
  for (std::string word; in >> word; before = word) {
    const auto unit = word.find("MiB");
    const bool is_flag =
        before == "--device-mem" || before == "--cpu-mem" || before == "--disk-mem";
    if (is_flag && unit != std::string::npos && unit > 0 &&
        word.find_first_not_of("0123456789") == unit) {
      flags.push_back({before, word.substr(0, unit + 3), std::stoull(word) << 20});
    }
  }
  return flags;
}

}  // namespace stagecoach::testing
