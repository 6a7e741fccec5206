// SPDX-License-Identifier: Apache-2.0
// Events: places in a stream that other streams and the host can wait for.
#include <utility>

#include "state.hpp"

namespace switchback_cuda_emu {

namespace {

bool exists(cudaEvent_t event) {
  return state().events.count(event) != 0;
}

cudaError_t record(cudaEvent_t event, cudaStream_t handle) {
  const cudaStream_t stream = resolve(handle);
  if (stream == nullptr || !exists(event) || event->device != stream->device->id)
    return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = check_legacy(stream)) return error;
  if (stream->capture != nullptr) {
    if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    event->capture = stream->capture;
    event->capture_after = stream->capture_after;
    event->recorded = nullptr;
    return cudaSuccess;
  }
  event->capture = nullptr;
  auto time = std::make_shared<std::chrono::steady_clock::time_point>();
  event->time = time;
  return enqueue(
      stream,
      [time] {
        *time = std::chrono::steady_clock::now();
        return cudaSuccess;
      },
      nullptr, &event->recorded);
}

cudaError_t wait_for(cudaStream_t handle, cudaEvent_t event) {
  const cudaStream_t stream = resolve(handle);
  if (stream == nullptr || !exists(event)) return cudaErrorInvalidResourceHandle;
  if (event->capture != nullptr) {
    const CapturePtr capture = event->capture;
    if (capture->ended) return cudaErrorCapturedEvent;
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (stream->capture == nullptr) {
      // The stream that waits for a captured event joins the capture.
      if (stream->is_legacy()) {
        invalidate(capture);
        return cudaErrorStreamCaptureImplicit;
      }
      stream->capture = capture;
      stream->capture_after.clear();
      capture->streams.push_back(stream);
    } else if (stream->capture != capture) {
      invalidate(capture);
      invalidate(stream->capture);
      return cudaErrorStreamCaptureMerge;
    }
    for (const std::size_t operation : event->capture_after) {
      auto& after = stream->capture_after;
      bool known = false;
      for (const std::size_t other : after)
        known = known || other == operation;
      if (!known) after.push_back(operation);
    }
    return cudaSuccess;
  }
  if (stream->capture != nullptr) {
    if (event->recorded == nullptr) return cudaSuccess;
    // Captured work cannot wait for work that is not captured.
    invalidate(stream->capture);
    return cudaErrorStreamCaptureIsolation;
  }
  if (const cudaError_t error = check_legacy(stream)) return error;
  if (event->recorded == nullptr) return cudaSuccess;
  return enqueue(
      stream, [] { return cudaSuccess; }, event->recorded);
}

}  // namespace

namespace names {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreate", Safety::always, [&] {
    if (event == nullptr || (flags & ~cudaEventDisableTiming) != 0) return cudaErrorInvalidValue;
    *event = new CUevent_st;
    (*event)->device = current_device();
    (*event)->flags = flags;
    state().events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", Safety::always, [&] {
    if (state().events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", Safety::always, [&] { return record(event, stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call("cudaStreamWaitEvent", Safety::always, [&] {
    if (flags != cudaEventWaitDefault) return cudaErrorNotSupported;
    return wait_for(stream, event);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", Safety::unsafe_in_capture, [&] {
    if (!exists(event)) return cudaErrorInvalidResourceHandle;
    if (event->capture != nullptr) {
      invalidate(event->capture);
      return cudaErrorCapturedEvent;
    }
    if (event->recorded != nullptr) drain({event->recorded});
    return state().devices[event->device].sticky;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call("cudaEventElapsedTime", Safety::always, [&] {
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    if (!exists(start) || !exists(end)) return cudaErrorInvalidResourceHandle;
    for (const cudaEvent_t event : {start, end}) {
      if (event->capture != nullptr) return cudaErrorCapturedEvent;
      if (event->recorded == nullptr || (event->flags & cudaEventDisableTiming) != 0)
        return cudaErrorInvalidResourceHandle;
    }
    if (!start->recorded->done || !end->recorded->done) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
    return cudaSuccess;
  });
}

}  // namespace names
}  // namespace switchback_cuda_emu
