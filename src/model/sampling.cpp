#include "model/sampling.hpp"

#include "base/hash.hpp"

namespace stagecoach::model {

std::uint64_t sampling_key(std::uint64_t seed, std::string_view request_id) {
  // The seed is mixed before it meets the hash: neighbouring seeds then share no bits of the key.
  return mix_bits(hash_string(request_id) ^ mix_bits(seed));
}

double uniform_at(std::uint64_t key, std::int64_t position) {
  const auto bits = mix_bits(key ^ mix_bits(static_cast<std::uint64_t>(position)));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace stagecoach::model
