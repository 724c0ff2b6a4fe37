#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stagecoach::offload {

/// Pages that hold `tokens` tokens.
constexpr std::int64_t pages_for(std::int64_t tokens, std::int64_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

/// The KV cache of a stage: a fixed pool of pages, each K and V of one sequence in one layer for
/// `page_tokens` tokens, and a table of pages for every (place, layer). Used by the stage's control
/// thread alone. The pool never grows: admission guarantees that a claim is met, so running out is
/// an InternalError.
class KvPages {
 public:
  /// `memory` holds layers * pages_per_layer pages of `page_bytes`; it must outlive this.
  KvPages(std::span<std::byte> memory, std::size_t page_bytes, std::int64_t page_tokens,
          std::int64_t layers, std::int64_t places);

  /// Makes sure that `place` has pages for its first `tokens` tokens in every layer.
  void extend(std::int64_t place, std::int64_t tokens);
  /// Gives all pages of `place` back. The caller knows that no stream uses them any more.
  void release(std::int64_t place);

  /// Pages of `place` in `layer` (of this stage, from 0), in position order.
  [[nodiscard]] const std::vector<std::byte*>& pages(std::int64_t place, std::int64_t layer) const;
  [[nodiscard]] std::int64_t free_pages() const noexcept {
    return static_cast<std::int64_t>(free_.size());
  }

 private:
  [[nodiscard]] std::vector<std::byte*>& table(std::int64_t place, std::int64_t layer);

  std::int64_t page_tokens_;
  std::int64_t layers_;
  std::vector<std::byte*> free_;                 ///< last in, first out
  std::vector<std::vector<std::byte*>> tables_;  ///< [place * layers + layer]
};

}  // namespace stagecoach::offload
