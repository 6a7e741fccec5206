// SPDX-License-Identifier: Apache-2.0
// Allocations of device and pinned memory: each is a heap block of exactly its size, so that
// AddressSanitizer knows its ends.
#include <cstdlib>
#include <cstring>

#include "state.hpp"

#ifdef SWITCHBACK_CUDA_EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace switchback_cuda_emu {

namespace {

constexpr std::size_t alignment = 256;
// New memory holds these bytes, NaN as floats and -1 as codes, so that a read before a write is
// noticed.
constexpr int garbage = 0xff;

bool of_device(const Allocation& a) {
  return a.type == cudaMemoryTypeDevice;
}

void allow(const Allocation& a, bool allowed) {
#ifdef SWITCHBACK_CUDA_EMU_ASAN
  if (allowed)
    __asan_unpoison_memory_region(a.base, a.bytes);
  else
    __asan_poison_memory_region(a.base, a.bytes);
#else
  (void)a;
  (void)allowed;
#endif
}

// Whether the code that runs now may access this allocation.
bool allowed_now(const Allocation& a) {
  const State& s = state();
  if (!of_device(a)) return true;
  if (a.state == MemoryState::pending) return false;
  return s.on_device && a.device == s.touchable_device;
}

}  // namespace

void enter_device(int device) {
#ifdef SWITCHBACK_CUDA_EMU_ASAN
  State& s = state();
  if (s.on_device == (device >= 0) && s.touchable_device == device) return;
  s.on_device = device >= 0;
  s.touchable_device = device;
  for (const auto& [address, a] : s.memory)
    if (of_device(a)) allow(a, allowed_now(a));
#else
  (void)device;
#endif
}

Allocation* find_allocation(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto& memory = state().memory;
  auto after = memory.upper_bound(address);
  if (after == memory.begin()) return nullptr;
  Allocation& a = std::prev(after)->second;
  return address - reinterpret_cast<std::uintptr_t>(a.base) < a.bytes ? &a : nullptr;
}

bool device_accessible(const void* pointer, std::size_t bytes, int device) {
  if (bytes == 0) return true;
  const Allocation* a = find_allocation(pointer);
  if (a == nullptr) return false;
  if (of_device(*a) && (a->device != device || a->state != MemoryState::live)) return false;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(pointer) - a->base);
  return bytes <= a->bytes - offset;
}

cudaError_t allocate(void** pointer, std::size_t bytes, cudaMemoryType type, MemoryState at_first) {
  State& s = state();
  if (pointer == nullptr) return cudaErrorInvalidValue;
  if (bytes == 0) {
    *pointer = nullptr;
    return cudaSuccess;
  }
  Device& device = s.devices[current_device()];
  const bool on_device = type != cudaMemoryTypeHost;
  Options& o = s.options;
  if (o.fail_allocation_after == 0) return cudaErrorMemoryAllocation;
  const std::size_t used = on_device ? device.used_bytes : 0;
  if (used > o.total_memory_bytes || bytes > o.total_memory_bytes - used)
    return cudaErrorMemoryAllocation;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) return cudaErrorMemoryAllocation;
  if (o.fail_allocation_after > 0) --o.fail_allocation_after;
  std::memset(memory, garbage, bytes);
  Allocation a;
  a.base = static_cast<char*>(memory);
  a.bytes = bytes;
  a.type = type;
  a.device = device.id;
  a.state = at_first;
  if (on_device) device.used_bytes += bytes;
  if (!allowed_now(a)) allow(a, false);
  s.memory.emplace(reinterpret_cast<std::uintptr_t>(memory), a);
  *pointer = memory;
  return cudaSuccess;
}

