#include <bit>
#include <cmath>

#include "device/cuda/kernel.cuh"
#include "device/cuda/launch.hpp"
#include "device/cuda/sample_kernels.hpp"

// Tokens have a rank of 64 bits: the logit's bits in an order that keeps their size, then the
// complement of the id. The highest rank is the most likely token, and no two are equal. Whatever
// is asked for (the last of top_k, the one that completes top_p, the one drawn) is the first token,
// from the highest rank down, at which a running sum reaches a goal: of ones, or of weights
// e^((logit - largest) / temperature) as whole numbers. It is found by descending through the
// rank's bytes: sums by a byte's value, of the tokens whose higher bytes are those found before.
// Sums of whole numbers are the same in any order.

namespace stagecoach::device::cuda {
namespace {

using Rank = unsigned long long;
using Mass = unsigned long long;

constexpr int kSampleThreads = 512;
constexpr int kBins = 256;
constexpr int kStrips = 16;  // of bins, that are added up side by side
constexpr int kRankBits = 64;
constexpr int kDigitBits = 8;
constexpr unsigned kNanKey = 0xffffffffu;
constexpr unsigned kMinusInfinityKey = 0x007fffffu;
constexpr unsigned kInfinityKey = 0xff800000u;

__device__ unsigned key_of(float logit) {
  if (logit != logit) {
    return kNanKey;
  }
  const unsigned bits = __float_as_uint(logit + 0.0f);  // -0 equals 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ float logit_of(unsigned key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ Rank rank_of(float logit, std::int64_t token) {
  return static_cast<Rank>(key_of(logit)) << 32 | ~static_cast<unsigned>(token);
}
__device__ unsigned key_of_rank(Rank rank) { return static_cast<unsigned>(rank >> 32); }
__device__ std::int32_t token_of(Rank rank) {
  return static_cast<std::int32_t>(~static_cast<unsigned>(rank));
}

struct Shared {
  Mass masses[kBins];
  unsigned counts[kBins];
  Mass strip_masses[kStrips];
  unsigned strip_counts[kStrips];
  // Where a descent has come.
  Rank prefix;
  Mass mass_before;
  unsigned count_before;
  unsigned count_within;
  // Of reductions.
  Rank ranks[kSampleThreads / kWarpThreads];
  double sums[kSampleThreads / kWarpThreads];
  Mass mass;
  Rank found;
  unsigned num_listed;
};

/// A row whose largest logit is finite, and how its weights become whole numbers.
struct Row {
  const float* logits;
  std::int64_t vocab;
  double largest;
  double temperature;
  double unit;  // the largest weight

  [[nodiscard]] __device__ Mass weight(float logit) const {
    const double exact = exp((static_cast<double>(logit) - largest) / temperature);
    return static_cast<Mass>(exact * unit + 0.5);
  }
};

/// Calls work(token, logit) for this thread's tokens.
template <typename Work>
__device__ void for_tokens(const float* logits, std::int64_t vocab, const Work& work) {
  for (std::int64_t token = threadIdx.x; token < vocab; token += kSampleThreads) {
    work(token, logits[token]);
  }
}

__device__ Rank highest_rank(const float* logits, std::int64_t vocab, Shared& shared) {
  Rank highest = 0;
  for_tokens(logits, vocab, [&](std::int64_t token, float logit) {
    const Rank rank = rank_of(logit, token);
    highest = rank > highest ? rank : highest;
  });
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    const Rank other = __shfl_xor_sync(kWholeWarp, highest, distance);
    highest = other > highest ? other : highest;
  }
  if (threadIdx.x % kWarpThreads == 0) {
    shared.ranks[threadIdx.x / kWarpThreads] = highest;
  }
  __syncthreads();
  for (const Rank rank : shared.ranks) {
    highest = rank > highest ? rank : highest;
  }
  return highest;
}

/// In f64 and in a fixed order.
__device__ double sum_exp(const Row& row, Shared& shared) {
  double sum = 0;
  for_tokens(row.logits, row.vocab, [&](std::int64_t, float logit) {
    sum += exp(static_cast<double>(logit) - row.largest);
  });
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kWholeWarp, sum, distance);
  }
  if (threadIdx.x % kWarpThreads == 0) {
    shared.sums[threadIdx.x / kWarpThreads] = sum;
  }
  __syncthreads();
  double total = 0;
  for (const double of_warp : shared.sums) {
    total += of_warp;
  }
  return total;
}

