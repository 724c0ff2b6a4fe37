// The keys or values of one KV head in one page, dense or packed, and what attention does with
// them: products with queries, weighted sums, widening. Included by attention_kernels.cpp for each
// target.
//
// Every way to read tokens gives the same sums in the same order. Packed ones are taken in whole
// blocks of 32: what is behind the last number meets zeros of the query, or is not looked at.
#if defined(STAGECOACH_ATTENTION_TOKENS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_ATTENTION_TOKENS_INL
#undef STAGECOACH_ATTENTION_TOKENS_INL
#else
#define STAGECOACH_ATTENTION_TOKENS_INL
#endif

#include <algorithm>
#include <cstdint>

#include "base/packing.hpp"
#include "device/device.hpp"
#include "device/host/lanes-inl.hpp"

#if STAGECOACH_KERNEL_TARGET
HWY_BEFORE_NAMESPACE();
namespace stagecoach::device {
namespace HWY_NAMESPACE {

/// Numbers as they lie in a page, or widened in scratch.
template <typename T>
struct Tokens {
  const T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t width = 0;    ///< elements of a token that may be read
  const T* ahead = nullptr;  ///< what is read after them, fetched at the same pace; null: nothing
};

template <Packing P>
struct PackedTokens {
  const std::byte* codes = nullptr;   ///< [tokens, blocks]
  const Half* half_params = nullptr;  ///< [tokens, groups, 2]
  float* params = nullptr;            ///< the same, once widened
  std::int64_t groups = 0;
  std::int64_t group_blocks = 0;     ///< blocks of a whole group
  std::int64_t blocks = 0;           ///< of a token
  const std::byte* ahead = nullptr;  ///< as above
  std::int64_t ahead_stride = 0;     ///< bytes
};

template <Packing P>
inline constexpr std::int64_t kBlockBytes = P == Packing::int4 ? 16 : 32;

/// All tokens, or those of a list of positions.
struct EveryToken {
  HWY_INLINE std::int64_t operator[](std::int64_t i) const { return i; }
};
struct ListedTokens {
  const std::int32_t* positions;
  std::int64_t start;  ///< position of the page's first token
  HWY_INLINE std::int64_t operator[](std::int64_t i) const { return positions[i] - start; }
};

// Into the second-level cache, which has more loads under way than the first. The processor itself
// stops fetching ahead where a KV head's keys or values end.
template <typename T>
HWY_INLINE void fetch(const T* from, std::int64_t count) {
  constexpr std::int64_t kLineElements = 64 / sizeof(T);
  for (std::int64_t i = 0; i < count; i += kLineElements) {
    __builtin_prefetch(from + i, 0, 2);
  }
}

/// What the codes of one group mean.
template <Packing P>
class Meaning {
 public:
  HWY_INLINE explicit Meaning(const float* params)
      : minimum_(hn::Set(FloatTag(), params[0])), scale_(hn::Set(FloatTag(), params[1])) {
#if HWY_TARGET == HWY_AVX3
    if constexpr (P == Packing::int4) {
      minimum_ = hn::MulAdd(hn::Iota(FloatTag(), 0.0f), scale_, minimum_);
    }
#endif
  }

  /// The 32 numbers of a block.
  HWY_INLINE void read(const std::byte* block, Lanes& first, Lanes& second) const {
    HWY_UNROLL(2)
    for (int i = 0; i < kRegisters; ++i) {
      const auto codes = load_codes(block + i * kRegister);
      if constexpr (P == Packing::int4) {
        first.r[i] = of_half_byte(codes);
        second.r[i] = of_half_byte(hn::ShiftRight<4>(codes));
      } else {
        first.r[i] = of_code(codes);
        second.r[i] = of_code(load_codes(block + kLanes + i * kRegister));
      }
    }
  }

 private:
  using CodeTag = hn::RebindToSigned<FloatTag>;
  using Codes = hn::Vec<CodeTag>;

