#include "plan/curve.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "plan/numbers.hpp"

namespace stagecoach::plan {
namespace {

double positive_number(std::string_view text, const std::string& where, const char* what) {
  const auto number = parse_number(text);
  if (!number) {
    throw ConfigError(fmt::format("{}: '{}' is no {}; write one rate, or 'size:rate' for each size",
                                  where, text, what));
  }
  if (*number <= 0) {
    throw ConfigError(
        fmt::format("{}: the {} {} must be above 0; measure it again", where, what, text));
  }
  return *number;
}

Curve::Point parse_point(const std::string& word, const std::string& where) {
  const auto colon = word.find(':');
  if (colon == std::string::npos) {
    throw ConfigError(fmt::format("{}: '{}' must be 'size:rate'", where, word));
  }
  const std::string_view text = word;
  return {positive_number(text.substr(0, colon), where, "size"),
          positive_number(text.substr(colon + 1), where, "rate")};
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) {
    words.push_back(word);
  }
  return words;
}

}  // namespace

Curve::Curve(std::vector<Point> points) : points_(std::move(points)) {
  double last = 0;
  for (const auto& point : points_) {
    STAGECOACH_CHECK(point.size > last && point.rate > 0, "size {} rate {}", point.size,
                     point.rate);
    last = point.size;
  }
}

double Curve::at(double size) const {
  STAGECOACH_CHECK(!empty());
  const auto right = std::find_if(points_.begin(), points_.end(),
                                  [&](const Point& point) { return point.size >= size; });
  if (right == points_.end()) {
    return points_.back().rate;
  }
  if (right == points_.begin() || right->size == size) {
    return right->rate;
  }
  const auto left = right - 1;
  const double part = std::log(size / left->size) / std::log(right->size / left->size);
  return left->rate * std::pow(right->rate / left->rate, part);
}

Curve Curve::scaled(double factor) const {
  auto points = points_;
  for (auto& point : points) {
    point.rate *= factor;
  }
  return Curve(std::move(points));
}

Curve parse_curve(const std::string& text, const std::string& where) {
  const auto words = words_of(text);
  if (words.empty()) {
    throw ConfigError(
        fmt::format("{}: is empty; write a rate, or 'size:rate' for each size", where));
  }
  if (words.size() == 1 && words[0].find(':') == std::string::npos) {
    return Curve(positive_number(words[0], where, "rate"));
  }
  std::vector<Curve::Point> points;
  for (const auto& word : words) {
    const auto point = parse_point(word, where);
    if (!points.empty() && point.size <= points.back().size) {
      throw ConfigError(
          fmt::format("{}: size {} comes after {}; write the sizes in ascending order", where,
                      format_number(point.size), format_number(points.back().size)));
    }
    points.push_back(point);
  }
  return Curve(std::move(points));
}

std::string format_curve(const Curve& curve) {
  if (curve.points().size() == 1 && curve.points()[0].size == 1) {
    return format_number(curve.points()[0].rate);
  }
  std::string text;
  for (const auto& [size, rate] : curve.points()) {
    text +=
        fmt::format("{}{}:{}", text.empty() ? "" : " ", format_number(size), format_number(rate));
  }
  return text;
}

}  // namespace stagecoach::plan
