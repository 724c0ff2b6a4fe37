#include "base/error.hpp"

namespace stagecoach::detail {

void fail_check(const char* expression, const std::string& message, std::source_location where) {
  throw InternalError(fmt::format("{}:{}: check failed: {}{}{}", where.file_name(), where.line(),
                                  expression, message.empty() ? "" : ": ", message));
}

}  // namespace stagecoach::detail
