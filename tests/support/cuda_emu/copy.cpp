// SPDX-License-Identifier: Apache-2.0
// Copies and fills of memory. With pageable host memory they are as synchronous as CUDA documents,
// but not more.
#include <cstring>
#include <vector>

#include "state.hpp"

namespace switchback_cuda_emu {

namespace {

// A two-dimensional part of memory: `height` rows of `width` bytes, `pitch` bytes apart.
struct Rows {
  char* base = nullptr;
  std::size_t pitch = 0, width = 0, height = 0;

  [[nodiscard]] bool empty() const { return width == 0 || height == 0; }
  [[nodiscard]] std::size_t extent() const { return empty() ? 0 : pitch * (height - 1) + width; }
};

Rows rows_at(const void* base, std::size_t pitch, std::size_t width, std::size_t height) {
  return {static_cast<char*>(const_cast<void*>(base)), pitch, width, height};
}

enum class Side { device, pinned, pageable };

// Finds the kind of memory that holds the rows. False if part of it is not allocated.
bool find_side(const Rows& rows, Side& side) {
  const Allocation* a = find_allocation(rows.base);
  if (a == nullptr) {
    side = Side::pageable;
    return rows.base != nullptr;
  }
  side = a->type == cudaMemoryTypeHost ? Side::pinned : Side::device;
  const auto offset = static_cast<std::size_t>(rows.base - a->base);
  return rows.extent() <= a->bytes - offset;
}

// Finds the device that owns the memory; -1 for the host. False if the memory is not allocated at
// this point of time.
bool device_of(const Rows& rows, int& device) {
  const Allocation* a = find_allocation(rows.base);
  device = a == nullptr || a->type != cudaMemoryTypeDevice ? -1 : a->device;
  return device < 0 || a->state == MemoryState::live;
}

cudaError_t run_copy(const Rows& to, const Rows& from, int stream_device) {
  int to_device = 0;
  int from_device = 0;
  if (!device_of(to, to_device) || !device_of(from, from_device)) {
    set_fault("a copy uses memory that is not allocated at this point of its stream");
    return cudaErrorIllegalAddress;
  }
  if (to_device >= 0 || from_device >= 0) enter_device(to_device >= 0 ? to_device : from_device);
  for (std::size_t r = 0; r < to.height; ++r)
    std::memmove(to.base + r * to.pitch, from.base + r * from.pitch, to.width);
  enter_device(stream_device);
  return cudaSuccess;
}

cudaError_t copy(Rows to, Rows from, cudaMemcpyKind kind, cudaStream_t handle, bool synchronous) {
  const cudaStream_t stream = resolve(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  if (to.pitch < to.width || from.pitch < from.width) return cudaErrorInvalidPitchValue;
  if (to.empty()) return cudaSuccess;
  Side to_side{};
  Side from_side{};
  if (!find_side(to, to_side) || !find_side(from, from_side)) return cudaErrorInvalidValue;
  if (kind != cudaMemcpyDefault) {
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (to_device != (to_side == Side::device) || from_device != (from_side == Side::device))
      return cudaErrorInvalidValue;
  }
  if (const cudaError_t error = check_legacy(stream)) return error;
  int to_owner = 0;
  int from_owner = 0;
  device_of(to, to_owner);
  device_of(from, from_owner);
  // The library never copies between devices, so that is not emulated.
  if (to_owner >= 0 && from_owner >= 0 && to_owner != from_owner) return cudaErrorNotSupported;
  const int device = stream->device->id;
  const bool captured = stream->capture != nullptr;

  if (from_side == Side::pageable && to_side == Side::device && !captured) {
    // A copy from pageable memory returns when the source has been staged, perhaps long before the
    // data arrive.
    if (synchronous) drain(stream_tail(stream));
    auto staged = std::make_shared<std::vector<char>>(from.width * from.height);
    for (std::size_t r = 0; r < from.height; ++r)
      std::memcpy(staged->data() + r * from.width, from.base + r * from.pitch, from.width);
    return enqueue(stream, [to, staged, device] {
      return run_copy(to, rows_at(staged->data(), to.width, to.width, to.height), device);
    });
  }
  const cudaError_t error =
      enqueue(stream, [to, from, device] { return run_copy(to, from, device); });
  if (error != cudaSuccess || captured) return error;
  const bool within_device = to_side == Side::device && from_side == Side::device;
  const bool waits =
      synchronous ? !within_device : to_side == Side::pageable || from_side == Side::pageable;
  if (!waits) return cudaSuccess;
  drain(stream_tail(stream));
  return stream->device->sticky;
}

cudaError_t fill(Rows to, int value, cudaStream_t handle) {
  const cudaStream_t stream = resolve(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (to.pitch < to.width) return cudaErrorInvalidPitchValue;
  if (to.empty()) return cudaSuccess;
  Side side{};
  if (!find_side(to, side) || side == Side::pageable) return cudaErrorInvalidValue;
  if (const cudaError_t error = check_legacy(stream)) return error;
  return enqueue(stream, [to, value, device = stream->device->id] {
    int of = 0;
    if (!device_of(to, of)) {
      set_fault("a fill uses memory that is not allocated at this point of its stream");
      return cudaErrorIllegalAddress;
    }
    if (of >= 0) enter_device(of);
    for (std::size_t r = 0; r < to.height; ++r)
      std::memset(to.base + r * to.pitch, value, to.width);
    enter_device(device);
    return cudaSuccess;
  });
}

}  // namespace

namespace names {

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", Safety::always, [&] {
    return copy(rows_at(to, bytes, bytes, 1), rows_at(from, bytes, bytes, 1), kind, nullptr, true);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call("cudaMemcpyAsync", Safety::always, [&] {
    return copy(rows_at(to, bytes, bytes, 1), rows_at(from, bytes, bytes, 1), kind, stream, false);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpy2DAsync", Safety::always, [&] {
    return copy(rows_at(to, to_pitch, width, height), rows_at(from, from_pitch, width, height),
                kind, stream, false);
  });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, std::size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", Safety::always,
              [&] { return fill(rows_at(pointer, bytes, bytes, 1), value, stream); });
}

}  // namespace names
}  // namespace switchback_cuda_emu
