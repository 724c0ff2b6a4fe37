#pragma once

#include <string>
#include <vector>

namespace stagecoach::bench::gpu {

/// One measured thing beside its yardstick of the same run.
struct Line {
  std::string group;
  std::string name;
  std::string unit;  ///< "GB/s" or "TFLOP/s", of both rates
  double rate = 0;
  std::string yardstick;
  double yardstick_rate = 0;
  double aim = 0;  ///< of the ratio; 0: none

  [[nodiscard]] double ratio() const { return rate / yardstick_rate; }
  /// "met", "not met" or "-".
  [[nodiscard]] const char* verdict() const;
};

/// Prints lines as they come, the first one below a head.
class Table {
 public:
  void add(Line line);
  /// Writes all lines with a head; throws IoError naming the file.
  void write_csv(const std::string& path) const;

 private:
  std::vector<Line> lines_;
};

double median(std::vector<double> values);

}  // namespace stagecoach::bench::gpu
