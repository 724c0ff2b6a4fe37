#include "offload/kv_pages.hpp"

#include "base/error.hpp"

namespace stagecoach::offload {

KvPages::KvPages(std::span<std::byte> memory, std::size_t page_bytes, std::int64_t page_tokens,
                 std::int64_t layers, std::int64_t places)
    : page_tokens_(page_tokens),
      layers_(layers),
      tables_(static_cast<std::size_t>(layers * places)) {
  const std::size_t pages = memory.size() / page_bytes;
  free_.reserve(pages);
  for (std::size_t i = pages; i > 0; --i) {
    free_.push_back(memory.data() + (i - 1) * page_bytes);
  }
}

std::vector<std::byte*>& KvPages::table(std::int64_t place, std::int64_t layer) {
  return tables_.at(static_cast<std::size_t>(place * layers_ + layer));
}

const std::vector<std::byte*>& KvPages::pages(std::int64_t place, std::int64_t layer) const {
  return tables_.at(static_cast<std::size_t>(place * layers_ + layer));
}

void KvPages::extend(std::int64_t place, std::int64_t tokens) {
  const auto wanted = static_cast<std::size_t>(pages_for(tokens, page_tokens_));
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    auto& pages = table(place, layer);
    while (pages.size() < wanted) {
      STAGECOACH_CHECK(!free_.empty(), "KV pages ran out for place {} in layer {}", place, layer);
      pages.push_back(free_.back());
      free_.pop_back();
    }
  }
}

void KvPages::release(std::int64_t place) {
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    auto& pages = table(place, layer);
    free_.insert(free_.end(), pages.rbegin(), pages.rend());
    pages.clear();
  }
}

}  // namespace stagecoach::offload
