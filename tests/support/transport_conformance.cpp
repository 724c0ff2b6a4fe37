#include "support/transport_conformance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ostream>
#include <span>
#include <thread>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/system.hpp"
#include "comm/collectives.hpp"

namespace stagecoach::testing {
namespace {

using comm::Channel;
using comm::Transport;
using comm::TransportOptions;
using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

constexpr Channel kAllChannels[] = {Channel::setup, Channel::plan, Channel::hidden,
                                    Channel::tokens};
constexpr std::size_t kPiece = 1000;
constexpr std::size_t kLengths[] = {0,          1,          kPiece - 1, kPiece,         kPiece + 1,
                                    2 * kPiece, 4 * kPiece, 17,         64 * kPiece + 7};

TransportOptions small_pieces() {
  return {.timeout = std::chrono::seconds(60), .piece_bytes = kPiece};
}

/// Bytes that differ in every message and at every offset.
Bytes pattern(std::size_t length, int from, int to, std::uint64_t serial) {
  const auto seed = mix_bits((serial << 16) ^ static_cast<std::uint64_t>(from * 256 + to));
  Bytes bytes(length);
  for (std::size_t i = 0; i < length; ++i) {
    bytes[i] = static_cast<std::byte>(mix_bits(seed + i / 8) >> (i % 8 * 8));
  }
  return bytes;
}

int next_rank(const Transport& t) { return (t.rank() + 1) % t.size(); }
int previous_rank(const Transport& t) { return (t.rank() + t.size() - 1) % t.size(); }

/// Sends beside whatever the rank receives: a blocking send may wait for its receiver.
template <typename Work>
std::jthread beside(Work work) {
  return std::jthread([work] {
    try {
      work();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  });
}

template <typename ErrorType, typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "no error";
}

void names_ranks_and_hosts(Transport& t, AbortSignal& /*abort*/) {
  ASSERT_GE(t.rank(), 0);
  ASSERT_LT(t.rank(), t.size());
  for (int rank = 0; rank < t.size(); ++rank) {
    EXPECT_EQ(t.describe(rank), fmt::format("rank {} on {}", rank, host_name()));
  }
  EXPECT_EQ(t.ranks_on_this_host(), t.size());  // the tests use one machine
}

void known_lengths_arrive_whole(Transport& t, AbortSignal& /*abort*/) {
  const int to = next_rank(t);
  const int from = previous_rank(t);
  const auto sender = beside([&] {
    std::uint64_t serial = 0;
    for (const auto length : kLengths) {
      t.send(pattern(length, t.rank(), to, serial++), to, Channel::hidden, "a message");
    }
  });
  std::uint64_t serial = 0;
  for (const auto length : kLengths) {
    Bytes got(length, std::byte{0xee});
    t.receive(got, from, Channel::hidden, "a message");
    EXPECT_TRUE(got == pattern(length, from, t.rank(), serial++)) << length << " bytes";
  }
}

/// Pieces so long that MPI waits for the receiver with each.
void long_pieces_arrive_whole(Transport& t, AbortSignal& /*abort*/) {
  constexpr std::size_t kLength = (std::size_t{7} << 19) + 5;
  const int to = next_rank(t);
  const int from = previous_rank(t);
  const auto sender =
      beside([&] { t.send(pattern(kLength, t.rank(), to, 1), to, Channel::hidden, "a message"); });
  Bytes got(kLength);
  t.receive(got, from, Channel::hidden, "a message");
  EXPECT_TRUE(got == pattern(kLength, from, t.rank(), 1));
}

void carried_lengths_arrive_whole(Transport& t, AbortSignal& /*abort*/) {
  const int to = next_rank(t);
  const int from = previous_rank(t);
  const auto sender = beside([&] {
    std::uint64_t serial = 0;
    for (const auto length : kLengths) {
      t.send_message(pattern(length, t.rank(), to, serial++), to, Channel::plan, "a message");
    }
  });
  std::uint64_t serial = 0;
  for (const auto length : kLengths) {
    const auto got = t.receive_message(from, Channel::plan, "a message");
    EXPECT_EQ(got.size(), length);
    EXPECT_TRUE(got == pattern(length, from, t.rank(), serial++)) << length << " bytes";
  }
}

void both_kinds_share_one_order(Transport& t, AbortSignal& /*abort*/) {
  const int to = next_rank(t);
  const int from = previous_rank(t);
  const auto sender = beside([&] {
    for (std::uint64_t serial = 0; serial < 40; ++serial) {
      const auto data = pattern(serial * 97, t.rank(), to, serial);
      if (serial % 3 == 0) {
        t.send(data, to, Channel::hidden, "a message");
      } else {
        t.send_message(data, to, Channel::hidden, "a message");
      }
    }
  });
  for (std::uint64_t serial = 0; serial < 40; ++serial) {
    Bytes got(serial * 97);
    if (serial % 3 == 0) {
      t.receive(got, from, Channel::hidden, "a message");
    } else {
      got = t.receive_message(from, Channel::hidden, "a message");
    }
    EXPECT_TRUE(got == pattern(serial * 97, from, t.rank(), serial)) << serial;
  }
}

void channels_do_not_hold_each_other_up(Transport& t, AbortSignal& /*abort*/) {
  const int to = next_rank(t);
  const int from = previous_rank(t);
  const auto large = beside([&] {
    t.send(pattern(300 * kPiece, t.rank(), to, 1), to, Channel::hidden, "the large message");
  });
  const auto small = beside(
      [&] { t.send_message(pattern(8, t.rank(), to, 2), to, Channel::plan, "the small message"); });
  // The large one was sent first, or not; neither its bytes nor its turn are the other channel's.
  EXPECT_TRUE(t.receive_message(from, Channel::plan, "the small message") ==
              pattern(8, from, t.rank(), 2));
  Bytes got(300 * kPiece);
  t.receive(got, from, Channel::hidden, "the large message");
  EXPECT_TRUE(got == pattern(300 * kPiece, from, t.rank(), 1));
}

/// A thread for each (peer, channel, direction) at once, the most that the contract allows.
void every_pair_and_channel_at_once(Transport& t, AbortSignal& /*abort*/) {
  constexpr std::uint64_t kMessages = 30;
  std::vector<std::jthread> threads;
  for (int peer = 0; peer < t.size(); ++peer) {
    for (const auto channel : kAllChannels) {
      const auto first = static_cast<std::uint64_t>(channel) * kMessages;
      threads.push_back(beside([&t, peer, channel, first] {
        for (auto serial = first; serial < first + kMessages; ++serial) {
          t.send_message(pattern(serial * 53 % 5000, t.rank(), peer, serial), peer, channel,
                         "a message");
        }
      }));
      threads.push_back(beside([&t, peer, channel, first] {
        for (auto serial = first; serial < first + kMessages; ++serial) {
          const auto got = t.receive_message(peer, channel, "a message");
          EXPECT_TRUE(got == pattern(serial * 53 % 5000, peer, t.rank(), serial))
              << "message " << serial << " from rank " << peer;
        }
      }));
    }
  }
}

void sender_may_reuse_its_buffer(Transport& t, AbortSignal& /*abort*/) {
  const int to = next_rank(t);
  const int from = previous_rank(t);
  const auto sender = beside([&] {
    Bytes buffer(200 * kPiece);
    for (int value = 0; value < 20; ++value) {
      std::fill(buffer.begin(), buffer.end(), static_cast<std::byte>(value));
      t.send(buffer, to, Channel::hidden, "a message");
    }
  });
  Bytes got(200 * kPiece);
  for (int value = 0; value < 20; ++value) {
    t.receive(got, from, Channel::hidden, "a message");
    EXPECT_TRUE(got == Bytes(got.size(), static_cast<std::byte>(value))) << value;
  }
}

void sending_to_itself_does_not_block(Transport& t, AbortSignal& /*abort*/) {
  t.send(pattern(5000 * kPiece, t.rank(), t.rank(), 1), t.rank(), Channel::tokens, "a message");
  t.send_message(pattern(0, t.rank(), t.rank(), 2), t.rank(), Channel::tokens, "a message");
  t.send_message(pattern(3 * kPiece, t.rank(), t.rank(), 3), t.rank(), Channel::tokens,
                 "a message");
  Bytes got(5000 * kPiece);
  t.receive(got, t.rank(), Channel::tokens, "a message");
  EXPECT_TRUE(got == pattern(got.size(), t.rank(), t.rank(), 1));
  EXPECT_TRUE(t.receive_message(t.rank(), Channel::tokens, "a message").empty());
  EXPECT_TRUE(t.receive_message(t.rank(), Channel::tokens, "a message") ==
              pattern(3 * kPiece, t.rank(), t.rank(), 3));
}

/// The lengths that came and that were expected, told by the receiver.
void expect_length_error(Transport& t, std::size_t sent, std::size_t expected) {
  const int from = previous_rank(t);
  const auto sender = beside(
      [&] { t.send(Bytes(sent), next_rank(t), Channel::hidden, "visit 3's hidden states"); });
  Bytes buffer(expected);
  EXPECT_EQ(error_of<TransportError>(
                [&] { t.receive(buffer, from, Channel::hidden, "visit 3's hidden states"); }),
            fmt::format("{} expected {} bytes as visit 3's hidden states from {}, but {} came: the "
                        "ranks disagree",
                        t.describe(t.rank()), expected, t.describe(from), sent));
  comm::barrier(t, "the end of the case");  // the other channels still work
}

void longer_message_is_an_error(Transport& t, AbortSignal& /*abort*/) {
  expect_length_error(t, 120, 100);
}

void shorter_message_is_an_error(Transport& t, AbortSignal& /*abort*/) {
  expect_length_error(t, 100, 120);
}

/// A whole number of pieces is where counting bytes piece by piece would see nothing.
void message_longer_by_pieces_is_an_error(Transport& t, AbortSignal& /*abort*/) {
  expect_length_error(t, 2 * kPiece, kPiece);
}

void timeout_says_who_waits_for_what(Transport& t, AbortSignal& /*abort*/) {
  const int from = previous_rank(t);
  const auto expected =
      fmt::format("{} has waited 1 s for visit 17's hidden states from {} (the limit is --timeout)",
                  t.describe(t.rank()), t.describe(from));
  const auto start = Clock::now();
  Bytes buffer(100);
  EXPECT_EQ(error_of<TransportError>(
                [&] { t.receive(buffer, from, Channel::hidden, "visit 17's hidden states"); }),
            expected);
  EXPECT_GE(Clock::now() - start, std::chrono::seconds(1));
  EXPECT_EQ(error_of<TransportError>([&] {
              static_cast<void>(t.receive_message(from, Channel::plan, "visit 17's hidden states"));
            }),
            expected);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(8));
}

void abort_wakes_waiters(Transport& t, AbortSignal& abort) {
  const auto raiser = beside([&abort] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    abort.raise(std::make_exception_ptr(IoError("the disk is gone")));
  });
  const auto wait_and_expect_abort = [&t](const auto& wait) {
    const auto start = Clock::now();
    EXPECT_THROW(wait(), JobAborted);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  };
  const auto other_waiter = beside([&] {
    wait_and_expect_abort(
        [&] { static_cast<void>(t.receive_message(previous_rank(t), Channel::plan, "nothing")); });
  });
  Bytes buffer(10);
  wait_and_expect_abort([&] { t.receive(buffer, previous_rank(t), Channel::hidden, "nothing"); });
  EXPECT_THROW(t.send(buffer, next_rank(t), Channel::tokens, "nothing"), JobAborted);
}

