#include "support/temp_folder.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace stagecoach::testing {

TempFolder::TempFolder() {
  auto pattern = (std::filesystem::temp_directory_path() / "stagecoach-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("cannot make a temporary folder");
  }
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempFolder::write(const std::string& name, const std::string& text) const {
  const auto where = file(name);
  std::ofstream out(where, std::ios::binary);
  out << text;
  out.close();
  if (!out) {
    throw std::runtime_error("cannot write " + where);
  }
  return where;
}

std::string tiny_opt_folder() { return STAGECOACH_SOURCE_DIR "/examples/tiny-opt"; }

}  // namespace stagecoach::testing
