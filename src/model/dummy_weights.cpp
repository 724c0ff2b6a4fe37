#include "model/dummy_weights.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace stagecoach::model {
namespace {

// One 64-bit draw gives four numbers of 16 bits each.
constexpr std::int64_t kNumbersPerDraw = 4;
// From this many numbers on, a table of all 65536 is faster than computing each.
constexpr std::size_t kTableIsWorthIt = std::size_t{1} << 18;
constexpr float kMatrixRange = 0.035f;
constexpr float kBiasRange = 0.01f;

/// Sixteen random bits as a number in (-range, range): an odd multiple of step = range / 65536.
Half number_of(std::uint16_t bits, float step) {
  return to_half(static_cast<float>(2 * std::int32_t{bits} - 65535) * step);
}

template <typename Number>
void fill_with(Number number, std::uint64_t key, std::int64_t first, std::span<Half> out) {
  const auto end = first + static_cast<std::int64_t>(out.size());
  auto* next = out.data();
  for (auto at = first; at < end;) {
    const auto draw = mix_bits(key + static_cast<std::uint64_t>(at / kNumbersPerDraw));
    const auto lane = at % kNumbersPerDraw;
    const auto stop = std::min(kNumbersPerDraw, lane + (end - at));
    for (auto i = lane; i < stop; ++i) {
      *next++ = number(static_cast<std::uint16_t>(draw >> (16 * i)));
    }
    at += stop - lane;
  }
}

void fill_uniform(std::uint64_t key, std::int64_t first, std::span<Half> out, float range) {
  const float step = range / 65536.0f;
  if (out.size() < kTableIsWorthIt) {
    fill_with([=](std::uint16_t bits) { return number_of(bits, step); }, key, first, out);
    return;
  }
  std::vector<Half> table(65536);
  for (std::size_t bits = 0; bits < table.size(); ++bits) {
    table[bits] = number_of(static_cast<std::uint16_t>(bits), step);
  }
  fill_with([&](std::uint16_t bits) { return table[bits]; }, key, first, out);
}

bool is_norm_weight(const TensorSpec& tensor) { return tensor.name.ends_with("norm.weight"); }

}  // namespace

void fill_dummy(std::uint64_t seed, const std::string& group, const TensorSpec& tensor,
                std::int64_t first_element, std::span<Half> out) {
  const auto count = static_cast<std::int64_t>(out.size());
  STAGECOACH_CHECK(first_element >= 0 && first_element <= tensor.elements() - count,
                   "elements {}+{} of {}/{}", first_element, count, group, tensor.name);
  if (is_norm_weight(tensor)) {
    std::fill(out.begin(), out.end(), to_half(1.0f));
    return;
  }
  const auto key = mix_bits(mix_bits(seed) ^ hash_string(group + "/" + tensor.name));
  fill_uniform(key, first_element, out, tensor.shape.size() == 1 ? kBiasRange : kMatrixRange);
}

}  // namespace stagecoach::model
