// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "state.hpp"

namespace switchback_cuda_emu {

namespace {
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

bool sticky(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure ||
         error == cudaErrorMisalignedAddress;
}
}  // namespace

State& state() {
  // The state is never destroyed: static destructors of tests may still call the API.
  static auto* const the_state = [] {
    auto* fresh = new State;
    fresh->devices[1].id = 1;
    return fresh;
  }();
  return *the_state;
}

std::recursive_mutex& lock() {
  static auto* const the_lock = new std::recursive_mutex;
  return *the_lock;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

bool valid_device(int device) {
  return device >= 0 && device < state().options.device_count;
}

void set_fault(std::string text) {
  if (state().fault.empty()) state().fault = std::move(text);
}

cudaError_t injected(const char* name) {
  State& s = state();
  ++s.calls[name];
  Options& o = s.options;
  if (o.fail_call_after < 0 || (!o.fail_call_name.empty() && o.fail_call_name != name))
    return cudaSuccess;
  if (o.fail_call_after-- > 0) return cudaSuccess;
  return o.fail_call_error;
}

cudaError_t call_without_device(const char* name, const std::function<cudaError_t()>& body) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = injected(name)) return remember(error);
  return remember(body());
}

cudaError_t call(const char* name, Safety safety, const std::function<cudaError_t()>& body) {
  return call_without_context(name, [&]() -> cudaError_t {
    state().devices[current_device()].has_context = true;
    if (safety == Safety::unsafe_in_capture)
      if (const cudaError_t error = check_unsafe()) return error;
    return body();
  });
}

cudaError_t call_without_context(const char* name, const std::function<cudaError_t()>& body) {
  return call_without_device(name, [&]() -> cudaError_t {
    State& s = state();
    if (s.options.driver_version / 1000 < s.options.runtime_version / 1000)
      return cudaErrorInsufficientDriver;
    if (s.options.device_count < 1) return cudaErrorNoDevice;
    if (!valid_device(current_device())) current_device() = 0;
    if (const cudaError_t error = s.devices[current_device()].sticky) return error;
    return body();
  });
}

Options& options() {
  return state().options;
}

std::string last_fault() {
  const std::lock_guard guard(lock());
  return state().fault;
}

std::size_t calls(const std::string& function) {
  const std::lock_guard guard(lock());
  const auto found = state().calls.find(function);
  return found == state().calls.end() ? 0 : found->second;
}

std::vector<LaunchRecord> launches() {
  const std::lock_guard guard(lock());
  return state().launches;
}

namespace names {

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  // An error that destroyed the context cannot be cleared.
  if (!sticky(error)) last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  const std::lock_guard guard(lock());
  const State& s = state();
  if (!sticky(last_error)) return last_error;
  // reset() clears a device's fault; then this thread forgets it too.
  for (const Device& device : s.devices)
    if (device.sticky == last_error) return last_error;
  last_error = cudaSuccess;
  return last_error;
}

namespace {

struct ErrorWords {
  const char* name;
  const char* text;
};

ErrorWords words_of(cudaError_t error) {
  switch (error) {
#define SWITCHBACK_ERROR(code, text) \
  case code:                         \
    return {#code, text};
    SWITCHBACK_ERROR(cudaSuccess, "no error")
    SWITCHBACK_ERROR(cudaErrorInvalidValue, "invalid argument")
    SWITCHBACK_ERROR(cudaErrorMemoryAllocation, "out of memory")
    SWITCHBACK_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument")
    SWITCHBACK_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument")
    SWITCHBACK_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")
    SWITCHBACK_ERROR(cudaErrorInsufficientDriver,
                     "CUDA driver version is insufficient for CUDA runtime version")
    SWITCHBACK_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function")
    SWITCHBACK_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected")
    SWITCHBACK_ERROR(cudaErrorInvalidDevice, "invalid device ordinal")
    SWITCHBACK_ERROR(cudaErrorNoKernelImageForDevice,
                     "no kernel image is available for execution on the device")
    SWITCHBACK_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle")
    SWITCHBACK_ERROR(cudaErrorIllegalState,
                     "the operation cannot be performed in the present state")
    SWITCHBACK_ERROR(cudaErrorNotReady, "device not ready")
    SWITCHBACK_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered")
    SWITCHBACK_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch")
    SWITCHBACK_ERROR(cudaErrorMisalignedAddress, "misaligned address")
    SWITCHBACK_ERROR(cudaErrorLaunchFailure, "unspecified launch failure")
    SWITCHBACK_ERROR(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch")
    SWITCHBACK_ERROR(cudaErrorNotSupported, "operation not supported")
    SWITCHBACK_ERROR(cudaErrorStreamCaptureUnsupported,
                     "operation not permitted when stream is capturing")
    SWITCHBACK_ERROR(cudaErrorStreamCaptureInvalidated,
                     "operation failed due to a previous error during capture")
    SWITCHBACK_ERROR(cudaErrorStreamCaptureMerge,
                     "operation would result in a merge of separate capture sequences")
    SWITCHBACK_ERROR(cudaErrorStreamCaptureUnmatched,
                     "capture was not ended in the same stream as it began")
    SWITCHBACK_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")
    SWITCHBACK_ERROR(cudaErrorStreamCaptureIsolation,
                     "dependency created on uncaptured work in another stream")
    SWITCHBACK_ERROR(cudaErrorStreamCaptureImplicit,
                     "operation would make the legacy stream depend on a capturing blocking stream")
    SWITCHBACK_ERROR(cudaErrorCapturedEvent,
                     "operation not permitted on an event last recorded in a capturing stream")
    SWITCHBACK_ERROR(cudaErrorStreamCaptureWrongThread,
                     "attempt to terminate a thread-local capture sequence from another thread")
    SWITCHBACK_ERROR(cudaErrorUnknown, "unknown error")
#undef SWITCHBACK_ERROR
  }
  return {"unrecognized error code", "unrecognized error code"};
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  return words_of(error).name;
}

const char* cudaGetErrorString(cudaError_t error) {
  return words_of(error).text;
}

}  // namespace names
}  // namespace switchback_cuda_emu
