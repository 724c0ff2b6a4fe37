#include "comm/nccl_transport.hpp"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <latch>
#include <thread>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/loopback_transport.hpp"
#include "cuda/device_memory_transport.hpp"
#include "support/cuda_standin/standin.hpp"
#include "support/transport_conformance.hpp"

namespace stagecoach::comm {
namespace {

using std::chrono::seconds;
using test::with_device_memory;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::TransportCase;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr int kDevices = 4;
const std::string kWhat = "visit 17's hidden states";

void begin(const cuda_standin::Settings& settings = {.devices = kDevices}) {
  cuda_standin::reset(settings);
}

/// Ranks as threads, each with a GPU. `other` is the transport below.
class Ranks {
 public:
  using Body = std::function<void(Transport& nccl, AbortSignal& abort)>;

  explicit Ranks(int size, const TransportOptions& options = {.timeout = seconds(20)})
      : size_(size), options_(options), hub_(size, options, abort_) {}

  /// Runs `body` on every rank; what a rank ended with, "" if all was well.
  std::vector<std::string> run(const Body& body, bool share_a_gpu = false) {
    return run_below([&](Transport& other) {
      const int device = share_a_gpu ? 0 : other.rank();
      const auto transport = with_device_memory(
          make_nccl_transport(
              other, {.transport = options_, .device = device, .to_itself = to_itself()}, abort_),
          device, to_itself());
      body(*transport, abort_);
    });
  }
  std::vector<std::string> run_below(const std::function<void(Transport& other)>& body) {
    std::vector<std::string> ends(static_cast<std::size_t>(size_));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(*hub_.transport(rank));
        } catch (const std::exception& error) {
          ends[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    }
    threads.clear();
    return ends;
  }

  [[nodiscard]] bool to_itself() const { return size_ == 1; }
  AbortSignal& abort() { return abort_; }

