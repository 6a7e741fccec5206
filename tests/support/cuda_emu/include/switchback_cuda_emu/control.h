// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the options that a test can set (devices, failures, schedules), and
// queries of the state (faults, objects, calls, launches).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "switchback_cuda_emu/api.h"

namespace switchback_cuda_emu {

/// Matches one or more configurations of a cuBLASLt algorithm. A negative member matches any value.
/// Without an id the pattern matches nothing.
struct AlgoPattern {
  std::int64_t id = -1, tile = -1, stages = -1, split_k = -1, reduction = -1, swizzling = -1,
               custom = -1, inner_shape = -1, cluster_shape = -1;
};

struct Options {
  // The machine.
  int device_count = 1;        ///< at most 2; 0 devices: cudaErrorNoDevice
  int driver_version = 13000;  ///< a major version below the runtime's: cudaErrorInsufficientDriver
  int runtime_version = 13000;
  int compute_capability = 90;   ///< the compute capability as major * 10 + minor
  int multiprocessor_count = 4;  ///< few multiprocessors, so that persistent kernels loop
  /// The memory of each emulated device, in bytes.
  std::size_t total_memory_bytes = std::size_t{4} << 30;
  bool memory_pools = true;
  bool cooperative_launches = true;

  // Schedules.
  bool deferred = true;  ///< queued work waits for a synchronization; false: it runs at once
  /// Seeds the random order of streams, blocks and threads; 0: the natural order.
  std::uint64_t schedule_seed = 1;

  // Injected failures. A negative number means no failure.
  std::int64_t fail_allocation_after = -1;  ///< this many allocations succeed, all later ones fail
  std::int64_t fail_call_after = -1;        ///< this many API calls succeed, the next one fails
  cudaError_t fail_call_error = cudaErrorUnknown;
  /// fail_call_after counts only calls of this function; empty: calls of all functions.
  std::string fail_call_name = {};

  // cuBLASLt.
  /// The version of cuBLASLt. An algorithm of one version is invalid in another.
  std::size_t cublaslt_version = 130100;
  std::string cublaslt_missing_function = {};  ///< the library lacks the function of this name
  bool cublaslt_missing = false;
  /// Algorithms that the heuristic returns have state that no attribute shows.
  bool hidden_attributes = false;
  bool refuse_rows_up_to_16 = false;  ///< refuse int8 products with at most 16 columns of D
  /// cublasLtMatmulAlgoCheck and the heuristic refuse matching algorithms.
  AlgoPattern refuse_at_check = {};
  /// Matching algorithms pass every check, but cublasLtMatmul refuses them.
  AlgoPattern refuse_at_run = {};
  /// Matching algorithms compute one wrong element.
  AlgoPattern corrupt = {};
};

/// The present options of the emulated device. One thread sets them, between synchronizations.
Options& options();

/// Resets the emulated device: drops all work, frees all memory, streams, events and graphs,
/// forgets errors and counts, and sets the options.
void reset(const Options& to = {});

/// A description of the last fault of a device; empty if there was none since the last reset.
std::string last_fault();

/// Whether this process has a context on the device (on a GPU it takes memory). The first call that
/// needs a device creates it: on the current device, or on the device that the call names.
bool has_context(int device);

struct Usage {
  std::size_t allocations = 0;   ///< allocations of all kinds that are not freed
  std::size_t device_bytes = 0;  ///< device memory allocated now, on all devices
  std::size_t streams = 0;       ///< streams created and not yet destroyed
  std::size_t events = 0;
  std::size_t library_handles = 0;  ///< cuBLASLt handles, descriptors, layouts, preferences
};
Usage usage();

/// The number of calls of one API function since the last reset ("cudaMalloc"; "launch" for
/// kernels).
std::size_t calls(const std::string& function);

struct LaunchRecord {
  std::string name;
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  bool overlaps = false;     ///< the kernel may begin before the previous one has ended
  bool cooperative = false;  ///< the kernel's blocks can wait for each other
};
/// The kernels that were launched or captured since the last reset, oldest first.
std::vector<LaunchRecord> launches();

/// The function of this name in the cuBLASLt stand-in, if library_prefix begins with "cublasLt" or
/// "libcublasLt". nullptr if there is no such function, or if options().cublaslt_missing.
void* library_symbol(const char* library_prefix, const char* symbol);

}  // namespace switchback_cuda_emu
