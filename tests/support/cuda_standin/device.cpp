#include <cstdio>
#include <cstring>

#include "cuda_runtime_api.h"
#include "support/cuda_standin/calls.hpp"

using cuda_standin::begin_call;
using cuda_standin::give;
using cuda_standin::settings;

namespace {

constexpr int kVersion = 13000;

// The smallest GPU that Stagecoach supports, a T4, but with few multiprocessors.
cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  std::snprintf(properties.name, sizeof(properties.name), "CPU stand-in %d", device);
  properties.uuid.bytes[0] = static_cast<char>(device + 1);
  properties.totalGlobalMem = settings().memory_bytes;
  properties.sharedMemPerBlock = 48 << 10;
  properties.sharedMemPerBlockOptin = 64 << 10;
  properties.warpSize = 32;
  properties.maxThreadsPerBlock = 1024;
  properties.major = 7;
  properties.minor = 5;
  properties.multiProcessorCount = 4;
  properties.asyncEngineCount = 2;
  properties.pciBusID = device + 1;
  return properties;
}

bool exists(int device) { return device >= 0 && device < settings().devices; }

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const auto error = begin_call("cudaGetDeviceCount"); error != cudaSuccess) {
    return error;
  }
  *count = settings().devices;
  return *count > 0 ? cudaSuccess : give(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const auto error = begin_call("cudaGetDeviceProperties"); error != cudaSuccess) {
    return error;
  }
  if (!exists(device)) {
    return give(cudaErrorInvalidDevice);
  }
  *properties = properties_of(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const auto error = begin_call("cudaDeviceGetAttribute"); error != cudaSuccess) {
    return error;
  }
  if (!exists(device)) {
    return give(cudaErrorInvalidDevice);
  }
  const cudaDeviceProp properties = properties_of(device);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrAsyncEngineCount:
      *value = properties.asyncEngineCount;
      return cudaSuccess;
    case cudaDevAttrPciBusId:
      *value = properties.pciBusID;
      return cudaSuccess;
    case cudaDevAttrPciDeviceId:
      *value = properties.pciDeviceID;
      return cudaSuccess;
    case cudaDevAttrPciDomainId:
      *value = properties.pciDomainID;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrPageableMemoryAccess:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrHostRegisterSupported:
      *value = 1;
      return cudaSuccess;
  }
  return give(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (const auto error = begin_call("cudaDeviceGetPCIBusId"); error != cudaSuccess) {
    return error;
  }
  if (!exists(device)) {
    return give(cudaErrorInvalidDevice);
  }
  const cudaDeviceProp properties = properties_of(device);
  std::snprintf(text, static_cast<std::size_t>(size), "%08x:%02x:%02x.0",
                static_cast<unsigned>(properties.pciDomainID),
                static_cast<unsigned>(properties.pciBusID),
                static_cast<unsigned>(properties.pciDeviceID));
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return begin_call("cudaRuntimeGetVersion");
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return begin_call("cudaDriverGetVersion");
}

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorOperatingSystem, "cudaErrorOperatingSystem",
     "OS call failed or operation not supported on this OS"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) {
      return known.text;
    }
  }
  return "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) {
      return known.name;
    }
  }
  return "unrecognized error code";
}
