#include "cuda/pipeline.hpp"
#include "device/cuda/operation_memory.hpp"
#include "device/cuda/staged_copies.hpp"
#include "device/cuda/transfer_ring.hpp"
#include "support/cuda_standin/standin.hpp"

namespace stagecoach::test {
namespace {

using device::cuda::CudaStream;
using device::cuda::StagedCopies;
using device::cuda::TransferRing;

constexpr std::uint64_t kSeeds = 100;
constexpr int kRounds = 8;
constexpr std::size_t kSmall = 5003;
constexpr std::size_t kUploaded = 700;

/// The stand-in delays and reorders whatever no event orders, by this seed.
void reset_adversary(std::uint64_t seed, std::size_t pinnable_bytes = std::size_t{1} << 40) {
  cuda_standin::Settings settings;
  settings.adversary_seed = seed;
  settings.pinnable_bytes = pinnable_bytes;
  cuda_standin::reset(settings);
}

/// Wrong rounds with each of `seeds` seeds, added up until there are any.
int wrong_rounds(Fault fault, bool pinned, std::uint64_t seeds, std::size_t size_bytes) {
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= seeds && wrong == 0; ++seed) {
    reset_adversary(seed);
    CudaCase on(kSmallShape, kSmallMemory);
    wrong = Pipeline(on, size_bytes, pinned).run(kRounds, fault);
  }
  cuda_standin::reset({});
  return wrong;
}

TEST(Adversary, FindsNothingWrongWithPinnedCopies) {
  EXPECT_EQ(wrong_rounds(Fault::none, true, kSeeds, kSmall), 0);
}

TEST(Adversary, FindsNothingWrongWithStagedCopies) {
  EXPECT_EQ(wrong_rounds(Fault::none, false, kSeeds, kSmall), 0);
}

TEST(Adversary, FindsNothingWrongOverSeveralTurnsOfTheRing) {
  EXPECT_EQ(wrong_rounds(Fault::none, false, 3, StagedCopies::kRingBytes + 4321), 0);
}

class PlantedFault : public testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(Adversary, PlantedFault,
                         testing::Values(Fault::load_not_waited_for, Fault::move_not_waited_for,
                                         Fault::input_used_again, Fault::output_used_again,
                                         Fault::result_not_waited_for, Fault::wrong_stream));

TEST_P(PlantedFault, IsFoundWithPinnedCopies) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer finds them itself";
#endif
  EXPECT_GT(wrong_rounds(GetParam(), true, kSeeds, kSmall), 0);
}

// Uploads through a ring for four of them: how many came out wrong.
int wrong_uploads(std::uint64_t seed, const TransferRing::Wait& wait) {
  reset_adversary(seed);
  constexpr std::size_t kPlace = 1024;
  constexpr std::uint64_t kUploads = 24;
  CudaCase on(kSmallShape, kSmallMemory);
  const device::cuda::PinnedBuffer host(4 * kPlace, "a test", 0,
                                        std::make_shared<device::cuda::PinnedRanges>());
  auto* const there = on.take<std::byte>(kUploads * kPlace);
  TransferRing ring(4 * kPlace, 256, wait);
  auto& stream = dynamic_cast<CudaStream&>(on.stream());
  for (std::uint64_t i = 0; i < kUploads; ++i) {
    stream.issue([&, i] {
      auto* const slot = host.data() + ring.take(kPlace);
      const auto bytes = pattern(kPlace, i);
      std::copy(bytes.begin(), bytes.end(), slot);
      device::cuda::check_cuda(cudaMemcpyAsync(there + i * kPlace, slot, kPlace,
                                               cudaMemcpyHostToDevice, stream.handle()),
                               "copy");
      ring.close(stream.mark());
    });
  }
  const auto all = on.get(there, kUploads * kPlace);
  int wrong = 0;
  for (std::uint64_t i = 0; i < kUploads; ++i) {
    const auto expected = pattern(kPlace, i);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * kPlace);
    wrong += std::equal(expected.begin(), expected.end(), begin) ? 0 : 1;
  }
  return wrong;
}

