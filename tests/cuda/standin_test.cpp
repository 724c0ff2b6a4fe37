#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "cuda/standin_case.hpp"

namespace stagecoach::test {
namespace {

using namespace std::chrono_literals;

__global__ void scale_and_add(const float* from, float* to, float factor, float more, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    to[i] = from[i] * factor + more;
  }
}

cudaError_t scale_and_add_on(cudaStream_t stream, const float* from, float* to, float factor,
                             float more, int count) {
  return StandinCase::launch(stream, dim3(static_cast<unsigned>(count + 63) / 64), dim3(64), 0,
                             scale_and_add, from, to, factor, more, count);
}

bool is_poison(const void* memory, std::size_t size_bytes) {
  const auto* const bytes = static_cast<const std::uint8_t*>(memory);
  return std::all_of(bytes, bytes + size_bytes,
                     [](std::uint8_t byte) { return byte == cuda_standin::kPoison; });
}

/// A host function that ends when it is told to.
struct Gate {
  std::atomic<bool> open = false;
  static void wait(void* gate) {
    while (!static_cast<Gate*>(gate)->open) {
      std::this_thread::sleep_for(100us);
    }
  }
};

TEST(StandinStreams, WorkOfAStreamComesInOrder) {
  StandinCase on;
  auto* const stream = on.stream();
  auto* const x = on.put(std::vector<float>(100, 1.0f));
  float expected = 1;
  for (int i = 0; i < 20; ++i) {
    EXPECT_CUDA(scale_and_add_on(stream, x, x, 0.5f, static_cast<float>(i), 100));
    expected = expected * 0.5f + static_cast<float>(i);
  }
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(on.get(x, 100), std::vector<float>(100, expected));
}

TEST(StandinStreams, DoNotWaitForEachOther) {
  StandinCase on;
  Gate gate;
  auto* const held = on.stream();
  auto* const free = on.stream();
  EXPECT_CUDA(cudaLaunchHostFunc(held, Gate::wait, &gate));
  auto* const x = on.device<float>(10);
  EXPECT_CUDA(cudaMemsetAsync(x, 0, 40, free));
  EXPECT_CUDA(cudaStreamSynchronize(free));
  EXPECT_EQ(cudaStreamQuery(held), cudaErrorNotReady);
  gate.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(held));
  EXPECT_CUDA(cudaStreamQuery(held));
}

TEST(StandinEvents, OrderStreamsByWhatWasRecordedLast) {
  StandinCase on;
  Gate gate;
  auto* const first = on.stream();
  auto* const second = on.stream();
  auto* const event = on.event();
  // Never recorded: nothing to wait for.
  EXPECT_CUDA(cudaStreamWaitEvent(second, event));
  EXPECT_CUDA(cudaStreamSynchronize(second));
  EXPECT_CUDA(cudaEventQuery(event));

  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event));  // of the record of now
  EXPECT_CUDA(cudaLaunchHostFunc(first, Gate::wait, &gate));
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaStreamSynchronize(second));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);

  EXPECT_CUDA(cudaStreamWaitEvent(second, event));
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  std::thread opener([&] {
    std::this_thread::sleep_for(5ms);
    gate.open = true;
  });
  EXPECT_CUDA(cudaEventSynchronize(event));
  EXPECT_TRUE(gate.open);
  EXPECT_CUDA(cudaStreamSynchronize(second));
  opener.join();
}

TEST(StandinEvents, MayGoWhileWaitedFor) {
  StandinCase on;
  Gate gate;
  auto* const first = on.stream();
  auto* const second = on.stream();
  cudaEvent_t event = nullptr;
  EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  EXPECT_CUDA(cudaLaunchHostFunc(first, Gate::wait, &gate));
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event));
  EXPECT_CUDA(cudaEventDestroy(event));
  EXPECT_EQ(cudaStreamQuery(second), cudaErrorNotReady);
  gate.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(second));
}

TEST(StandinEvents, MeasureTime) {
  StandinCase on;
  auto* const stream = on.stream();
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  EXPECT_CUDA(cudaEventCreate(&begin));
  EXPECT_CUDA(cudaEventCreate(&end));
  EXPECT_CUDA(cudaEventRecord(begin, stream));
  EXPECT_CUDA(cudaLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(20ms); }, nullptr));
  EXPECT_CUDA(cudaEventRecord(end, stream));
  EXPECT_CUDA(cudaEventSynchronize(end));
  float milliseconds = 0;
  EXPECT_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 20.0f);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, on.event()), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA(cudaEventDestroy(begin));
  EXPECT_CUDA(cudaEventDestroy(end));
}

