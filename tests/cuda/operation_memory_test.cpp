#include "device/cuda/operation_memory.hpp"

#include "base/error.hpp"
#include "cuda/small_case.hpp"

namespace stagecoach::test {
namespace {

using device::cuda::CudaStream;
using device::cuda::Operation;
using device::cuda::OperationLayout;
using device::cuda::OperationMemory;

// Scratch for one operation, and rings for four.
constexpr OperationLayout kLayout{.scratch = 4096, .upload = 4 * 4096, .download = 4 * 4096};

class OperationMemoryTest : public testing::Test {
 protected:
  void operate(device::Stream& stream, std::function<void(Operation&)> work) {
    auto& on = dynamic_cast<CudaStream&>(stream);
    on.issue([this, &on, work = std::move(work)] { memory_.operate(on, work); });
  }
  // What an operation uploads comes to `to` by way of the scratch.
  void pass_through_scratch(device::Stream& stream, std::byte* to, std::uint64_t number) {
    operate(stream, [=](Operation& operation) {
      const auto bytes = pattern(kSize, number);
      const auto* const uploaded = operation.upload_bytes(bytes);
      copy(operation, operation.scratch(), uploaded);
      copy(operation, to, operation.scratch());
    });
  }
  static void copy(Operation& operation, std::byte* to, const std::byte* from) {
    device::cuda::check_cuda(
        cudaMemcpyAsync(to, from, kSize, cudaMemcpyDeviceToDevice, operation.stream()), "copy");
  }

  static constexpr std::size_t kSize = 1001;

  CudaCase case_{kSmallShape, kSmallMemory};
  OperationMemory memory_{kLayout, case_.take<std::byte>(kLayout.device_bytes()), 0,
                          std::make_shared<device::cuda::PinnedRanges>()};
};

TEST_F(OperationMemoryTest, KeepsUploadsApart) {
  auto* const all = case_.take<std::byte>(200 * kSize);
  for (std::uint64_t i = 0; i < 200; ++i) {
    pass_through_scratch(case_.stream(), all + i * kSize, i);
  }
  const auto result = case_.get(all, 200 * kSize);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto expected = pattern(kSize, i);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), result.begin() + i * kSize)) << i;
  }
}

TEST_F(OperationMemoryTest, PiecesOfOneOperationAreAllThere) {
  auto* const all = case_.take<std::byte>(3 * kSize);
  for (std::uint64_t round = 0; round < 40; ++round) {
    operate(case_.stream(), [=](Operation& operation) {
      std::vector<const std::byte*> pieces;
      for (std::uint64_t i = 0; i < 3; ++i) {
        pieces.push_back(operation.upload_bytes(pattern(kSize, 3 * round + i)));
        EXPECT_EQ(
            reinterpret_cast<std::uintptr_t>(pieces.back()) % device::cuda::kOperationAlignment,
            0u);
      }
      for (std::uint64_t i = 0; i < 3; ++i) {
        copy(operation, all + i * kSize, pieces[i]);
      }
    });
    const auto result = case_.get(all, 3 * kSize);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto expected = pattern(kSize, 3 * round + i);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), result.begin() + i * kSize));
    }
  }
}

// In the stream's order, before events behind them pass, each with its own bytes.
TEST_F(OperationMemoryTest, DownloadsComeInOrder) {
  std::vector<std::vector<std::byte>> sources;
  std::vector<std::byte*> there;
  for (std::uint64_t i = 0; i < 60; ++i) {
    there.push_back(case_.put(pattern(kSize, i)));
  }
  std::vector<std::vector<std::byte>> seen;  // unguarded: downloads of one stream never run at once
  for (std::uint64_t i = 0; i < 60; ++i) {
    operate(case_.stream(), [&, i](Operation& operation) {
      operation.download(there[i], kSize, [&seen](const std::byte* bytes) {
        seen.emplace_back(bytes, bytes + kSize);
      });
    });
    if (i % 7 == 0) {
      case_.stream().record().wait();
      ASSERT_EQ(seen.size(), i + 1);
    }
  }
  case_.stream().record().wait();
  ASSERT_EQ(seen.size(), 60u);
  for (std::uint64_t i = 0; i < 60; ++i) {
    EXPECT_EQ(seen[i], pattern(kSize, i)) << i;
  }
}

TEST_F(OperationMemoryTest, AFailingDownloadRaisesTheAbortSignal) {
  auto* const there = case_.take<std::byte>(kSize);
  operate(case_.stream(), [=](Operation& operation) {
    operation.download(there, kSize,
                       [](const std::byte*) { throw Error("logits are not finite"); });
  });
  EXPECT_THROW(case_.stream().record().wait(), JobAborted);
  EXPECT_THROW(std::rethrow_exception(case_.abort().cause()), Error);
}

TEST_F(OperationMemoryTest, RefusesMoreThanWasReserved) {
  operate(case_.stream(), [](Operation& operation) {
    operation.upload_bytes(std::vector<std::byte>(kLayout.upload + 1));
  });
  EXPECT_THROW(case_.stream().record().wait(), JobAborted);
  EXPECT_THROW(std::rethrow_exception(case_.abort().cause()), InternalError);
}

// Both use the one scratch.
TEST_F(OperationMemoryTest, TwoStreamsTakeTurns) {
  const auto other = case_->create_stream("other");
  auto* const all = case_.take<std::byte>(100 * kSize);
  for (std::uint64_t i = 0; i < 100; ++i) {
    pass_through_scratch(i % 2 == 0 ? case_.stream() : *other, all + i * kSize, i);
  }
  other->record().wait();
  const auto result = case_.get(all, 100 * kSize);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto expected = pattern(kSize, i);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), result.begin() + i * kSize)) << i;
  }
}

}  // namespace
}  // namespace stagecoach::test
