// SPDX-License-Identifier: Apache-2.0
// Streams: queues of operations that run only when a call waits. Only the dependencies that the
// program asked for restrict their order.
#include <algorithm>
#include <utility>

#include "block.hpp"
#include "state.hpp"

namespace switchback_cuda_emu {

namespace {

std::uint64_t random_below(std::uint64_t n) {
  return next_random(state().random) % n;
}

cudaStream_t add_stream(Device& device, unsigned flags) {
  auto* stream = new names::CUstream_st;
  stream->device = &device;
  stream->flags = flags;
  stream->id = ++state().last_id;
  device.streams.push_back(stream);
  return stream;
}

void finish(Operation& operation) {
  operation.done = true;
  operation.run = nullptr;
  operation.overlap = {};
  // The list `after` is cleared here: destroying a chain of operations that own each other would
  // recurse deeply.
  operation.after.clear();
}

void report(Device& device, cudaError_t error) {
  if (error == cudaSuccess) return;
  device.sticky = error;
  drop_work(device);
}

bool can_run(const Operation& operation) {
  return std::all_of(operation.after.begin(), operation.after.end(),
                     [](const OperationPtr& before) { return before->done; });
}

// The streams whose first operation can run now.
std::vector<cudaStream_t> candidates() {
  std::vector<cudaStream_t> result;
  for (Device& device : state().devices)
    for (const cudaStream_t stream : device.streams)
      if (!stream->queue.empty() && can_run(*stream->queue.front())) result.push_back(stream);
  return result;
}

void run_front(cudaStream_t stream) {
  const OperationPtr operation = stream->queue.front();
  stream->queue.pop_front();
  Device& device = *stream->device;
  enter_device(device.id);
  // The next kernel runs together with this one if it may overlap and the host's wait needs both or
  // neither.
  OperationPtr next;
  if (operation->overlap.kernel && !stream->queue.empty()) {
    next = stream->queue.front();
    if (next->overlap.run_both == nullptr || next->wanted != operation->wanted || !can_run(*next))
      next = nullptr;
  }
  cudaError_t error = cudaSuccess;
  if (next != nullptr) {
    stream->queue.pop_front();
    error = next->overlap.run_both(operation->run);
    finish(*next);
  } else {
    error = operation->run();
  }
  finish(*operation);
  report(device, error);
}

// Marks every operation that has to run before the operations `targets` are done.
void mark_wanted(std::vector<OperationPtr> pending, std::uint64_t drain) {
  while (!pending.empty()) {
    const OperationPtr operation = std::move(pending.back());
    pending.pop_back();
    if (operation->done || operation->wanted == drain) continue;
    operation->wanted = drain;
    pending.insert(pending.end(), operation->after.begin(), operation->after.end());
    for (const OperationPtr& earlier : operation->stream->queue) {
      if (earlier == operation) break;
      pending.push_back(earlier);
    }
  }
}

void delete_drained_streams() {
  for (Device& device : state().devices) {
    auto& streams = device.streams;
    for (std::size_t i = 0; i < streams.size();) {
      if (streams[i]->destroyed && streams[i]->queue.empty()) {
        delete streams[i];
        streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
}

// How a drain (a wait of the host) chooses among the operations that can run. Each order is legal
// on a GPU. Together they show a missing dependency, whichever of its two operations has to come
// first.
enum class Order {
  wanted_only,   // operations that the host does not wait for run as late as they can
  others_first,  // operations that the host does not wait for run as early as they can
  any,           // interleaved
  by_stream      // one stream at a time, as far as it goes
};

}  // namespace

cudaStream_t resolve(cudaStream_t stream) {
  State& s = state();
  Device& device = s.devices[current_device()];
  if (stream == nullptr || stream == cudaStreamLegacy) {
    if (device.legacy == nullptr) device.legacy = add_stream(device, cudaStreamDefault);
    return device.legacy;
  }
  if (s.streams.count(stream) == 0) return nullptr;
  return stream;
}

cudaError_t enqueue(cudaStream_t stream, Run run, OperationPtr after, OperationPtr* queued,
                    Overlap overlap) {
  if (stream->capture != nullptr)
    return capture_operation(stream, std::move(run), std::move(overlap));
  Device& device = *stream->device;
  if (device.sticky != cudaSuccess) return device.sticky;
  auto operation = std::make_shared<Operation>();
  operation->run = std::move(run);
  operation->overlap = std::move(overlap);
  operation->stream = stream;
  if (after != nullptr && !after->done) operation->after.push_back(std::move(after));
  // The legacy stream and the blocking streams of its device wait for each other.
  if (stream->is_legacy()) {
    for (const cudaStream_t other : device.streams)
      if (other != stream && other->blocking() && !other->queue.empty())
        operation->after.push_back(other->queue.back());
  } else if (stream->blocking() && device.legacy != nullptr && !device.legacy->queue.empty()) {
    operation->after.push_back(device.legacy->queue.back());
  }
  stream->queue.push_back(operation);
  if (queued != nullptr) *queued = operation;
  if (!options().deferred) drain({operation});
  return cudaSuccess;
}

void drain(const std::vector<OperationPtr>& targets) {
  State& s = state();
  const std::uint64_t drain = ++s.drains;
  mark_wanted(targets, drain);
  const bool shuffled = s.options.schedule_seed != 0 && s.options.deferred;
  const Order order = shuffled ? static_cast<Order>(random_below(4)) : Order::wanted_only;
  const std::uint64_t salt = next_random(s.random) | 1;
  const auto rank = [salt](cudaStream_t stream) {
    std::uint64_t seed = stream->id * salt;
    return next_random(seed);
  };
  const auto done = [&] {
    return std::all_of(targets.begin(), targets.end(),
                       [](const OperationPtr& target) { return target->done; });
  };
  while (!done()) {
    const std::vector<cudaStream_t> all = candidates();
    std::vector<cudaStream_t> wanted;
    std::vector<cudaStream_t> others;
    for (const cudaStream_t stream : all)
      (stream->queue.front()->wanted == drain ? wanted : others).push_back(stream);
    const auto pick = [&](const std::vector<cudaStream_t>& from) {
      return from[shuffled ? random_below(from.size()) : 0];
    };
    switch (order) {
      case Order::wanted_only:
        run_front(pick(wanted));
        break;
      case Order::others_first:
        run_front(pick(others.empty() ? wanted : others));
        break;
      case Order::any:
        run_front(pick(all));
        break;
      case Order::by_stream:
        run_front(*std::min_element(all.begin(), all.end(), [&](cudaStream_t a, cudaStream_t b) {
          return rank(a) < rank(b);
        }));
        break;
    }
  }
  enter_device(-1);
  delete_drained_streams();
}

void drain_device(int device) {
  std::vector<OperationPtr> targets;
  for (const cudaStream_t stream : state().devices[device].streams)
    if (!stream->queue.empty()) targets.push_back(stream->queue.back());
  drain(targets);
}

void drain_all() {
  for (const Device& device : state().devices)
    drain_device(device.id);
}

void drain_step() {
  const std::vector<cudaStream_t> all = candidates();
  if (!all.empty()) run_front(all[random_below(all.size())]);
  enter_device(-1);
  delete_drained_streams();
}

std::vector<OperationPtr> stream_tail(cudaStream_t stream) {
  std::vector<OperationPtr> tail;
  if (!stream->queue.empty()) tail.push_back(stream->queue.back());
  if (stream->is_legacy())
    for (const cudaStream_t other : stream->device->streams)
      if (other->blocking() && !other->queue.empty()) tail.push_back(other->queue.back());
  return tail;
}

void drop_work(Device& device) {
  for (const cudaStream_t stream : device.streams) {
    for (const OperationPtr& operation : stream->queue) {
      operation->done = true;
      operation->run = nullptr;
      operation->after.clear();
    }
    stream->queue.clear();
  }
}

void delete_streams() {
  for (Device& device : state().devices) {
    drop_work(device);
    for (const cudaStream_t stream : device.streams)
      delete stream;
    device.streams.clear();
    device.legacy = nullptr;
  }
  state().streams.clear();
}

namespace names {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreate", Safety::always, [&] {
    if (stream == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = add_stream(state().devices[current_device()], flags);
    state().streams.insert(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", Safety::always, [&] {
    if (state().streams.erase(stream) == 0) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) {
      const CapturePtr capture = stream->capture;
      invalidate(capture);
      if (capture->origin == stream) {
        leave_capture(*capture);
        std::erase(state().captures, capture);
      }
      std::erase(capture->streams, stream);
      stream->capture = nullptr;
    }
    // The queued work of a destroyed stream still runs.
    stream->destroyed = true;
    delete_drained_streams();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call("cudaStreamSynchronize", Safety::always, [&] {
    const cudaStream_t stream = resolve(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = refuse_in_capture(stream)) return error;
    drain(stream_tail(stream));
    return stream->device->sticky;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call("cudaStreamQuery", Safety::unsafe_in_capture, [&] {
    const cudaStream_t stream = resolve(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = refuse_in_capture(stream)) return error;
    if (stream_tail(stream).empty()) return stream->device->sticky;
    drain_step();
    return stream->device->sticky != cudaSuccess ? stream->device->sticky : cudaErrorNotReady;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", Safety::always, [] {
    Device& device = state().devices[current_device()];
    if (const cudaError_t error = refuse_in_capture(device)) return error;
    drain_device(device.id);
    return device.sticky;
  });
}

}  // namespace names
}  // namespace switchback_cuda_emu
