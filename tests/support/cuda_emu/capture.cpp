// SPDX-License-Identifier: Apache-2.0
// Stream capture: records operations instead of queuing them, refuses the calls that a capture
// forbids, and replays graphs.
#include <algorithm>
#include <utility>

#include "block.hpp"
#include "state.hpp"

namespace switchback_cuda_emu {

namespace {
// Which operations the operations `last` depend on, including themselves.
std::vector<bool> ancestors(const GraphBody& body, std::vector<std::size_t> last) {
  std::vector<bool> found(body.operations.size(), false);
  while (!last.empty()) {
    const std::size_t operation = last.back();
    last.pop_back();
    if (found[operation]) continue;
    found[operation] = true;
    const auto& after = body.operations[operation].after;
    last.insert(last.end(), after.begin(), after.end());
  }
  return found;
}

// Runs the operations of a graph in some order that their dependencies allow.
cudaError_t replay(const GraphBody& body) {
  State& s = state();
  const std::size_t count = body.operations.size();
  std::vector<bool> done(count, false);
  for (std::size_t finished = 0; finished < count; ++finished) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < count; ++i) {
      const auto& after = body.operations[i].after;
      if (!done[i] &&
          std::all_of(after.begin(), after.end(), [&](std::size_t before) { return done[before]; }))
        ready.push_back(i);
    }
    const std::size_t at = s.options.schedule_seed == 0 ? 0 : next_random(s.random) % ready.size();
    const GraphOperation& operation = body.operations[ready[at]];
    done[ready[at]] = true;
    // A later kernel that may overlap with this one runs together with it, if it depends on no
    // other operation.
    const GraphOperation* next = nullptr;
    for (std::size_t i = 0; i < count && operation.overlap.kernel && next == nullptr; ++i)
      if (!done[i] && body.operations[i].overlap.run_both != nullptr &&
          body.operations[i].after == std::vector<std::size_t>{ready[at]}) {
        next = &body.operations[i];
        done[i] = true;
        ++finished;
      }
    const cudaError_t error =
        next != nullptr ? next->overlap.run_both(operation.run) : operation.run();
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

void invalidate(const CapturePtr& capture) {
  capture->invalid = true;
}

void leave_capture(Capture& capture) {
  capture.ended = true;
  for (const cudaStream_t stream : capture.streams) {
    stream->capture_after.clear();
    // This reference is dropped last, because it may be the only one that keeps the capture alive.
    stream->capture = nullptr;
  }
}

cudaError_t refuse_in_capture(cudaStream_t stream) {
  if (stream->capture == nullptr) return check_legacy(stream);
  if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  invalidate(stream->capture);
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_in_capture(const Device& device) {
  bool refused = false;
  for (const CapturePtr& capture : state().captures)
    if (capture->body->device == device.id) {
      invalidate(capture);
      refused = true;
    }
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t check_legacy(cudaStream_t stream) {
  if (!stream->is_legacy()) return cudaSuccess;
  bool refused = false;
  for (const CapturePtr& capture : state().captures)
    for (const cudaStream_t captured : capture->streams)
      if (captured->blocking() && captured->device == stream->device) {
        invalidate(capture);
        refused = true;
      }
  return refused ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

cudaError_t check_unsafe() {
  bool refused = false;
  for (const CapturePtr& capture : state().captures) {
    const bool mine = capture->thread == std::this_thread::get_id();
    const bool forbids = mine ? capture->mode != cudaStreamCaptureModeRelaxed
                              : capture->mode == cudaStreamCaptureModeGlobal;
    if (!forbids) continue;
    invalidate(capture);
    refused = true;
  }
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t capture_operation(cudaStream_t stream, Run run, Overlap overlap) {
  Capture& capture = *stream->capture;
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  auto& operations = capture.body->operations;
  operations.push_back({std::move(run), stream->capture_after, std::move(overlap)});
  stream->capture_after = {operations.size() - 1};
  return cudaSuccess;
}

namespace names {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", Safety::always, [&] {
    const cudaStream_t stream = resolve(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
      return cudaErrorInvalidValue;
    if (stream->is_legacy()) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture != nullptr) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->origin = stream;
    capture->thread = std::this_thread::get_id();
    capture->body->device = stream->device->id;
    capture->streams.push_back(stream);
    stream->capture = capture;
    stream->capture_after.clear();
    state().captures.push_back(std::move(capture));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", Safety::always, [&] {
    if (graph == nullptr) return cudaErrorInvalidValue;
    *graph = nullptr;
    const cudaStream_t stream = resolve(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const CapturePtr capture = stream->capture;
    if (capture == nullptr) return cudaErrorIllegalState;
    if (capture->origin != stream) {
      invalidate(capture);
      return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id())
      return cudaErrorStreamCaptureWrongThread;
    const std::vector<bool> joined = ancestors(*capture->body, stream->capture_after);
    bool unjoined = false;
    for (const cudaStream_t other : capture->streams)
      for (const std::size_t operation : other->capture_after)
        unjoined = unjoined || !joined[operation];
    leave_capture(*capture);
    std::erase(state().captures, capture);
    if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (unjoined) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st{capture->body};
    state().graphs.insert(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", Safety::always, [&] {
    if (status == nullptr) return cudaErrorInvalidValue;
    const cudaStream_t stream = resolve(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *status = cudaStreamCaptureStatusNone;
    if (stream->is_legacy()) {
      // While a blocking stream is being captured, this query of the legacy stream fails, but does
      // not invalidate the capture.
      for (const CapturePtr& capture : state().captures)
        for (const cudaStream_t captured : capture->streams)
          if (captured->blocking() && captured->device == stream->device)
            return cudaErrorStreamCaptureImplicit;
      return cudaSuccess;
    }
    if (stream->capture == nullptr) return cudaSuccess;
    *status = stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return call("cudaGraphInstantiate", Safety::always, [&] {
    if (exec == nullptr || state().graphs.count(graph) == 0) return cudaErrorInvalidValue;
    if (flags != 0) return cudaErrorNotSupported;
    *exec = new CUgraphExec_st{graph->body, nullptr};
    state().execs.insert(*exec);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return call("cudaGraphLaunch", Safety::always, [&] {
    const cudaStream_t stream = resolve(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (state().execs.count(exec) == 0) return cudaErrorInvalidValue;
    if (exec->body->device != stream->device->id) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_legacy(stream)) return error;
    const auto run = [body = exec->body] { return replay(*body); };
    // On a stream that is being captured, the launched graph becomes a node of the new graph.
    if (stream->capture != nullptr) return enqueue(stream, run);
    return enqueue(stream, run, exec->last, &exec->last);
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", Safety::always, [&] {
    if (state().graphs.erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call("cudaGraphExecDestroy", Safety::always, [&] {
    if (state().execs.erase(exec) == 0) return cudaErrorInvalidValue;
    // Launches that have not run keep the graph's data alive.
    delete exec;
    return cudaSuccess;
  });
}

}  // namespace names
}  // namespace switchback_cuda_emu
