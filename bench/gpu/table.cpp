#include "gpu/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::bench::gpu {

const char* Line::verdict() const {
  if (aim <= 0) {
    return "-";
  }
  return ratio() >= aim ? "met" : "not met";
}

void Table::add(Line line) {
  if (lines_.empty()) {
    fmt::print("{:<9} {:<34} {:>9} {:<8} {:>9} {:<12} {:>6} {:>5}  {}\n", "group", "what", "rate",
               "unit", "yardstick", "", "ratio", "aim", "");
  }
  const std::string aim = line.aim > 0 ? fmt::format("{:.2f}", line.aim) : "-";
  fmt::print("{:<9} {:<34} {:>9.4g} {:<8} {:>9.4g} {:<12} {:>6.2f} {:>5}  {}\n", line.group,
             line.name, line.rate, line.unit, line.yardstick_rate, line.yardstick, line.ratio(),
             aim, line.verdict());
  std::fflush(stdout);
  lines_.push_back(std::move(line));
}

void Table::write_csv(const std::string& path) const {
  std::ofstream file(path);
  file << "group,what,rate,unit,yardstick,yardstick_rate,ratio,aim,verdict\n";
  for (const auto& line : lines_) {
    file << fmt::format("{},{},{},{},{},{},{},{},{}\n", line.group, line.name, line.rate, line.unit,
                        line.yardstick, line.yardstick_rate, line.ratio(), line.aim,
                        line.verdict());
  }
  file.flush();
  if (!file) {
    throw IoError(fmt::format("{} could not be written", path));
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace stagecoach::bench::gpu