 private:
  const int size_;
  const TransportOptions options_;
  AbortSignal abort_;
  LoopbackHub hub_;
};

/// All but what a sender with another length sees: NCCL's waits until its timeout.
std::vector<TransportCase> promises() {
  auto cases = testing::transport_cases();
  std::erase_if(cases, [](const TransportCase& test_case) {
    return test_case.name.find("er_message_is_an_error") != std::string::npos ||
           test_case.name == "message_longer_by_pieces_is_an_error";
  });
  return cases;
}

class NcclConformance : public ::testing::TestWithParam<std::tuple<int, TransportCase>> {};

TEST_P(NcclConformance, Holds) {
  const auto& [size, test_case] = GetParam();
  begin();
  Ranks ranks(size, test_case.options);
  for (const auto& end : ranks.run(test_case.body)) {
    EXPECT_EQ(end, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclConformance,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::ValuesIn(promises())),
                         [](const auto& info) {
                           return std::get<1>(info.param).name + "_on_" +
                                  std::to_string(std::get<0>(info.param));
                         });

TEST(NcclTransport, TellsWhatItIs) {
  begin();
  EXPECT_TRUE(built_with_nccl());
  EXPECT_EQ(nccl_status(), "NCCL 2.28.9");  // what the stand-in says
  Ranks ranks(2);
  const auto ends = ranks.run_below([&](Transport& other) {
    EXPECT_FALSE(other.hidden_in_device_memory());
    const auto nccl = make_nccl_transport(other, {.device = other.rank()}, ranks.abort());
    EXPECT_TRUE(nccl->hidden_in_device_memory());
    EXPECT_EQ(nccl->rank_on_this_host(), other.rank());
  });
  EXPECT_EQ(ends, (std::vector<std::string>{"", ""}));
}

/// A stage's forward and backward neighbours at once, many times, whatever streams do.
TEST(NcclTransport, CarriesManyMessagesUnderAnAdversary) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    begin({.devices = kDevices, .adversary_seed = seed});
    Ranks ranks(3, {.timeout = seconds(20), .piece_bytes = 1000});
    const auto ends = ranks.run([](Transport& t, AbortSignal& /*abort*/) {
      std::jthread sender;
      if (t.rank() + 1 < t.size()) {
        sender = std::jthread([&t] {
          for (int i = 0; i < 40; ++i) {
            t.send(Bytes(static_cast<std::size_t>(i * 97), static_cast<std::byte>(i)), t.rank() + 1,
                   Channel::hidden, kWhat);
          }
        });
      }
      for (int i = 0; t.rank() > 0 && i < 40; ++i) {
        Bytes got(static_cast<std::size_t>(i * 97));
        t.receive(got, t.rank() - 1, Channel::hidden, kWhat);
        EXPECT_EQ(got, Bytes(got.size(), static_cast<std::byte>(i)));
      }
    });
    EXPECT_THAT(ends, ::testing::Each(""));
  }
}

TEST(NcclTransport, RanksThatDisagreeOnALengthAreToldSo) {
  begin();
  Ranks ranks(2, {.timeout = seconds(1)});
  const auto start = Clock::now();
  const auto ends = ranks.run([](Transport& t, AbortSignal& /*abort*/) {
    Bytes data(t.rank() == 0 ? 120 : 100);
    if (t.rank() == 0) {
      t.send(data, 1, Channel::hidden, kWhat);
    } else {
      t.receive(data, 0, Channel::hidden, kWhat);
    }
  });
  EXPECT_THAT(ends[1], AllOf(HasSubstr("expected 100 bytes as " + kWhat + " from rank 0"),
                             HasSubstr("but 120 came: the ranks disagree")));
  EXPECT_NE(ends[0], "");
  EXPECT_LT(Clock::now() - start, seconds(10));
}

TEST(NcclTransport, ASendThatNobodyReceivesTimesOutAndEndsTheEdge) {
  begin();
  Ranks ranks(2, {.timeout = seconds(1)});
  std::latch tried(1);
  const auto ends = ranks.run([&](Transport& t, AbortSignal& /*abort*/) {
    if (t.rank() == 0) {
      try {
        t.send(Bytes(5000), 1, Channel::hidden, kWhat);
        ADD_FAILURE() << "sent";
      } catch (const TransportError& error) {
        EXPECT_EQ(error.what(), t.describe(0) + " has waited 1 s to send " + kWhat + " to " +
                                    t.describe(1) + " (the limit is --timeout)");
      }
      EXPECT_THROW(t.send(Bytes(10), 1, Channel::hidden, kWhat), NcclError);
      tried.count_down();
    } else {
      tried.wait();
    }
    barrier(t, "the end");  // other channels still work
  });
  EXPECT_THAT(ends, ::testing::Each(""));
}

TEST(NcclTransport, AnAbortEndsASend) {
  begin();
  Ranks ranks(2, {.timeout = seconds(60)});
  const auto start = Clock::now();
  ranks.run([](Transport& t, AbortSignal& abort) {
    if (t.rank() == 0) {
      const std::jthread raiser([&abort] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        abort.raise(std::make_exception_ptr(IoError("the disk is gone")));
      });
      EXPECT_THROW(t.send(Bytes(5000), 1, Channel::hidden, kWhat), JobAborted);
    } else {
      Bytes nothing(10);
      EXPECT_THROW(t.receive(nothing, 0, Channel::plan, "nothing"), JobAborted);
    }
  });
  EXPECT_LT(Clock::now() - start, seconds(10));
}

/// NCCL may tell of it, or say nothing for ever.
TEST(NcclTransport, APeerThatIsGoneIsAnErrorInTime) {
  begin();
  Ranks ranks(2, {.timeout = seconds(2)});
  const auto start = Clock::now();
  const auto ends = ranks.run([](Transport& t, AbortSignal& /*abort*/) {
    if (t.rank() == 0) {
      EXPECT_THROW(t.send(Bytes(5000), 1, Channel::hidden, kWhat), TransportError);
    }
  });
  EXPECT_THAT(ends, ::testing::Each(""));
  EXPECT_LT(Clock::now() - start, seconds(15));
}