void unknown_ranks_are_refused(Transport& t, AbortSignal& /*abort*/) {
  Bytes buffer(10);
  EXPECT_THROW(t.send(buffer, t.size(), Channel::setup, "a message"), InternalError);
  EXPECT_THROW(t.receive(buffer, -1, Channel::setup, "a message"), InternalError);
}

void broadcast_gives_rank_zeros_bytes(Transport& t, AbortSignal& /*abort*/) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{5}, 20 * kPiece}) {
    const auto mine = pattern(length + static_cast<std::size_t>(t.rank()), t.rank(), 0, length);
    EXPECT_TRUE(comm::broadcast(t, mine, "the configuration") == pattern(length, 0, 0, length));
  }
}

void all_gather_gives_every_ranks_bytes(Transport& t, AbortSignal& /*abort*/) {
  const auto of_rank = [](int rank) {
    return pattern(static_cast<std::size_t>(rank) * kPiece, rank, 0, 9);  // rank 0: nothing
  };
  const auto all = comm::all_gather(t, of_rank(t.rank()), "the digests");
  ASSERT_EQ(all.size(), static_cast<std::size_t>(t.size()));
  for (int rank = 0; rank < t.size(); ++rank) {
    EXPECT_TRUE(all[static_cast<std::size_t>(rank)] == of_rank(rank)) << rank;
  }
}

