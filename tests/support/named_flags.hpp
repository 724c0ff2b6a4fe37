#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stagecoach::testing {

/// "--cpu-mem 12MiB" in a refusal: what the user is told to give.
struct NamedFlag {
  std::string flag;   ///< "--cpu-mem"
  std::string value;  ///< "12MiB"
  std::size_t size_bytes = 0;
};

/// All memory flags with a value in mebibytes that `message` names, in order.
std::vector<NamedFlag> named_flags(const std::string& message);

}  // namespace stagecoach::testing
