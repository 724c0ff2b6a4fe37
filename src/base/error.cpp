#include "base/error.hpp"

namespace stagecoach::detail {

void fail_check(const char* expression, const std::string& message, const char* file, int line) {
  throw InternalError(fmt::format("{}:{}: check failed: {}{}{}", file, line, expression,
                                  message.empty() ? "" : ": ", message));
}

}  // namespace stagecoach::detail