/// Nobody leaves before the last one has come. The ranks share a machine, hence a clock.
void barrier_waits_for_all(Transport& t, AbortSignal& /*abort*/) {
  using Times = std::pair<Clock::rep, Clock::rep>;
  std::this_thread::sleep_for(std::chrono::milliseconds(60 * (t.size() - t.rank())));
  const auto came = Clock::now().time_since_epoch().count();
  comm::barrier(t, "the barrier");
  const Clock::rep times[] = {came, Clock::now().time_since_epoch().count()};
  Times latest{0, 0};
  Times earliest{INT64_MAX, INT64_MAX};
  for (const auto& of_rank : comm::all_gather(t, std::as_bytes(std::span(times)), "the times")) {
    ByteReader reader(of_rank);
    const auto in = reader.get<Clock::rep>();
    const auto out = reader.get<Clock::rep>();
    latest = {std::max(latest.first, in), std::max(latest.second, out)};
    earliest = {std::min(earliest.first, in), std::min(earliest.second, out)};
  }
  EXPECT_LE(latest.first, earliest.second);
}

}  // namespace

std::vector<TransportCase> transport_cases() {
  const TransportOptions brief{.timeout = std::chrono::seconds(1), .piece_bytes = kPiece};
  return {
      {"names_ranks_and_hosts", small_pieces(), names_ranks_and_hosts},
      {"known_lengths_arrive_whole", small_pieces(), known_lengths_arrive_whole},
      {"carried_lengths_arrive_whole", small_pieces(), carried_lengths_arrive_whole},
      {"uncut_messages_arrive_whole", {}, known_lengths_arrive_whole},
      {"long_pieces_arrive_whole", {.piece_bytes = std::size_t{1} << 20}, long_pieces_arrive_whole},
      {"both_kinds_share_one_order", small_pieces(), both_kinds_share_one_order},
      {"channels_do_not_hold_each_other_up", small_pieces(), channels_do_not_hold_each_other_up},
      {"every_pair_and_channel_at_once", small_pieces(), every_pair_and_channel_at_once},
      {"sender_may_reuse_its_buffer", {}, sender_may_reuse_its_buffer},
      {"sending_to_itself_does_not_block", small_pieces(), sending_to_itself_does_not_block},
      {"longer_message_is_an_error", small_pieces(), longer_message_is_an_error},
      {"shorter_message_is_an_error", small_pieces(), shorter_message_is_an_error},
      {"message_longer_by_pieces_is_an_error", small_pieces(),
       message_longer_by_pieces_is_an_error},
      {"timeout_says_who_waits_for_what", brief, timeout_says_who_waits_for_what},
      {"abort_wakes_waiters", small_pieces(), abort_wakes_waiters},
      {"unknown_ranks_are_refused", small_pieces(), unknown_ranks_are_refused},
      {"broadcast_gives_rank_zeros_bytes", small_pieces(), broadcast_gives_rank_zeros_bytes},
      {"all_gather_gives_every_ranks_bytes", small_pieces(), all_gather_gives_every_ranks_bytes},
      {"barrier_waits_for_all", small_pieces(), barrier_waits_for_all},
  };
}

std::ostream& operator<<(std::ostream& out, const TransportCase& test_case) {
  return out << test_case.name;
}

}  // namespace stagecoach::testing