void release_allocation(void* base) {
  State& s = state();
  const auto found = s.memory.find(reinterpret_cast<std::uintptr_t>(base));
  if (found == s.memory.end()) return;
  const Allocation a = found->second;
  s.memory.erase(found);
  if (a.type != cudaMemoryTypeHost) s.devices[a.device].used_bytes -= a.bytes;
  allow(a, true);
  // The memory is overwritten, so that a use after free does not find the old data, even without
  // AddressSanitizer.
  std::memset(a.base, garbage, a.bytes);
  std::free(a.base);
}

void free_all_memory() {
  while (!state().memory.empty())
    release_allocation(state().memory.begin()->second.base);
}

namespace {

cudaError_t free_now(void* pointer, bool host) {
  if (pointer == nullptr) return cudaSuccess;
  Allocation* a = find_allocation(pointer);
  if (a == nullptr || a->base != pointer || a->free_called ||
      (a->type == cudaMemoryTypeHost) != host)
    return cudaErrorInvalidValue;
  // Waits for all work of the device before it frees, as cudaFree does.
  a->free_called = true;
  drain_all();
  release_allocation(pointer);
  return cudaSuccess;
}

cudaError_t malloc_async(void** pointer, std::size_t bytes, cudaStream_t handle) {
  const cudaStream_t stream = resolve(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  // The library never allocates in a capture, so memory of graphs is not emulated.
  if (!options().memory_pools || stream->capture != nullptr) return cudaErrorNotSupported;
  if (const cudaError_t error = check_legacy(stream)) return error;
  const int caller = current_device();
  current_device() = stream->device->id;
  const cudaError_t error = allocate(pointer, bytes, cudaMemoryTypeDevice, MemoryState::pending);
  current_device() = caller;
  if (error != cudaSuccess || *pointer == nullptr) return error;
  return enqueue(stream, [base = *pointer] {
    Allocation* a = find_allocation(base);
    if (a == nullptr) return cudaSuccess;
    a->state = MemoryState::live;
    if (allowed_now(*a)) allow(*a, true);
    return cudaSuccess;
  });
}

}  // namespace

namespace names {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return call("cudaMalloc", Safety::unsafe_in_capture,
              [&] { return allocate(pointer, bytes, cudaMemoryTypeDevice, MemoryState::live); });
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return call("cudaMallocHost", Safety::unsafe_in_capture,
              [&] { return allocate(pointer, bytes, cudaMemoryTypeHost, MemoryState::live); });
}

cudaError_t cudaFree(void* pointer) {
  return call("cudaFree", Safety::unsafe_in_capture, [&] { return free_now(pointer, false); });
}

cudaError_t cudaFreeHost(void* pointer) {
  return call("cudaFreeHost", Safety::unsafe_in_capture, [&] { return free_now(pointer, true); });
}

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  return call("cudaMallocAsync", Safety::always,
              [&] { return malloc_async(pointer, bytes, stream); });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
  return call("cudaFreeAsync", Safety::always, [&] {
    const cudaStream_t stream = resolve(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (pointer == nullptr) return cudaSuccess;
    Allocation* a = find_allocation(pointer);
    if (a == nullptr || a->base != pointer || a->free_called || a->type != cudaMemoryTypeDevice)
      return cudaErrorInvalidValue;
    if (const cudaError_t error = check_legacy(stream)) return error;
    a->free_called = true;
    return enqueue(stream, [pointer] {
      release_allocation(pointer);
      return cudaSuccess;
    });
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call("cudaPointerGetAttributes", Safety::always, [&] {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    cudaPointerAttributes result{};
    const Allocation* a = find_allocation(pointer);
    if (a == nullptr) {
      result.type = cudaMemoryTypeUnregistered;
      result.device = -2;  // the value of cudaInvalidDeviceId
    } else {
      result.type = a->type;
      result.device = a->device;
      result.devicePointer = const_cast<void*>(pointer);
      if (a->type != cudaMemoryTypeDevice) result.hostPointer = const_cast<void*>(pointer);
    }
    *attributes = result;
    return cudaSuccess;
  });
}

}  // namespace names
}  // namespace switchback_cuda_emu
