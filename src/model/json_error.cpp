#include "model/json_error.hpp"

#include "model/utf8.hpp"

namespace stagecoach::model {

std::string describe_json_error(std::string_view what) {
  constexpr std::size_t kHead = 120;
  constexpr std::size_t kTail = 60;
  if (what.starts_with('[')) {
    const auto end = what.find("] ");
    what.remove_prefix(end == std::string_view::npos ? 0 : end + 2);
  }
  std::string shortened(what);
  if (what.size() > kHead + kTail) {
    shortened =
        std::string(what.substr(0, kHead)) + "..." + std::string(what.substr(what.size() - kTail));
  }
  std::string text;
  append_valid_utf8(text, shortened);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      c = ' ';
    }
  }
  return text;
}

}  // namespace stagecoach::model