TEST(StandinCopies, ReadPageableMemoryAtOnceAndPinnedMemoryLater) {
  StandinCase on;
  Gate gate;
  auto* const stream = on.stream();
  EXPECT_CUDA(cudaLaunchHostFunc(stream, Gate::wait, &gate));
  std::vector<int> pageable(10, 1);
  auto* const pinned = on.pinned<int>(10);
  std::fill_n(pinned, 10, 1);
  auto* const from_pageable = on.device<int>(10);
  auto* const from_pinned = on.device<int>(10);
  EXPECT_CUDA(cudaMemcpyAsync(from_pageable, pageable.data(), 40, cudaMemcpyHostToDevice, stream));
  EXPECT_CUDA(cudaMemcpyAsync(from_pinned, pinned, 40, cudaMemcpyHostToDevice, stream));
  std::fill_n(pageable.data(), 10, 2);
  std::fill_n(pinned, 10, 2);
  gate.open = true;
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(on.get(from_pageable, 10), std::vector<int>(10, 1));
  EXPECT_EQ(on.get(from_pinned, 10), std::vector<int>(10, 2));
}

TEST(StandinCopies, WritePageableMemoryBeforeTheyReturn) {
  StandinCase on;
  Gate gate;
  auto* const stream = on.stream();
  auto* const x = on.put(std::vector<int>(10, 7));
  auto* const pinned = on.pinned<int>(10);
  EXPECT_CUDA(cudaLaunchHostFunc(stream, Gate::wait, &gate));
  EXPECT_CUDA(cudaMemcpyAsync(pinned, x, 40, cudaMemcpyDeviceToHost, stream));
  EXPECT_TRUE(is_poison(pinned, 40));
  std::thread opener([&] {
    std::this_thread::sleep_for(5ms);
    gate.open = true;
  });
  std::vector<int> pageable(10);
  EXPECT_CUDA(cudaMemcpyAsync(pageable.data(), x, 40, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(pageable, std::vector<int>(10, 7));
  EXPECT_EQ(pinned[9], 7);
  opener.join();
}

TEST(StandinCopies, RefuseWhatIsNotThere) {
  StandinCase on;
  auto* const stream = on.stream();
  auto* const x = on.device<char>(100);
  std::vector<char> host(200);
  EXPECT_EQ(cudaMemcpyAsync(x, host.data(), 101, cudaMemcpyHostToDevice, stream),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(x + 50, host.data(), 51, cudaMemcpyHostToDevice, stream),
            cudaErrorInvalidValue);
  EXPECT_CUDA(cudaMemcpyAsync(x + 50, host.data(), 50, cudaMemcpyHostToDevice, stream));
  EXPECT_EQ(cudaMemcpyAsync(x, host.data(), 10, cudaMemcpyDeviceToHost, stream),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 10, stream), cudaErrorInvalidValue);
  void* freed = nullptr;
  EXPECT_CUDA(cudaMalloc(&freed, 10));
  EXPECT_CUDA(cudaFree(freed));
  EXPECT_EQ(cudaMemcpyAsync(freed, host.data(), 10, cudaMemcpyHostToDevice, stream),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(StandinCopies, TakeTheTimeOfTheLink) {
  StandinCase on({.pcie_bytes_per_second = 10e6});
  auto* const stream = on.stream();
  auto* const other = on.stream();
  auto* const x = on.device<char>(400000);
  auto* const pinned = on.pinned<char>(400000);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_CUDA(cudaMemcpyAsync(x, pinned, 200000, cudaMemcpyHostToDevice, stream));
  EXPECT_CUDA(cudaMemcpyAsync(x + 200000, pinned, 200000, cudaMemcpyHostToDevice, other));
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 40ms);  // one after the other
}

TEST(StandinMemory, HasNoMoreThanTheSettingsSay) {
  StandinCase on({.memory_bytes = 1000, .pinnable_bytes = 500});
  void* x = nullptr;
  EXPECT_EQ(cudaMalloc(&x, 1001), cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaMalloc(&x, 600));
  void* y = nullptr;
  EXPECT_EQ(cudaMalloc(&y, 401), cudaErrorMemoryAllocation);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  EXPECT_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(total_bytes, 1000u);
  EXPECT_CUDA(cudaFree(x));
  EXPECT_EQ(cudaFree(x), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaMalloc(&y, 1000));
  EXPECT_CUDA(cudaFree(y));

  std::vector<char> host(400);
  EXPECT_CUDA(cudaHostRegister(host.data(), 400, cudaHostRegisterDefault));
  EXPECT_EQ(cudaHostRegister(host.data() + 100, 10, cudaHostRegisterDefault),
            cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaMallocHost(&x, 101), cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaMallocHost(&x, 100));
  EXPECT_CUDA(cudaFreeHost(x));
  EXPECT_CUDA(cudaHostUnregister(host.data()));
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
}

TEST(StandinMemory, IsPoisonWhenFreshAndWhenFreed) {
  StandinCase on;
  constexpr std::size_t kBytes = (20 << 20) + 12345;  // more than one piece of poison
  auto* x = on.device<std::uint8_t>(kBytes);
  EXPECT_TRUE(is_poison(on.get(x, kBytes).data(), kBytes));
  void* memory = nullptr;
  EXPECT_CUDA(cudaMalloc(&memory, kBytes));
  EXPECT_CUDA(cudaMemset(memory, 1, kBytes));
  EXPECT_CUDA(cudaFree(memory));
  EXPECT_TRUE(is_poison(memory, kBytes));  // only of the stand-in may it be read
  auto* const pinned = on.pinned<float>(10);
  EXPECT_TRUE(std::isnan(pinned[9]));
}

TEST(StandinKernels, AreRefusedWithTooMuchOfAnything) {
  StandinCase on;
  auto* const stream = on.stream();
  auto* const x = on.device<float>(10);
  const auto launch = [&](dim3 grid, dim3 block, std::size_t shared_bytes) {
    return StandinCase::launch(stream, grid, block, shared_bytes, scale_and_add, x, x, 1.0f, 1.0f,
                               0);
  };
  EXPECT_CUDA(launch(dim3(1), dim3(1024), 48 << 10));
  EXPECT_EQ(launch(dim3(1), dim3(1025), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(32, 33), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), dim3(1), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(0), dim3(1), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(1), (48 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_CUDA(
      cudaFuncSetAttribute(scale_and_add, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
  EXPECT_CUDA(launch(dim3(1), dim3(1), 64 << 10));
  EXPECT_EQ(cudaFuncSetAttribute(scale_and_add, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (64 << 10) + 1),
            cudaErrorInvalidValue);
  EXPECT_CUDA(cudaFuncSetAttribute(scale_and_add, cudaFuncAttributeMaxDynamicSharedMemorySize, 0));
}

TEST(StandinSettings, FailTheCallTheyName) {
  StandinCase on({.fail_call = 2});
  void* x = nullptr;
  EXPECT_CUDA(cudaMalloc(&x, 10));
  EXPECT_EQ(cudaMemset(x, 0, 10), cudaErrorUnknown);
  EXPECT_EQ(cuda_standin::failed_call(), "cudaMemsetAsync");
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorUnknown);
  EXPECT_CUDA(cudaMemset(x, 0, 10));
  EXPECT_CUDA(cudaFree(x));
  EXPECT_EQ(cuda_standin::calls(), 4);
}

TEST(StandinSettings, CanBeWithoutAGpu) {
  for (const auto error : {cudaErrorInsufficientDriver, cudaErrorNoDevice}) {
    StandinCase on({.no_device_error = error});
    int count = 5;
    EXPECT_EQ(cudaGetDeviceCount(&count), error);
    EXPECT_EQ(count, 0);
    void* x = nullptr;
    EXPECT_EQ(cudaMalloc(&x, 10), error);
  }
}

TEST(StandinSettings, RefuseToChangeWhileSomethingIsThere) {
  {
    StandinCase on;
    on.stream();
    EXPECT_THROW(cuda_standin::reset({}), std::logic_error);
  }
  {
    StandinCase on;
    on.event();
    EXPECT_THROW(cuda_standin::reset({}), std::logic_error);
  }
  {
    StandinCase on;
    on.device<int>(1);
    EXPECT_THROW(cuda_standin::reset({}), std::logic_error);
  }
}

TEST(StandinSettings, GiveEachDeviceItsOwnMemory) {
  StandinCase on({.devices = 2, .memory_bytes = 1000});
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  on.device<char>(1000);
  EXPECT_CUDA(cudaSetDevice(1));
  on.device<char>(1000);
  void* x = nullptr;
  EXPECT_EQ(cudaMalloc(&x, 1), cudaErrorMemoryAllocation);
  cudaDeviceProp properties{};
  EXPECT_CUDA(cudaGetDeviceProperties(&properties, 1));
  EXPECT_EQ(properties.totalGlobalMem, 1000u);
}

/// What a step of a pipeline may leave out.
enum class Race { none, read_too_early, overwritten_too_early, staging_used_again, read_by_host };

/// Rounds of: the host writes a staging buffer, one stream copies it to the device, another one
/// computes and copies back. How many came out wrong.
int wrong_rounds(std::uint64_t seed, Race race) {
  StandinCase on({.adversary_seed = seed});
  constexpr int kCount = 8;
  auto* const copies = on.stream();
  auto* const compute = on.stream();
  auto* const copied = on.event();
  auto* const computed = on.event();
  auto* const staging = on.pinned<float>(kCount);
  auto* const results = on.pinned<float>(kCount * 8);
  auto* const x = on.device<float>(kCount);
  auto* const y = on.device<float>(kCount);
  for (int round = 0; round < 8; ++round) {
    if (race != Race::staging_used_again) {
      EXPECT_CUDA(cudaEventSynchronize(copied));
    }
    std::fill_n(staging, kCount, static_cast<float>(round));
    if (race != Race::overwritten_too_early) {
      EXPECT_CUDA(cudaStreamWaitEvent(copies, computed));
    }
    EXPECT_CUDA(cudaMemcpyAsync(x, staging, kCount * 4, cudaMemcpyHostToDevice, copies));
    EXPECT_CUDA(cudaEventRecord(copied, copies));
    if (race != Race::read_too_early) {
      EXPECT_CUDA(cudaStreamWaitEvent(compute, copied));
    }
    EXPECT_CUDA(scale_and_add_on(compute, x, y, 2.0f, 1.0f, kCount));
    EXPECT_CUDA(cudaEventRecord(computed, compute));
    EXPECT_CUDA(
        cudaMemcpyAsync(results + round * kCount, y, kCount * 4, cudaMemcpyDeviceToHost, compute));
  }
  if (race != Race::read_by_host) {
    EXPECT_CUDA(cudaStreamSynchronize(compute));
  }
  int wrong = 0;
  for (int i = 0; i < 8 * kCount; ++i) {
    wrong += results[i] == 2.0f * static_cast<float>(i / kCount) + 1.0f ? 0 : 1;
  }
  return wrong;
}

TEST(StandinAdversary, FindsNothingWhereEventsOrderEverything) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    ASSERT_EQ(wrong_rounds(seed, Race::none), 0) << seed;
  }
}

TEST(StandinAdversary, FindsEveryPlantedRaceWithMostSeeds) {
  for (const auto race : {Race::read_too_early, Race::overwritten_too_early,
                          Race::staging_used_again, Race::read_by_host}) {
    int found = 0;
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      found += wrong_rounds(seed, race) > 0 ? 1 : 0;
    }
    EXPECT_GE(found, 35) << "race " << static_cast<int>(race);
  }
}

TEST(StandinOrderLog, HasRecordsAndWaits) {
  StandinCase on;
  auto* const first = on.stream();
  auto* const second = on.stream();
  auto* const event = on.event();
  cuda_standin::log_order(true);
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA(cudaStreamWaitEvent(second, event));
  cuda_standin::log_order(false);
  EXPECT_CUDA(cudaEventRecord(event, first));
  const auto log = cuda_standin::order_log();
  ASSERT_EQ(log.size(), 3u);
  EXPECT_EQ(log[1].kind, cuda_standin::OrderEvent::Kind::record);
  EXPECT_EQ(log[1].generation, 2);
  EXPECT_EQ(log[1].stream, log[0].stream);
  EXPECT_EQ(log[2].kind, cuda_standin::OrderEvent::Kind::wait);
  EXPECT_EQ(log[2].generation, 2);
  EXPECT_EQ(log[2].stream, log[0].stream + 1);
}

}  // namespace
}  // namespace stagecoach::test
