// SPDX-License-Identifier: Apache-2.0
// The emulated machine: its devices, their properties, and the versions of driver and runtime.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "state.hpp"

namespace switchback_cuda_emu {

namespace {

constexpr int l2_bytes = 4 << 20;

// The most shared memory that a block can have if the kernel opts in, by compute capability; in
// bytes.
int shared_optin() {
  const int cc = state().options.compute_capability;
  if (cc >= 90 && cc < 120) return 227 << 10;
  if (cc == 80 || cc == 87) return 163 << 10;
  if (cc >= 86) return 99 << 10;
  if (cc >= 75) return 64 << 10;
  return cc >= 70 ? 96 << 10 : 48 << 10;
}

int threads_per_multiprocessor() {
  const int cc = state().options.compute_capability;
  if (cc == 75) return 1024;
  return cc == 86 || cc == 87 || cc == 89 || cc >= 120 ? 1536 : 2048;
}

int attribute_value(cudaDeviceAttr attribute, bool& known) {
  const Options& o = state().options;
  known = true;
  switch (attribute) {
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
      return 1000000;
    case cudaDevAttrMultiProcessorCount:
      return o.multiprocessor_count;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return threads_per_multiprocessor();
    case cudaDevAttrCooperativeLaunch:
      return o.cooperative_launches ? 1 : 0;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return shared_optin() + 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return shared_optin();
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return 32;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return 1024;
    case cudaDevAttrMemoryPoolsSupported:
      return o.memory_pools ? 1 : 0;
  }
  known = false;
  return 0;
}

}  // namespace

bool device_attribute(cudaDeviceAttr attribute, int* value) {
  bool known = false;
  *value = attribute_value(attribute, known);
  return known;
}

bool has_context(int device) {
  const std::lock_guard guard(lock());
  return valid_device(device) && state().devices[device].has_context;
}

namespace {

// Functions of the driver API. They return a CUresult: 0 is success. The driver's current context
// determines the runtime's current device.
constexpr int driver_success = 0;
constexpr int driver_invalid_context = 201;
thread_local std::vector<int> pushed_over;  // the current device before each push, oldest first

int primary_context_state(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = has_context(device) ? 1 : 0;
  return driver_success;
}
int retain_primary_context(void** context, int device) {
  const std::lock_guard guard(lock());
  *context = &state().devices[device];
  state().devices[device].has_context = true;
  return driver_success;
}
int push_context(void* context) {
  const std::lock_guard guard(lock());
  auto* device = static_cast<Device*>(context);
  pushed_over.push_back(current_device());
  current_device() = device->id;
  device->has_context = true;
  return driver_success;
}
int pop_context(void** context) {
  if (pushed_over.empty()) return driver_invalid_context;
  const std::lock_guard guard(lock());
  *context = &state().devices[current_device()];
  current_device() = pushed_over.back();
  pushed_over.pop_back();
  return driver_success;
}

}  // namespace

namespace names {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result) {
  return call_without_context("cudaGetDriverEntryPointByVersion", [&] {
    if (symbol == nullptr || function == nullptr || result == nullptr || flags != cudaEnableDefault)
      return cudaErrorInvalidValue;
    const std::string_view name = symbol;
    void* found = nullptr;
    if (name == "cuDevicePrimaryCtxGetState")
      found = reinterpret_cast<void*>(&primary_context_state);
    else if (name == "cuDevicePrimaryCtxRetain")
      found = reinterpret_cast<void*>(&retain_primary_context);
    else if (name == "cuCtxPushCurrent")
      found = reinterpret_cast<void*>(&push_context);
    else if (name == "cuCtxPopCurrent")
      found = reinterpret_cast<void*>(&pop_context);
    *function = found;
    *result = found != nullptr && static_cast<int>(version) <= options().driver_version
                  ? cudaDriverEntryPointSuccess
                  : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return call_without_device("cudaDriverGetVersion", [&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = options().driver_version;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return call_without_device("cudaRuntimeGetVersion", [&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = options().runtime_version;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call_without_device("cudaGetDeviceCount", [&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = 0;
    const Options& o = options();
    // Without a driver, driver_version is 0, and the error is that the driver is too old.
    if (o.driver_version / 1000 < o.runtime_version / 1000) return cudaErrorInsufficientDriver;
    if (o.device_count < 1) return cudaErrorNoDevice;
    *count = o.device_count;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call_without_device("cudaSetDevice", [&] {
    const Options& o = options();
    if (o.driver_version / 1000 < o.runtime_version / 1000) return cudaErrorInsufficientDriver;
    if (o.device_count < 1) return cudaErrorNoDevice;
    if (!valid_device(device)) return cudaErrorInvalidDevice;
    current_device() = device;
    state().devices[device].has_context = true;
    return state().devices[device].sticky;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call_without_context("cudaGetDevice", [&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call_without_context("cudaDeviceGetAttribute", [&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!valid_device(device)) return cudaErrorInvalidDevice;
    int result = 0;
    if (!device_attribute(attribute, &result)) return cudaErrorInvalidValue;
    *value = result;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call_without_context("cudaGetDeviceProperties", [&] {
    if (properties == nullptr) return cudaErrorInvalidValue;
    if (!valid_device(device)) return cudaErrorInvalidDevice;
    cudaDeviceProp p{};
    std::snprintf(p.name, sizeof p.name, "Emulated sm_%d", options().compute_capability);
    for (int i = 0; i < 16; ++i)
      p.uuid.bytes[i] = static_cast<char>(device * 16 + i);
    p.totalGlobalMem = options().total_memory_bytes;
    p.major = options().compute_capability / 10;
    p.minor = options().compute_capability % 10;
    p.multiProcessorCount = options().multiprocessor_count;
    p.pciBusID = device + 1;
    p.pciDeviceID = 0;
    p.pciDomainID = 0;
    p.l2CacheSize = l2_bytes;
    p.sharedMemPerBlockOptin = static_cast<std::size_t>(shared_optin());
    *properties = p;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return call("cudaMemGetInfo", Safety::always, [&] {
    if (free_bytes == nullptr || total_bytes == nullptr) return cudaErrorInvalidValue;
    const std::size_t total = options().total_memory_bytes;
    *total_bytes = total;
    *free_bytes = total - std::min(total, state().devices[current_device()].used_bytes);
    return cudaSuccess;
  });
}

}  // namespace names
}  // namespace switchback_cuda_emu
