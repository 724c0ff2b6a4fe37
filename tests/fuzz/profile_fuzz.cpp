// Any node profile: a ConfigError of one line, or a profile that its own text gives back, and that
// can be shared out among stages. Once the input is the profile, once a line of a good one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/node_profile.hpp"

namespace {

using stagecoach::plan::NodeProfile;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

const std::vector<std::string>& good_lines() {
  static const std::vector<std::string> lines = [] {
    std::istringstream text(
        stagecoach::read_text_file(STAGECOACH_SOURCE_DIR "/configs/hardware/t4-gcp.ini"));
    std::vector<std::string> read;
    for (std::string line; std::getline(text, line);) {
      if (!line.empty() && line[0] != '#') {
        read.push_back(line);
      }
    }
    return read;
  }();
  return lines;
}

std::string with_line(std::size_t place, const std::string& line) {
  std::string text;
  for (std::size_t i = 0; i < good_lines().size(); ++i) {
    text += (i == place ? line : good_lines()[i]) + "\n";
  }
  return text;
}

void check(const NodeProfile& profile) {
  const auto written = format_profile(profile);
  const auto again = stagecoach::plan::parse_profile(written, "written");
  require(again == profile && format_profile(again) == written);
  require(for_stages(profile, profile.stages) == profile);
  for (const int stages : {1, 3, 10000}) {
    const auto shared = for_stages(profile, stages);
    require(shared.stages == stages && shared.threads >= 1);
  }
}

void read(const std::string& text) {
  NodeProfile profile;
  try {
    profile = stagecoach::plan::parse_profile(text, "fuzz.ini");
  } catch (const stagecoach::ConfigError& error) {
    const std::string what = error.what();
    require(what.starts_with("fuzz.ini") && what.find('\n') == std::string::npos);
    return;
  }
  check(profile);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  if (size > 0) {
    read(with_line(data[0] % good_lines().size(), text.substr(1)));
  }
  return 0;
}
