// Any node profile: a ConfigError of one line, or a profile that its own text gives back, and that
// can be shared out among stages.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "plan/node_profile.hpp"

namespace {

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace plan = stagecoach::plan;
  const std::string text(reinterpret_cast<const char*>(data), size);
  plan::NodeProfile profile;
  try {
    profile = plan::parse_profile(text, "fuzz.ini");
  } catch (const stagecoach::ConfigError& error) {
    const std::string what = error.what();
    require(what.starts_with("fuzz.ini") && what.find('\n') == std::string::npos);
    return 0;
  }
  const auto written = plan::format_profile(profile);
  require(plan::parse_profile(written, "written") == profile);
  require(plan::format_profile(plan::parse_profile(written, "written")) == written);
  require(plan::for_stages(profile, profile.stages) == profile);
  for (const int stages : {1, 3, 10000}) {
    const auto shared = plan::for_stages(profile, stages);
    require(shared.stages == stages && shared.threads >= 1);
  }
  return 0;
}
