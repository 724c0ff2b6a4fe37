#include "job/agreement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/abort_signal.hpp"
#include "comm/loopback_transport.hpp"

namespace stagecoach::job {
namespace {

using ::testing::HasSubstr;
using Work = std::function<void(comm::Transport&)>;

/// How one rank ended.
struct End {
  std::string what = "no exception";
  int exit_code = 0;
  bool speaks = false;
  bool refused = false;
};

std::vector<End> play(int ranks, const Work& work) {
  AbortSignal abort;
  comm::LoopbackHub hub(ranks, {.timeout = std::chrono::seconds(20)}, abort);
  std::vector<End> ends(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        auto& end = ends[static_cast<std::size_t>(rank)];
        try {
          const auto transport = hub.transport(rank);
          work(*transport);
        } catch (const JobRefused& error) {
          end = {error.what(), error.exit_code(), error.speaks(), true};
        } catch (const std::exception& error) {
          end.what = error.what();
          abort.raise(std::current_exception());
        }
      });
    }
  }
  return ends;
}

TEST(Agree, GoesOnWhenAllRanksCan) {
  for (const auto& end : play(3, [](comm::Transport& t) { agree(t, "a step", [] {}); })) {
    EXPECT_EQ(end.what, "no exception");
  }
}

TEST(Agree, OneRanksFailureEndsAllWithItsMessageAndCode) {
  const auto ends = play(4, [](comm::Transport& t) {
    agree(t, "a step", [&] {
      if (t.rank() == 2) {
        throw ConfigError("no such store");
      }
    });
  });
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(ends[rank].refused);
    EXPECT_EQ(ends[rank].exit_code, 2);
    EXPECT_EQ(ends[rank].speaks, rank == 0);
    EXPECT_THAT(ends[rank].what, HasSubstr("rank 2"));
    EXPECT_THAT(ends[rank].what, HasSubstr("no such store"));
  }
}

TEST(Agree, TheLowestFailingRankSpeaksAndOtherErrorsHaveCodeOne) {
  const auto ends = play(3, [](comm::Transport& t) {
    agree(t, "a step", [&] { throw IoError("disk " + std::to_string(t.rank())); });
  });
  for (const auto& end : ends) {
    EXPECT_EQ(end.what, "disk 0");
    EXPECT_EQ(end.exit_code, 1);
  }
}

TEST(Agree, ALostJobIsNoAgreement) {
  const auto ends = play(2, [](comm::Transport& t) {
    agree(t, "a step", [&] {
      if (t.rank() == 1) {
        throw TransportError("the wire is cut");
      }
    });
  });
  EXPECT_FALSE(ends[1].refused);
  EXPECT_EQ(ends[1].what, "the wire is cut");
  EXPECT_FALSE(ends[0].refused);
}

TEST(AgreeOn, NamesWhatDiffersAndWhere) {
  const auto ends = play(3, [](comm::Transport& t) {
    agree_on(t, {{"version", "1"}, {"model", t.rank() == 2 ? "b" : "a"}});
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(ends[rank].refused);
    EXPECT_EQ(ends[rank].exit_code, 2);
    EXPECT_EQ(ends[rank].speaks, rank == 0);
    EXPECT_THAT(ends[rank].what, HasSubstr("rank 2"));
    EXPECT_THAT(ends[rank].what, HasSubstr("another model"));
    EXPECT_THAT(ends[rank].what, HasSubstr("b instead of a"));
  }
}

TEST(AgreeOn, PassesWhenAllAreTheSame) {
  for (const auto& end : play(3, [](comm::Transport& t) { agree_on(t, {{"x", "same"}}); })) {
    EXPECT_EQ(end.what, "no exception");
  }
}

}  // namespace
}  // namespace stagecoach::job