  static HWY_INLINE Codes load_codes(const std::byte* from) {
    const hn::Rebind<std::uint8_t, FloatTag> bytes;
    return hn::PromoteTo(CodeTag(), hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
  }
  HWY_INLINE Register of_code(Codes codes) const {
    return hn::MulAdd(hn::ConvertTo(FloatTag(), codes), scale_, minimum_);
  }
#if HWY_TARGET == HWY_AVX3
  // Sixteen codes, sixteen lanes: `minimum_` is a table of what they mean.
  HWY_INLINE Register of_half_byte(Codes codes) const {
    return Register{_mm512_permutexvar_ps(codes.raw, minimum_.raw)};
  }
#else
  HWY_INLINE Register of_half_byte(Codes codes) const {
    return of_code(hn::And(codes, hn::Set(CodeTag(), 15)));
  }
#endif

  Register minimum_;
  Register scale_;
};

/// Widens the parameters of the first `count` tokens.
template <Packing P>
HWY_INLINE void prepare(const PackedTokens<P>& tokens, EveryToken, std::int64_t count) {
  widen_row(tokens.half_params, count * tokens.groups * 2, tokens.params);
}
// Those of listed tokens. What is read and written behind a token's belongs to later ones.
template <Packing P>
HWY_INLINE void prepare(const PackedTokens<P>& tokens, ListedTokens listed, std::int64_t count) {
  const hn::Rebind<hwy::float16_t, FourTag> halves;
  const std::int64_t size = tokens.groups * 2;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* from =
        reinterpret_cast<const hwy::float16_t*>(tokens.half_params + listed[i] * size);
    for (std::int64_t k = 0; k < size; k += 4) {
      hn::StoreU(hn::PromoteTo(FourTag(), hn::LoadU(halves, from + k)), FourTag(),
                 tokens.params + listed[i] * size + k);
    }
  }
}

/// Widens the first `count` tokens: what lies behind them may be NaN.
template <typename T>
Tokens<float> widen_tokens(const Tokens<T>& from, std::int64_t count, float* to,
                           std::int64_t width) {
  for (std::int64_t token = 0; token < count; ++token) {
    widen_row(from.data + token * from.stride, from.width, to + token * width);
    if (from.ahead != nullptr) {
      fetch(from.ahead + token * from.stride, from.width);
    }
  }
  return {to, width, width, nullptr};
}

template <Packing P>
Tokens<float> widen_tokens(const PackedTokens<P>& from, std::int64_t count, float* to,
                           std::int64_t width) {
  prepare(from, EveryToken(), count);
  const std::byte* codes = from.codes;
  for (std::int64_t token = 0; token < count; ++token) {
    const float* params = from.params + token * from.groups * 2;
    for (std::int64_t block = 0; block < from.blocks; ++block, codes += kBlockBytes<P>) {
      const Meaning<P> meaning(params + block / from.group_blocks * 2);
      Lanes first;
      Lanes second;
      meaning.read(codes, first, second);
      store_lanes(first, to + token * width + block * kCodeBlock);
      store_lanes(second, to + token * width + block * kCodeBlock + kLanes);
    }
    if (from.ahead != nullptr) {
      fetch(from.ahead + token * from.ahead_stride, from.ahead_stride);
    }
  }
  return {to, width, width, nullptr};
}

/// Queries padded with zeros to the width of whole blocks or lanes, and where their products with
/// tokens go.
struct Queries {
  const float* data = nullptr;  ///< [pairs, width]
  std::int64_t width = 0;
  std::int64_t pairs = 0;
  float* scores = nullptr;  ///< [pairs, stride]
  std::int64_t stride = 0;
};

template <int Columns>
HWY_INLINE void store_scores(const Lanes (&dots)[Columns], float* scores) {
  if constexpr (Columns == 4) {
    hn::StoreU(fold(dots[0], dots[1], dots[2], dots[3]), FourTag(), scores);
  } else {
    HWY_UNROLL(4)
    for (int j = 0; j < Columns; ++j) {
      scores[j] = fold(dots[j]);
    }
  }
}

template <int Rows, int Columns, typename T>
HWY_INLINE void score_tile(const Queries& queries, const Tokens<T>& keys, std::int64_t pair,
                           std::int64_t token) {
  Lanes dots[Rows][Columns];
  dot_tile(queries.data + pair * queries.width, queries.width, keys.data + token * keys.stride,
           keys.stride, keys.width, dots);
  HWY_UNROLL(8)
  for (int i = 0; i < Rows; ++i) {
    store_scores(dots[i], queries.scores + (pair + i) * queries.stride + token);
  }
}

template <int Rows, typename T>
void score_rows(const Queries& queries, const Tokens<T>& keys, std::int64_t pair,
                std::int64_t count) {
  std::int64_t token = 0;
  for (; token + kTileColumns <= count; token += kTileColumns) {
    score_tile<Rows, kTileColumns>(queries, keys, pair, token);
    if (keys.ahead != nullptr) {
      fetch(keys.ahead + token * keys.stride, kTileColumns * keys.stride);
    }
  }
  for (; token < count; ++token) {
    score_tile<Rows, 1>(queries, keys, pair, token);
  }
}

/// The products of all queries from `first_pair` on with `count` tokens.
template <typename T>
void score_tokens(const Queries& queries, const Tokens<T>& keys, std::int64_t first_pair,
                  std::int64_t count) {
  std::int64_t pair = first_pair;
  for (; pair + kTileRows <= queries.pairs; pair += kTileRows) {
    score_rows<kTileRows>(queries, keys, pair, count);
  }
  for (; pair < queries.pairs; ++pair) {
    score_rows<1>(queries, keys, pair, count);
  }
}

template <int Columns, Packing P>
HWY_INLINE void score_tile(const float* query, const PackedTokens<P>& keys, std::int64_t token,
                           float* scores) {
  Lanes dots[Columns];
  HWY_UNROLL(4)
  for (int j = 0; j < Columns; ++j) {
    dots[j] = set_lanes(0.0f);
  }
  const std::int64_t stride = keys.blocks * kBlockBytes<P>;
  const std::byte* codes = keys.codes + token * stride;
  const float* params = keys.params + token * keys.groups * 2;
  for (std::int64_t first = 0; first < keys.blocks; first += keys.group_blocks, params += 2) {
    const std::int64_t end = std::min(first + keys.group_blocks, keys.blocks);
    for (std::int64_t block = first; block < end; ++block) {
      const Lanes low = load_lanes(query + block * kCodeBlock);
      const Lanes high = load_lanes(query + block * kCodeBlock + kLanes);
      HWY_UNROLL(4)
      for (int j = 0; j < Columns; ++j) {
        Lanes first_half;
        Lanes second_half;
        Meaning<P>(params + j * keys.groups * 2)
            .read(codes + j * stride + block * kBlockBytes<P>, first_half, second_half);
        dots[j] = multiply_add(low, first_half, dots[j]);
        dots[j] = multiply_add(high, second_half, dots[j]);
      }
    }
  }
  store_scores(dots, scores);
}

template <Packing P>
void score_tokens(const Queries& queries, const PackedTokens<P>& keys, std::int64_t first_pair,
                  std::int64_t count) {
  prepare(keys, EveryToken(), count);
  for (std::int64_t pair = first_pair; pair < queries.pairs; ++pair) {
    const float* query = queries.data + pair * queries.width;
    float* scores = queries.scores + pair * queries.stride;
    std::int64_t token = 0;
    for (; token + kTileColumns <= count; token += kTileColumns) {
      score_tile<kTileColumns>(query, keys, token, scores + token);
      if (keys.ahead != nullptr) {
        fetch(keys.ahead + token * keys.ahead_stride, kTileColumns * keys.ahead_stride);
      }
    }
    for (; token < count; ++token) {
      score_tile<1>(query, keys, token, scores + token);
    }
  }
}

// out[0 .. 16 * Groups) = the sum over tokens, in order, of weight times value.
template <int Groups, typename T, typename Chosen>
HWY_INLINE void weigh_columns(const float* weights, const Tokens<T>& values, std::int64_t at,
                              Chosen chosen, std::int64_t count, float* out) {
  Lanes sums[Groups];
  HWY_UNROLL(8)
  for (int g = 0; g < Groups; ++g) {
    sums[g] = set_lanes(0.0f);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = chosen[i] * values.stride + at;
    const Lanes weight = set_lanes(weights[i]);
    HWY_UNROLL(8)
    for (int g = 0; g < Groups; ++g) {
      sums[g] = multiply_add(weight, load_lanes(values.data + from + g * kLanes), sums[g]);
    }
    if (values.ahead != nullptr) {
      fetch(values.ahead + from, Groups * kLanes);
    }
  }
  HWY_UNROLL(8)
  for (int g = 0; g < Groups; ++g) {
    store_lanes(sums[g], out + at + g * kLanes);
  }
}

// The same for the last (< 16) columns.
template <typename T, typename Chosen>
void weigh_rest(const float* weights, const Tokens<T>& values, std::int64_t at, Chosen chosen,
                std::int64_t count, float* out) {
  Lanes sum = set_lanes(0.0f);
  for (std::int64_t i = 0; i < count; ++i) {
    const T* value = values.data + chosen[i] * values.stride + at;
    sum = multiply_add(set_lanes(weights[i]), load_lanes_partly(value, values.width - at), sum);
  }
  store_lanes(sum, out + at);
}

/// out = the sum over `count` chosen tokens, in order, of weight times value; written up to whole
/// lanes or blocks.
template <typename T, typename Chosen>
void weigh_tokens(const float* weights, const Tokens<T>& values, Chosen chosen, std::int64_t count,
                  float* out) {
  constexpr int kGroups = HWY_TARGET == HWY_AVX3 ? 8 : 4;
  std::int64_t at = 0;
  for (; at + kGroups * kLanes <= values.width; at += kGroups * kLanes) {
    weigh_columns<kGroups>(weights, values, at, chosen, count, out);
  }
  for (; at + kLanes <= values.width; at += kLanes) {
    weigh_columns<1>(weights, values, at, chosen, count, out);
  }
  if (at < values.width) {
    weigh_rest(weights, values, at, chosen, count, out);
  }
}

// The blocks from `first` on, all of one group.
template <int Blocks, Packing P, typename Chosen>
HWY_INLINE void weigh_blocks(const float* weights, const PackedTokens<P>& values,
                             std::int64_t first, Chosen chosen, std::int64_t count, float* out) {
  Lanes low[Blocks];
  Lanes high[Blocks];
  HWY_UNROLL(4)
  for (int b = 0; b < Blocks; ++b) {
    low[b] = high[b] = set_lanes(0.0f);
  }
  const std::byte* codes = values.codes + first * kBlockBytes<P>;
  const float* params = values.params + first / values.group_blocks * 2;
  const bool fetches = first == 0 && values.ahead != nullptr;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t token = chosen[i];
    const Meaning<P> meaning(params + token * values.groups * 2);
    const Lanes weight = set_lanes(weights[i]);
    HWY_UNROLL(4)
    for (int b = 0; b < Blocks; ++b) {
      Lanes first_half;
      Lanes second_half;
      meaning.read(codes + (token * values.blocks + b) * kBlockBytes<P>, first_half, second_half);
      low[b] = multiply_add(weight, first_half, low[b]);
      high[b] = multiply_add(weight, second_half, high[b]);
    }
    if (fetches) {
      fetch(values.ahead + token * values.ahead_stride, values.ahead_stride);
    }
  }
  HWY_UNROLL(4)
  for (int b = 0; b < Blocks; ++b) {
    store_lanes(low[b], out + (first + b) * kCodeBlock);
    store_lanes(high[b], out + (first + b) * kCodeBlock + kLanes);
  }
}

template <Packing P, typename Chosen>
void weigh_tokens(const float* weights, const PackedTokens<P>& values, Chosen chosen,
                  std::int64_t count, float* out) {
  constexpr int kMost = HWY_TARGET == HWY_AVX3 ? 4 : 2;
  prepare(values, chosen, count);
  for (std::int64_t group = 0; group < values.blocks; group += values.group_blocks) {
    const std::int64_t end = std::min(group + values.group_blocks, values.blocks);
    std::int64_t block = group;
    for (; block + kMost <= end; block += kMost) {
      weigh_blocks<kMost>(weights, values, block, chosen, count, out);
    }
    for (; block + 2 <= end; block += 2) {
      weigh_blocks<2>(weights, values, block, chosen, count, out);
    }
    for (; block < end; ++block) {
      weigh_blocks<1>(weights, values, block, chosen, count, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::device
HWY_AFTER_NAMESPACE();
#endif  // STAGECOACH_KERNEL_TARGET
#endif  // STAGECOACH_ATTENTION_TOKENS_INL
