#include "offload/kv_pages.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"

namespace stagecoach::offload {
namespace {

constexpr std::size_t kPage = 8;

TEST(KvPages, RoundsTokensUpToPages) {
  EXPECT_EQ(pages_for(0, 16), 0);
  EXPECT_EQ(pages_for(1, 16), 1);
  EXPECT_EQ(pages_for(16, 16), 1);
  EXPECT_EQ(pages_for(17, 16), 2);
}

TEST(KvPages, EveryPlaceAndLayerHasPagesOfItsOwn) {
  std::vector<std::byte> memory(kPage * 2 * 6);
  KvPages pages(memory, kPage, 16, 2, 3);
  pages.extend(0, 16);
  pages.extend(1, 17);
  pages.extend(2, 40);
  std::set<std::byte*> seen;
  for (std::int64_t place = 0; place < 3; ++place) {
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(pages.pages(place, layer).size(), static_cast<std::size_t>(place + 1));
      for (auto* page : pages.pages(place, layer)) {
        EXPECT_TRUE(seen.insert(page).second);
        EXPECT_EQ((page - memory.data()) % static_cast<std::ptrdiff_t>(kPage), 0);
        EXPECT_LT(page, memory.data() + memory.size());
      }
    }
  }
  EXPECT_EQ(pages.free_pages(), 0);
}

TEST(KvPages, GrowsInPlaceAndGivesBackAll) {
  std::vector<std::byte> memory(kPage * 4);
  KvPages pages(memory, kPage, 16, 1, 2);
  pages.extend(1, 10);
  const auto first = pages.pages(1, 0).at(0);
  pages.extend(1, 16);
  EXPECT_EQ(pages.pages(1, 0).size(), 1u);
  pages.extend(1, 33);
  EXPECT_EQ(pages.pages(1, 0).size(), 3u);
  EXPECT_EQ(pages.pages(1, 0).at(0), first);
  pages.release(1);
  EXPECT_EQ(pages.free_pages(), 4);
  EXPECT_TRUE(pages.pages(1, 0).empty());
  pages.extend(0, 64);
  EXPECT_EQ(pages.free_pages(), 0);
}

TEST(KvPages, RunningOutIsABrokenPromise) {
  std::vector<std::byte> memory(kPage * 2);
  KvPages pages(memory, kPage, 16, 1, 1);
  EXPECT_THROW(pages.extend(0, 33), InternalError);
}

}  // namespace
}  // namespace stagecoach::offload
