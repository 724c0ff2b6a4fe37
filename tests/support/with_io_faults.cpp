#include <cstdlib>

#include "support/io_faults.hpp"

namespace stagecoach::testing {

std::vector<std::string> with_io_faults(const std::vector<std::string>& settings,
                                        const std::vector<std::string>& command) {
  // AddressSanitizer wants to be the first library, unless it is told not to care.
  const char* sanitizer = std::getenv("ASAN_OPTIONS");
  std::vector<std::string> all = {"env", "LD_PRELOAD=" STAGECOACH_IO_FAULTS,
                                  "ASAN_OPTIONS=verify_asan_link_order=0:" +
                                      std::string(sanitizer != nullptr ? sanitizer : "")};
  all.insert(all.end(), settings.begin(), settings.end());
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

}  // namespace stagecoach::testing
