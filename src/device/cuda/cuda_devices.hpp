#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stagecoach::device {

/// One GPU that this process sees.
struct CudaDeviceInfo {
  int index = 0;
  std::string name{};
  std::size_t memory_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
  std::string pci_bus_id{};  ///< "0000:3b:00.0": which GPU of its host, whatever its index
};

/// How many GPUs this process can use. No driver, one that is too old, or no GPU: 0. Throws
/// CudaError on any other failure of the CUDA runtime. A build without CUDA returns 0.
int cuda_device_count();

/// All of them, by index.
std::vector<CudaDeviceInfo> cuda_devices();

/// What other processes leave of a GPU's memory now. Throws CudaError, also where there is no such
/// GPU; without CUDA a ConfigError.
std::size_t cuda_free_memory(int index);

/// For people: "CUDA 13.0, 2 GPUs", or why there is none and how to get one.
std::string cuda_status();

}  // namespace stagecoach::device
