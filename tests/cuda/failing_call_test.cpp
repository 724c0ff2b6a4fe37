#include <gmock/gmock.h>

#include <functional>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "cuda/pipeline.hpp"
#include "device/cuda/cuda_devices.hpp"
#include "support/cuda_standin/standin.hpp"

namespace stagecoach::test {
namespace {

// Calls whose failure has no one to be told, or that are answered: what they do not do is done
// otherwise, or was the last thing to do.
const std::set<std::string> kForgiven{"cudaSetDevice",    "cudaEventDestroy",   "cudaStreamDestroy",
                                      "cudaStreamQuery",  "cudaHostUnregister", "cudaHostRegister",
                                      "cudaGetLastError", "cudaFree",           "cublasDestroy"};

// How an error begins that says what was to be done rather than the call's name.
std::string beginning_for(const std::string& failed) {
  return failed == "cudaMalloc"           ? "cannot take "
         : failed == "cudaLaunchKernelEx" ? "CUDA could not "
         : failed.rfind("cublas", 0) == 0 ? "cuBLAS could not "
                                          : failed;
}

// An operation of each family with uploads, a product of the library's, and a result for the host.
// `results`: two, which live for as long as the case.
void run_operations(CudaCase& on, std::span<device::SampleResult> results) {
  constexpr std::int64_t kWidth = 32;
  std::vector<float> x(2 * kWidth, 0.0f);
  x[7] = 2;            // row 0
  x[kWidth + 20] = 3;  // row 1
  std::vector<Half> identity(kWidth * kWidth, to_half(0));
  for (std::int64_t i = 0; i < kWidth; ++i) {
    identity[static_cast<std::size_t>(i * (kWidth + 1))] = to_half(1);
  }
  const auto* const rows = on.put(x);
  auto* const gathered = on.take<float>(2 * kWidth);
  auto* const logits = on.take<float>(2 * kWidth);
  on->gather_rows(on.stream(), {.x = rows, .rows = {1, 0}, .out = gathered, .width = kWidth});
  on->linear(on.stream(), {.x = gathered,
                           .weight = on.put(identity),
                           .out = logits,
                           .rows = 2,
                           .in_features = kWidth,
                           .out_features = kWidth,
                           .out_stride = kWidth});
  on->sample(
      on.stream(),
      {.logits = logits, .vocab = kWidth, .specs = {{.row = 0}, {.row = 1}}, .results = results});
  on.stream().record().wait();
  EXPECT_EQ(results[0].token, 20);
  EXPECT_EQ(results[1].token, 7);
}

// Throws what a job would end with.
void run_job() {
  std::vector<device::SampleResult> results(2);
  int called = 0;
  CudaCase on(kSmallShape, kSmallMemory);
  const auto throw_cause = [&] {
    if (on.abort().raised()) {
      std::rethrow_exception(on.abort().cause());
    }
  };
  try {
    for (const bool pinned : {true, false}) {
      EXPECT_EQ(Pipeline(on, 3001, pinned).run(3, Fault::none), 0);
    }
    run_operations(on, results);
    on.stream().enqueue([&called] { ++called; });
    on.stream().record().wait();
    EXPECT_EQ(called, 1);
  } catch (const JobAborted&) {
    throw_cause();
    throw;
  }
  throw_cause();
}

// Any call may fail: the job ends with one error that names CUDA's call, and nothing hangs.
TEST(FailingCall, EndsTheJobWithOneClearError) {
  std::int64_t call = 0;
  std::string failed;
  do {
    cuda_standin::Settings settings;
    settings.fail_call = ++call;
    cuda_standin::reset(settings);
    std::optional<std::string> error;
    try {
      run_job();
    } catch (const CudaError& caught) {
      error = caught.what();
    } catch (const OutOfMemory& caught) {
      error = caught.what();
    } catch (const ConfigError& caught) {
      error = caught.what();
    }
    failed = cuda_standin::failed_call();
    if (error) {
      EXPECT_THAT(*error, testing::AnyOf(testing::HasSubstr(failed),
                                         testing::StartsWith(beginning_for(failed))))
          << "call " << call;
      EXPECT_FALSE(failed.empty()) << *error;
    } else {
      EXPECT_TRUE(failed.empty() || kForgiven.count(failed) == 1)
          << "call " << call << ": nobody was told of " << failed;
    }
  } while (!failed.empty());
  EXPECT_GT(call, 100);
  cuda_standin::reset({});
}

TEST(NoDevice, IsSaidProperly) {
  for (const int error : {35, 100}) {
    cuda_standin::Settings settings;
    settings.no_device_error = error;
    cuda_standin::reset(settings);
    AbortSignal abort;
    try {
      static_cast<void>(device::make_cuda_device({.index = 0, .memory_bytes = 1000}, abort));
      ADD_FAILURE() << "a device without a GPU";
    } catch (const ConfigError& caught) {
      EXPECT_THAT(caught.what(), testing::StartsWith("--device cuda: no usable GPU: "));
    }
    EXPECT_EQ(device::cuda_device_count(), 0);
    EXPECT_TRUE(device::cuda_devices().empty());
  }
  cuda_standin::reset({});
}

TEST(SeveralDevices, AreToldApart) {
  cuda_standin::Settings settings;
  settings.devices = 3;
  cuda_standin::reset(settings);
  {
    const auto devices = device::cuda_devices();
    ASSERT_EQ(devices.size(), 3u);
    EXPECT_NE(devices[0].pci_bus_id, devices[2].pci_bus_id);
    AbortSignal abort;
    const auto free_before = device::cuda_free_memory(0);
    const auto device =
        device::make_cuda_device({.index = 2, .memory_bytes = std::size_t{100} << 20}, abort);
    EXPECT_THAT(device->description(), testing::StartsWith("cuda:2, "));
    EXPECT_EQ(device::cuda_free_memory(0), free_before);
    EXPECT_LT(device::cuda_free_memory(2), device::cuda_free_memory(1));
  }
  cuda_standin::reset({});
}

}  // namespace
}  // namespace stagecoach::test