__device__ Mass total_mass(const Row& row, Shared& shared) {
  if (threadIdx.x == 0) {
    shared.mass = 0;
  }
  __syncthreads();
  Mass mass = 0;
  for_tokens(row.logits, row.vocab, [&](std::int64_t, float logit) { mass += row.weight(logit); });
  atomicAdd(&shared.mass, mass);
  __syncthreads();
  return shared.mass;
}

/// What a running sum counts.
enum class Metric { tokens, mass };

/// Where a running sum has reached its goal.
struct Reached {
  Rank rank;
  Mass mass;  ///< of this token and all before it; 0 where masses were not asked for
};

/// Adds up counts and masses by the byte at `shift`, of tokens with the prefix.
template <bool kMasses>
__device__ void fill_bins(const Row& row, int shift, Shared& shared) {
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kSampleThreads) {
    shared.counts[bin] = 0;
    shared.masses[bin] = 0;
  }
  __syncthreads();
  const Rank prefix = shared.prefix;
  for_tokens(row.logits, row.vocab, [&](std::int64_t token, float logit) {
    const Rank digits = rank_of(logit, token) >> shift;
    if (digits >> kDigitBits == prefix) {
      const auto bin = static_cast<unsigned>(digits & (kBins - 1));
      atomicAdd(&shared.counts[bin], 1u);
      if constexpr (kMasses) {
        atomicAdd(&shared.masses[bin], row.weight(logit));
      }
    }
  });
  __syncthreads();
}

/// Of one thread: goes down from the highest bin to the one in which the sum reaches `goal`.
template <Metric kMetric>
__device__ void choose_bin(Mass goal, Shared& shared) {
  const auto reaches = [&](unsigned count, Mass mass) {
    return kMetric == Metric::tokens ? shared.count_before + Mass{count} >= goal
                                     : shared.mass_before + mass >= goal;
  };
  const auto pass = [&](unsigned count, Mass mass) {
    shared.count_before += count;
    shared.mass_before += mass;
  };
  int strip = kStrips - 1;
  for (; strip > 0 && !reaches(shared.strip_counts[strip], shared.strip_masses[strip]); --strip) {
    pass(shared.strip_counts[strip], shared.strip_masses[strip]);
  }
  int bin = (strip + 1) * (kBins / kStrips) - 1;
  for (; bin > 0 && !reaches(shared.counts[bin], shared.masses[bin]); --bin) {
    pass(shared.counts[bin], shared.masses[bin]);
  }
  shared.count_within = shared.counts[bin];
  shared.prefix = shared.prefix << kDigitBits | static_cast<unsigned>(bin);
}

__device__ void add_strips(Shared& shared) {
  if (threadIdx.x < kStrips) {
    unsigned count = 0;
    Mass mass = 0;
    for (int i = 0; i < kBins / kStrips; ++i) {
      const int bin = static_cast<int>(threadIdx.x) * (kBins / kStrips) + i;
      count += shared.counts[bin];
      mass += shared.masses[bin];
    }
    shared.strip_counts[threadIdx.x] = count;
    shared.strip_masses[threadIdx.x] = mass;
  }
  __syncthreads();
}

/// The first token, from the most likely on, at which the running sum is at least `goal`: between 1
/// and the sum over all tokens. Reads the row once a byte, until one token is left.
template <Metric kMetric, bool kMasses>
__device__ Reached descend(const Row& row, Mass goal, Shared& shared) {
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.prefix = 0;
    shared.mass_before = 0;
    shared.count_before = 0;
  }
  int shift = kRankBits;
  do {
    shift -= kDigitBits;
    fill_bins<kMasses>(row, shift, shared);
    add_strips(shared);
    if (threadIdx.x == 0) {
      choose_bin<kMetric>(goal, shared);
    }
    __syncthreads();
  } while (shared.count_within > 1);
  for_tokens(row.logits, row.vocab, [&](std::int64_t token, float logit) {
    const Rank rank = rank_of(logit, token);
    if (rank >> shift == shared.prefix) {
      shared.found = rank;
    }
  });
  __syncthreads();
  const Rank rank = shared.found;
  const Mass own = kMasses ? row.weight(row.logits[token_of(rank)]) : 0;
  return {rank, shared.mass_before + own};
}

