#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>

#include "support/cuda_standin/calls.hpp"
#include "support/cuda_standin/engine.hpp"
#include "support/cuda_standin/memory.hpp"

namespace cuda_standin {
namespace {

// A variable that is not what it should be must not pass for a default.
template <typename T, typename Parse>
void from_environment(const char* name, T& value, const Parse& parse) {
  const char* const text = std::getenv(name);
  if (text == nullptr) {
    return;
  }
  std::size_t used = 0;
  value = static_cast<T>(parse(std::string(text), &used));
  if (text[used] != '\0') {
    throw std::invalid_argument(std::string(name) + " is not a number: " + text);
  }
}

Settings read_environment() {
  const auto integer = [](const std::string& text, std::size_t* used) {
    return std::stoull(text, used);
  };
  const auto real = [](const std::string& text, std::size_t* used) {
    return std::stod(text, used);
  };
  Settings settings;
  from_environment("STAGECOACH_STANDIN_DEVICES", settings.devices, integer);
  from_environment("STAGECOACH_STANDIN_MEMORY", settings.memory_bytes, integer);
  from_environment("STAGECOACH_STANDIN_PCIE", settings.pcie_bytes_per_second, real);
  from_environment("STAGECOACH_STANDIN_PINNABLE", settings.pinnable_bytes, integer);
  from_environment("STAGECOACH_STANDIN_ADVERSARY", settings.adversary_seed, integer);
  from_environment("STAGECOACH_STANDIN_FAIL_CALL", settings.fail_call, integer);
  from_environment("STAGECOACH_STANDIN_NO_DEVICE", settings.no_device_error, integer);
  return settings;
}

struct State {
  std::mutex mutex;
  Settings settings = read_environment();
  std::int64_t calls = 0;
  std::string failed_call;
};
State& state() {
  static State one;
  return one;
}

thread_local cudaError_t t_last_error = cudaSuccess;
thread_local int t_device = 0;

}  // namespace

Settings settings() {
  const std::lock_guard lock(state().mutex);
  return state().settings;
}

void reset(const Settings& settings) {
  Engine::get().restart();
  Memory::get().restart();
  const std::lock_guard lock(state().mutex);
  state().settings = settings;
  state().calls = 0;
  state().failed_call.clear();
  t_last_error = cudaSuccess;
  t_device = 0;
}

std::int64_t calls() {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}

std::string failed_call() {
  const std::lock_guard lock(state().mutex);
  return state().failed_call;
}

cudaError_t give(cudaError_t error) {
  if (error != cudaSuccess) {
    t_last_error = error;
  }
  return error;
}

cudaError_t begin_call(const char* name, cudaError_t failing_with) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  ++all.calls;
  if (all.settings.no_device_error != 0) {
    return give(static_cast<cudaError_t>(all.settings.no_device_error));
  }
  if (all.calls == all.settings.fail_call) {
    all.failed_call = name;
    return give(failing_with);
  }
  return cudaSuccess;
}

int current_device() { return t_device; }

}  // namespace cuda_standin

using cuda_standin::begin_call;
using cuda_standin::give;

cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_standin::t_last_error;
  cuda_standin::t_last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() { return cuda_standin::t_last_error; }

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = begin_call("cudaSetDevice"); error != cudaSuccess) {
    return error;
  }
  if (device < 0 || device >= cuda_standin::settings().devices) {
    return give(cudaErrorInvalidDevice);
  }
  cuda_standin::t_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = cuda_standin::t_device;
  return begin_call("cudaGetDevice");
}
