// The highest of a row's scores. Included by attention_kernels.cpp for each target.
#if defined(STAGECOACH_ATTENTION_SELECT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_ATTENTION_SELECT_INL
#undef STAGECOACH_ATTENTION_SELECT_INL
#else
#define STAGECOACH_ATTENTION_SELECT_INL
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "device/host/attention_layout.hpp"
#include "device/host/lanes-inl.hpp"

#if STAGECOACH_KERNEL_TARGET
HWY_BEFORE_NAMESPACE();
namespace stagecoach::device {
namespace HWY_NAMESPACE {

/// Scores as integers of the same order, so that NaN has a place as well; both zeros are 0.
class Ranking {
 public:
  /// `ranks` has room for `count` numbers, rounded up to a multiple of 16.
  Ranking(const float* scores, std::int64_t count, std::int32_t* ranks)
      : ranks_(ranks), padded_((count + kLanes - 1) / kLanes * kLanes) {
    std::memcpy(ranks, scores, static_cast<std::size_t>(count) * sizeof(float));
    const auto positive = hn::Set(Tag(), std::numeric_limits<std::int32_t>::max());
    for (std::int64_t i = 0; i < padded_; i += kRegister) {
      const auto bits = at(i);
      const auto magnitude = hn::And(bits, positive);
      hn::StoreU(hn::IfThenElse(hn::Lt(bits, hn::Zero(Tag())), hn::Neg(magnitude), magnitude),
                 Tag(), ranks + i);
    }
    std::fill(ranks + count, ranks + padded_, std::numeric_limits<std::int32_t>::min());
  }

  [[nodiscard]] std::int64_t count_above(std::int64_t rank) const {
    const auto limit = hn::Set(Tag(), static_cast<std::int32_t>(rank));
    std::size_t count = 0;
    for (std::int64_t i = 0; i < padded_; i += kRegister) {
      count += hn::CountTrue(Tag(), hn::Gt(at(i), limit));
    }
    return static_cast<std::int64_t>(count);
  }

  [[nodiscard]] std::int64_t highest() const {
    auto most = at(0);
    for (std::int64_t i = kRegister; i < padded_; i += kRegister) {
      most = hn::Max(most, at(i));
    }
    return hn::GetLane(hn::MaxOfLanes(Tag(), most));
  }

  [[nodiscard]] std::int64_t lowest_above(std::int64_t rank) const {
    const auto limit = hn::Set(Tag(), static_cast<std::int32_t>(rank));
    const auto most = hn::Set(Tag(), std::numeric_limits<std::int32_t>::max());
    auto least = most;
    for (std::int64_t i = 0; i < padded_; i += kRegister) {
      least = hn::Min(least, hn::IfThenElse(hn::Gt(at(i), limit), at(i), most));
    }
    return hn::GetLane(hn::MinOfLanes(Tag(), least));
  }

  /// Where `rank` is for the `which`th time, counted from 1.
  [[nodiscard]] std::int64_t position_of(std::int64_t rank, std::int64_t which) const {
    const auto wanted = hn::Set(Tag(), static_cast<std::int32_t>(rank));
    std::int64_t i = 0;
    for (; i < padded_; i += kRegister) {
      const auto here = static_cast<std::int64_t>(hn::CountTrue(Tag(), hn::Eq(at(i), wanted)));
      if (here >= which) {
        break;
      }
      which -= here;
    }
    for (;; ++i) {
      which -= ranks_[i] == rank ? 1 : 0;
      if (which == 0) {
        return i;
      }
    }
  }

 private:
  using Tag = hn::RebindToSigned<FloatTag>;
  [[nodiscard]] HWY_INLINE hn::Vec<Tag> at(std::int64_t i) const {
    return hn::LoadU(Tag(), ranks_ + i);
  }

  std::int32_t* ranks_;
  std::int64_t padded_;
};

/// The `kept` (> 0) highest: the lowest rank among them.
inline std::int64_t lowest_kept(const Ranking& ranking, std::int64_t kept) {
  // At least `kept` are above `low`, fewer are above `high`.
  std::int64_t low = std::numeric_limits<std::int32_t>::min();
  std::int64_t high = ranking.highest();
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    const std::int64_t above = ranking.count_above(middle);
    if (above == kept) {
      return ranking.lowest_above(middle);
    }
    (above > kept ? low : high) = middle;
  }
  return high;
}

/// The `kept` highest of `count` scores. `ranks`: room for `count` numbers, rounded up to 16.
inline AttentionSelection select_top(const float* scores, std::int64_t count, std::int64_t kept,
                                     std::int32_t* ranks) {
  if (kept == 0) {
    return {std::numeric_limits<float>::infinity(), -1};
  }
  const Ranking ranking(scores, count, ranks);
  const std::int64_t lowest = lowest_kept(ranking, kept);
  const auto last = ranking.position_of(lowest, kept - ranking.count_above(lowest));
  return {scores[last], static_cast<std::int32_t>(last)};
}

/// Positions in [first, end) of which `scores` are, that a row keeps; how many. Ascending; behind
/// them up to 16 elements may be overwritten.
inline std::int64_t list_kept(const float* scores, std::int64_t first, std::int64_t end,
                              const AttentionSelection& selection, std::int32_t* kept) {
  const hn::RebindToSigned<FloatTag> tag;
  const Register threshold = hn::Set(FloatTag(), selection.threshold);
  const auto last_equal = hn::Set(tag, selection.last_equal);
  std::int64_t count = 0;
  std::int64_t i = 0;
  for (; i + kRegister <= end - first; i += kRegister) {
    const Register score = load(scores + i);
    const auto position = hn::Iota(tag, static_cast<std::int32_t>(first + i));
    const auto later = hn::RebindMask(FloatTag(), hn::Gt(position, last_equal));
    const auto equal = hn::AndNot(later, hn::Eq(score, threshold));
    count += static_cast<std::int64_t>(hn::CompressStore(
        position, hn::RebindMask(tag, hn::Or(hn::Gt(score, threshold), equal)), tag, kept + count));
  }
  for (; i < end - first; ++i) {
    if (keeps(selection, scores[i], first + i)) {
      kept[count++] = static_cast<std::int32_t>(first + i);
    }
  }
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::device
HWY_AFTER_NAMESPACE();
#endif  // STAGECOACH_KERNEL_TARGET
#endif  // STAGECOACH_ATTENTION_SELECT_INL