/// `share` of `mass`, between 0 and `mass`.
__device__ Mass share_of(double share, Mass mass, bool up) {
  const double exact = share * static_cast<double>(mass);
  const auto whole = static_cast<Mass>(up ? ceil(exact) : floor(exact));
  return whole < mass ? whole : mass;
}

__device__ std::int32_t draw(const Row& row, const RowToSample& spec, Shared& shared) {
  Mass mass = spec.top_k > 0
                  ? descend<Metric::tokens, true>(row, static_cast<Mass>(spec.top_k), shared).mass
                  : total_mass(row, shared);
  if (spec.top_p < 1) {
    const Mass enough = spec.top_p > 0 ? share_of(spec.top_p, mass, true) : 0;
    mass = descend<Metric::mass, true>(row, enough > 0 ? enough : 1, shared).mass;
  }
  // The first at which the sum is beyond uniform * mass.
  const Mass below = share_of(spec.uniform, mass, false);
  const Mass goal = below < mass ? below + 1 : mass;
  return token_of(descend<Metric::mass, true>(row, goal, shared).rank);
}

__device__ void list_tokens(const Row& row, const RowToSample& spec, ListedToken* listed,
                            Shared& shared) {
  const Rank last =
      descend<Metric::tokens, false>(row, static_cast<Mass>(spec.num_listed), shared).rank;
  if (threadIdx.x == 0) {
    shared.num_listed = 0;
  }
  __syncthreads();
  for_tokens(row.logits, row.vocab, [&](std::int64_t token, float logit) {
    if (rank_of(logit, token) >= last) {
      listed[spec.first_listed + atomicAdd(&shared.num_listed, 1u)] = {
          static_cast<std::int32_t>(token), logit};
    }
  });
}

/// A block a spec. Reads the row, 4 bytes a token, once for its largest logit, once more for the
/// sum of a logprob, and for a draw about ten times, out of L2; writes 24 bytes, and 8 a token of
/// the list.
__global__ void __launch_bounds__(kSampleThreads) sample_kernel(SampleLaunch params, double unit) {
  __shared__ Shared shared;
  const RowToSample spec = params.specs[blockIdx.x];
  const float* const logits = params.logits + spec.row * params.vocab;
  const Rank highest = highest_rank(logits, params.vocab, shared);
  const unsigned key = key_of_rank(highest);
  const float largest = logit_of(key);
  SampledRow result{0, largest, token_of(highest), largest, 0};
  if (key > kMinusInfinityKey && key < kInfinityKey) {
    const Row row{logits, params.vocab, largest, spec.temperature, unit};
    if (spec.target >= 0) {
      result.token = spec.target;
    } else if (spec.temperature > 0) {
      result.token = draw(row, spec, shared);
    }
    result.logit = logits[result.token];
    if (spec.wants_sum != 0) {
      result.sum_exp = sum_exp(row, shared);
    }
    if (spec.num_listed > 0) {
      list_tokens(row, spec, params.listed, shared);
    }
  }
  if (threadIdx.x == 0) {
    params.sampled[blockIdx.x] = result;
  }
}

}  // namespace

void launch_sample(cudaStream_t stream, const SampleLaunch& sample) {
  // All weights together stay below 2^62.
  const auto vocab_bits =
      static_cast<int>(std::bit_width(static_cast<std::uint64_t>(sample.vocab)));
  const double unit = std::ldexp(1.0, 62 - vocab_bits);
  launch(stream, "sample tokens", {dim3(static_cast<unsigned>(sample.count)), dim3(kSampleThreads)},
         sample_kernel, sample, unit);
}

}  // namespace stagecoach::device::cuda
