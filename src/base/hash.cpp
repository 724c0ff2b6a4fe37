#include "base/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace stagecoach {

struct StreamingHash::State {
  XXH3_state_t* xxh;
};

void StreamingHash::Free::operator()(State* state) const noexcept {
  XXH3_freeState(state->xxh);
  delete state;
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t hash_string(std::string_view text) noexcept {
  return XXH3_64bits(text.data(), text.size());
}

std::string hash_to_hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

StreamingHash::StreamingHash() : state_(new State{XXH3_createState()}) {
  if (state_->xxh == nullptr) {
    throw std::bad_alloc();
  }
  XXH3_64bits_reset(state_->xxh);
}

void StreamingHash::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

std::uint64_t StreamingHash::digest() const { return XXH3_64bits_digest(state_->xxh); }

}  // namespace stagecoach
