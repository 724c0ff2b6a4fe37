#include "model/dummy_weights.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace stagecoach::model {
namespace {

// One 64-bit draw gives four numbers of 16 bits each.
constexpr std::int64_t kNumbersPerDraw = 4;
constexpr float kMatrixRange = 0.035f;
constexpr float kBiasRange = 0.01f;

/// Lane `lane` of a draw as a number in (-range, range), odd multiples of range / 65536.
Half number_of(std::uint64_t draw, std::int64_t lane, float step) {
  const auto bits = static_cast<std::int32_t>((draw >> (16 * lane)) & 0xffffu);
  return to_half(static_cast<float>(2 * bits - 65535) * step);
}

void fill_uniform(std::uint64_t key, std::int64_t first, std::span<Half> out, float range) {
  const float step = range / 65536.0f;
  const auto end = first + static_cast<std::int64_t>(out.size());
  auto* next = out.data();
  for (auto at = first; at < end;) {
    const auto draw = mix_bits(key + static_cast<std::uint64_t>(at / kNumbersPerDraw));
    const auto stop = std::min(end, (at / kNumbersPerDraw + 1) * kNumbersPerDraw);
    for (; at < stop; ++at) {
      *next++ = number_of(draw, at % kNumbersPerDraw, step);
    }
  }
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