TEST(Adversary, FindsNothingWrongWithARing) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ASSERT_EQ(wrong_uploads(seed, [](const device::Event& event) { event.wait(); }), 0) << seed;
  }
  cuda_standin::reset({});
}

TEST(Adversary, FindsARingThatDoesNotWait) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer finds them itself";
#endif
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds && wrong == 0; ++seed) {
    wrong = wrong_uploads(seed, [](const device::Event&) {});
  }
  cuda_standin::reset({});
  EXPECT_GT(wrong, 0);
}

// Operations of two streams, each by way of the one scratch.
TEST(Adversary, FindsNothingWrongWithOperations) {
  using device::cuda::Operation;
  constexpr std::uint64_t kOperations = 30;
  constexpr device::cuda::OperationLayout kLayout{
      .scratch = 1024, .upload = 4 * 1024, .download = 4 * 1024};
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    reset_adversary(seed);
    {
      CudaCase on(kSmallShape, kSmallMemory);
      device::cuda::OperationMemory memory(kLayout, on.take<std::byte>(kLayout.device_bytes()), 0,
                                           std::make_shared<device::cuda::PinnedRanges>());
      std::vector<std::vector<std::byte>> seen(kOperations);
      const auto other = on->create_stream("other");
      for (std::uint64_t i = 0; i < kOperations; ++i) {
        auto& stream = dynamic_cast<CudaStream&>(i % 3 == 0 ? *other : on.stream());
        stream.issue([&, i] {
          memory.operate(stream, [&](Operation& operation) {
            const auto* const uploaded = operation.upload_bytes(pattern(kUploaded, i));
            device::cuda::check_cuda(cudaMemcpyAsync(operation.scratch(), uploaded, kUploaded,
                                                     cudaMemcpyDeviceToDevice, operation.stream()),
                                     "copy");
            operation.download(operation.scratch(), kUploaded, [&seen, i](const std::byte* bytes) {
              seen[i].assign(bytes, bytes + kUploaded);
            });
          });
        });
      }
      other->record().wait();
      on.stream().record().wait();
      for (std::uint64_t i = 0; i < kOperations; ++i) {
        ASSERT_EQ(seen[i], pattern(kUploaded, i)) << "seed " << seed << ", operation " << i;
      }
    }
  }
  cuda_standin::reset({});
}

// Slower, but right, and somebody is told.
TEST(Unpinnable, StillComesOutRight) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    reset_adversary(seed, 0);
    CudaCase on(kSmallShape, kSmallMemory);
    std::vector<std::byte> memory(1000);
    EXPECT_EQ(on->pin(memory), nullptr);
    EXPECT_EQ(on->notes().size(), 1u);
    EXPECT_EQ(Pipeline(on, StagedCopies::kPieceBytes + 99, false).run(4, Fault::none), 0);
  }
  cuda_standin::reset({});
}

// Every Stream::wait for another stream's event becomes one of CUDA's, on what was recorded for it.
TEST(OrderLog, HasEveryWait) {
  using Kind = cuda_standin::OrderEvent::Kind;
  cuda_standin::reset({});
  CudaCase on(kSmallShape, kSmallMemory);
  const auto first = on->create_stream("first");
  const auto second = on->create_stream("second");
  cuda_standin::log_order(true);
  for (int round = 0; round < 5; ++round) {
    const auto event = first->record();
    event.wait();  // has passed before it is waited for, which changes nothing
    second->wait(event);
    second->record().wait();
  }
  const auto log = cuda_standin::order_log();
  cuda_standin::log_order(false);
  ASSERT_EQ(log.size(), 15u);
  for (std::size_t i = 0; i < 15; i += 3) {
    EXPECT_EQ(log[i].kind, Kind::record);
    EXPECT_EQ(log[i + 1].kind, Kind::wait);
    EXPECT_EQ(log[i + 1].event, log[i].event);
    EXPECT_EQ(log[i + 1].generation, log[i].generation);
    EXPECT_NE(log[i + 1].stream, log[i].stream);
    EXPECT_EQ(log[i + 2].kind, Kind::record);
    EXPECT_EQ(log[i + 2].stream, log[i + 1].stream);
  }
}

}  // namespace
}  // namespace stagecoach::test
