// SPDX-License-Identifier: Apache-2.0
// Kernel launches, the driver's checks of them, and reset().
#include "switchback_cuda_emu/launch.h"

#include <algorithm>
#include <utility>

#include "block.hpp"
#include "launch_log.hpp"
#include "lt_state.hpp"
#include "state.hpp"

namespace switchback_cuda_emu {

namespace {

constexpr int default_shared_bytes = 48 << 10;

int attribute(cudaDeviceAttr which) {
  int value = 0;
  device_attribute(which, &value);
  return value;
}

bool good_block(dim3 b) {
  return b.x >= 1 && b.y >= 1 && b.z >= 1 && b.x <= 1024 && b.y <= 1024 && b.z <= 64 &&
         static_cast<std::uint64_t>(b.x) * b.y * b.z <= 1024;
}

bool good_grid(dim3 g) {
  return g.x >= 1 && g.y >= 1 && g.z >= 1 && g.x <= 2147483647u && g.y <= 65535 && g.z <= 65535;
}

// The number of blocks of a kernel that fit on a multiprocessor at the same time.
int blocks_together(int threads, std::size_t shared_bytes) {
  const int result = std::min(attribute(cudaDevAttrMaxThreadsPerMultiProcessor) / threads,
                              attribute(cudaDevAttrMaxBlocksPerMultiprocessor));
  const auto shared =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
  const auto reserved =
      static_cast<std::size_t>(attribute(cudaDevAttrReservedSharedMemoryPerBlock));
  return std::min(result, static_cast<int>(shared / (shared_bytes + reserved)));
}

// Runs a kernel together with the kernel launched before it, or alone if that one has run.
struct Before {
  const Run* run;
  cudaError_t error;
};
cudaError_t run_kernel(const KernelCall& call, dim3 grid, dim3 block, std::size_t shared_bytes,
                       const Run* before = nullptr) {
  Before kernel_before = {before, cudaSuccess};
  Grid g;
  g.name = call.name;
  g.run = call.run;
  g.arguments = call.arguments.get();
  g.grid = grid;
  g.block = block;
  g.shared_bytes = shared_bytes;
  g.seed = options().schedule_seed == 0 ? 0 : next_random(state().random) | 1;
  g.overlaps = call.overlaps;
  g.cooperative = call.cooperative;
  if (before != nullptr) {
    g.before = [](void* kernel) {
      Before& b = *static_cast<Before*>(kernel);
      b.error = (*b.run)();
      return b.error == cudaSuccess;
    };
    g.before_arguments = &kernel_before;
  }
  if (run_grid(g)) return cudaSuccess;
  if (kernel_before.error != cudaSuccess) return kernel_before.error;
  set_fault(fault_text());
  return cudaErrorLaunchFailure;
}

}  // namespace

cudaError_t launch_call(KernelCall kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                        cudaStream_t handle) {
  return call("launch", Safety::always, [&] {
    if (kernel.function == nullptr) return cudaErrorInvalidDeviceFunction;
    const cudaStream_t stream = resolve(handle);
    if (stream == nullptr || stream->device->id != current_device())
      return cudaErrorInvalidResourceHandle;
    if (!good_block(block) || !good_grid(grid)) return cudaErrorInvalidConfiguration;
    const auto limit = state().dynamic_shared_limits.find({kernel.function, current_device()});
    const int most =
        limit == state().dynamic_shared_limits.end() ? default_shared_bytes : limit->second;
    if (shared_bytes > static_cast<std::size_t>(most)) return cudaErrorInvalidValue;
    if (const cudaError_t error = check_legacy(stream)) return error;
    if (kernel.cooperative) {
      if (attribute(cudaDevAttrCooperativeLaunch) == 0) return cudaErrorNotSupported;
      const auto threads = static_cast<int>(block.x * block.y * block.z);
      const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
      const int together = blocks_together(threads, shared_bytes);
      if (blocks > static_cast<std::uint64_t>(attribute(cudaDevAttrMultiProcessorCount) * together))
        return cudaErrorCooperativeLaunchTooLarge;
    }
    LaunchRecord record{kernel.name,       grid, block, shared_bytes, kernel.overlaps,
                        kernel.cooperative};
    log_launch({kernel.function, options().compute_capability,
                static_cast<int>(block.x * block.y * block.z), shared_bytes,
                limit == state().dynamic_shared_limits.end()
                    ? std::size_t{0}
                    : static_cast<std::size_t>(limit->second)});
    Overlap overlap;
    overlap.kernel = true;
    if (kernel.overlaps)
      overlap.run_both = [kernel, grid, block, shared_bytes](const Run& before) {
        return run_kernel(kernel, grid, block, shared_bytes, &before);
      };
    const cudaError_t error = enqueue(
        stream,
        [kernel = std::move(kernel), grid, block, shared_bytes] {
          return run_kernel(kernel, grid, block, shared_bytes);
        },
        nullptr, nullptr, std::move(overlap));
    if (error == cudaSuccess) state().launches.push_back(std::move(record));
    return error;
  });
}

void reset(const Options& to) {
  const std::lock_guard guard(lock());
  State& s = state();
  for (const CapturePtr& capture : s.captures)
    leave_capture(*capture);
  s.captures.clear();
  delete_streams();
  for (const cudaEvent_t event : s.events)
    delete event;
  s.events.clear();
  for (const cudaGraphExec_t exec : s.execs)
    delete exec;
  s.execs.clear();
  for (const cudaGraph_t graph : s.graphs)
    delete graph;
  s.graphs.clear();
  free_all_memory();
  delete_library_handles();
  for (int i = 0; i < 2; ++i) {
    s.devices[i].id = i;
    s.devices[i].sticky = cudaSuccess;
    s.devices[i].used_bytes = 0;
    s.devices[i].has_context = false;
  }
  s.dynamic_shared_limits.clear();
  s.calls.clear();
  s.launches.clear();
  s.fault.clear();
  s.options = to;
  s.random = to.schedule_seed;
  current_device() = 0;
  cudaGetLastError();
  cudaGetLastError();
}

Usage usage() {
  const std::lock_guard guard(lock());
  const State& s = state();
  Usage u;
  u.allocations = s.memory.size();
  for (const Device& device : s.devices)
    u.device_bytes += device.used_bytes;
  u.streams = s.streams.size();
  u.events = s.events.size();
  u.library_handles = library_handle_count();
  return u;
}

namespace names {

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute which, int value) {
  return call("cudaFuncSetAttribute", Safety::always, [&] {
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
    if (value < 0 || value > attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin))
      return cudaErrorInvalidValue;
    state().dynamic_shared_limits[{function, current_device()}] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return call("cudaFuncGetAttributes", Safety::always, [&] {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    attributes->ptxVersion = options().compute_capability;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int block_size,
                                                          std::size_t shared_bytes) {
  return call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", Safety::always, [&] {
    if (blocks == nullptr || block_size < 1) return cudaErrorInvalidValue;
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    *blocks = block_size > 1024 ? 0 : blocks_together(block_size, shared_bytes);
    return cudaSuccess;
  });
}

}  // namespace names
}  // namespace switchback_cuda_emu