/// A rank that exchanges names, and then never connects.
void only_names(Transport& other) {
  ByteWriter out;
  const Bytes names(256);
  for (const auto byte : names) {
    out.put(byte);
  }
  out.put_string("");
  all_gather(other, std::move(out).take(), "NCCL's names");
}

TEST(NcclTransport, APeerThatNeverComesIsAnErrorInTime) {
  begin();
  AbortSignal abort;
  Ranks ranks(2);
  const auto start = Clock::now();
  const auto ends = ranks.run_below([&](Transport& other) {
    if (other.rank() == 1) {
      only_names(other);
    } else {
      make_nccl_transport(other, {.transport = {.timeout = seconds(1)}}, abort);
    }
  });
  EXPECT_THAT(ends[0], HasSubstr("has waited 1 s for the NCCL connection from rank 1"));
  EXPECT_EQ(ends[1], "");
  EXPECT_LT(Clock::now() - start, seconds(10));
}

TEST(NcclTransport, AnAbortEndsConnecting) {
  begin();
  AbortSignal abort;
  Ranks ranks(2);
  const auto start = Clock::now();
  const auto ends = ranks.run_below([&](Transport& other) {
    if (other.rank() == 1) {
      only_names(other);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      abort.raise(std::make_exception_ptr(IoError("the disk is gone")));
    } else {
      EXPECT_THROW(make_nccl_transport(other, {}, abort), JobAborted);
    }
  });
  EXPECT_THAT(ends, ::testing::Each(""));
  EXPECT_LT(Clock::now() - start, seconds(10));
}

TEST(NcclTransport, RanksThatShareAGpuAreRefusedByNccl) {
  begin();
  Ranks ranks(2, {.timeout = seconds(2)});
  const auto ends = ranks.run([](Transport& /*t*/, AbortSignal& /*abort*/) {}, true);
  EXPECT_THAT(ends, ::testing::Contains(AllOf(HasSubstr("NCCL could not connect rank"),
                                              HasSubstr("(ncclInvalidUsage)"))));
}

/// A message from rank 0 to rank 1, in pieces, with memory of theirs.
void send_one(Transport& t) {
  void* data = nullptr;
  if (cudaMalloc(&data, 700) != cudaSuccess) {
    throw Error("the test could not take memory");
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(data), 700);
  const std::shared_ptr<void> owner(data, [](void* memory) { cudaFree(memory); });
  if (t.rank() == 0) {
    t.send(bytes, 1, Channel::hidden, kWhat);
  } else {
    t.receive(bytes, 0, Channel::hidden, kWhat);
  }
}

/// Every call that can fail: one error that names what failed, and an end in time. As in a job, the
/// rank that fails ends the other's waits.
TEST(NcclTransport, EveryCallThatFailsIsAnErrorThatSaysWhatFailed) {
  std::int64_t call = 0;
  for (bool failed = true; failed;) {
    begin({.devices = kDevices, .fail_call = ++call});
    SCOPED_TRACE("call " + std::to_string(call));
    const auto start = Clock::now();
    Ranks ranks(2, {.timeout = seconds(20)});
    const auto ends = ranks.run_below([&](Transport& other) {
      try {
        const auto t = make_nccl_transport(
            other,
            {.transport = {.timeout = seconds(20), .piece_bytes = 300}, .device = other.rank()},
            ranks.abort());
        send_one(*t);
      } catch (...) {
        ranks.abort().raise(std::current_exception());
        throw;
      }
    });
    EXPECT_LT(Clock::now() - start, seconds(10));
    failed = !cuda_standin::failed_call().empty();
    for (const auto& end : ends) {
      EXPECT_THAT(end, AnyOf("", HasSubstr(" could not "), HasSubstr("a failure elsewhere")));
    }
    if (!failed) {
      EXPECT_THAT(ends, ::testing::Each(""));
    }
  }
  EXPECT_GT(call, 20);
}

}  // namespace
}  // namespace stagecoach::comm
