#pragma once

#include <string>
#include <vector>

namespace stagecoach::plan {

/// A rate that depends on a size. Between its points it is straight in log(size) and log(rate),
/// outside them it is that of the nearest.
class Curve {
 public:
  struct Point {
    double size = 0;
    double rate = 0;
    friend bool operator==(const Point&, const Point&) = default;
  };

  Curve() = default;
  /// The same rate for every size.
  explicit Curve(double rate) : points_{{1, rate}} {}
  /// Sizes and rates above 0, sizes ascending; InternalError otherwise.
  explicit Curve(std::vector<Point> points);

  [[nodiscard]] bool empty() const noexcept { return points_.empty(); }
  [[nodiscard]] const std::vector<Point>& points() const noexcept { return points_; }
  /// InternalError if it is empty.
  [[nodiscard]] double at(double size) const;
  /// All rates times `factor`.
  [[nodiscard]] Curve scaled(double factor) const;
  friend bool operator==(const Curve&, const Curve&) = default;

 private:
  std::vector<Point> points_;
};

/// "2.1e9", or points "size:rate" with blanks: "1:1.1e10 16:8.5e10". ConfigError names `where`:
/// what is no number, not above 0, not finite, or whose sizes do not ascend.
Curve parse_curve(const std::string& text, const std::string& where);
std::string format_curve(const Curve& curve);

}  // namespace stagecoach::plan
