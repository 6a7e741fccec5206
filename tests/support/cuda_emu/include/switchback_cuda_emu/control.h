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

/// One configuration of a cuBLASLt algorithm, or several. A negative member matches any value.
/// Without an id the pattern matches nothing.
struct AlgoPattern {
  std::int64_t id = -1, tile = -1, stages = -1, split_k = -1, reduction = -1, swizzling = -1,
               custom = -1, inner_shape = -1, cluster_shape = -1;
};

struct Options {
  // The machine.
  int device_count = 1;  ///< 0: cudaErrorNoDevice; at most 2
  int driver_version =
      13000;  ///< lower than the runtime's major version: cudaErrorInsufficientDriver
  int runtime_version = 13000;
  int compute_capability = 90;   ///< major * 10 + minor
  int multiprocessor_count = 4;  ///< small, so that persistent kernels loop
  std::size_t total_memory_bytes = std::size_t{4} << 30;  ///< per device
  bool memory_pools = true;
  bool cooperative_launches = true;

  // Schedules.
  bool deferred = true;  ///< work waits for a synchronization; false: it runs when queued
  std::uint64_t schedule_seed = 1;  ///< order of streams, blocks and threads; 0: the obvious order
  bool guard_host_access = true;  ///< AddressSanitizer reports host code that touches device memory

  // Failures. Negative: never.
  std::int64_t fail_allocation_after = -1;  ///< this many allocations succeed, all later ones fail
  std::int64_t fail_call_after = -1;        ///< this many API calls succeed, the next one fails
  cudaError_t fail_call_error = cudaErrorUnknown;
  std::string fail_call_name;  ///< counts calls of this function alone; empty: all

  // cuBLASLt.
  std::size_t cublaslt_version = 130100;  ///< an algorithm of one version is invalid in another
  std::string cublaslt_missing_function;  ///< the library has no function of that name
  bool cublaslt_missing = false;
  bool hidden_attributes = false;     ///< the heuristic's algorithms have state without attributes
  bool refuse_rows_up_to_16 = false;  ///< int8 with at most 16 columns of D
  int refuse_algo = -1;               ///< this id passes every check, but cublasLtMatmul refuses it
  int corrupt_algo = -1;              ///< this id computes one wrong element
  AlgoPattern refuse_at_check;        ///< cublasLtMatmulAlgoCheck and the heuristic refuse these
  AlgoPattern refuse_at_run;          ///< these pass every check, but cublasLtMatmul refuses them
  AlgoPattern corrupt;                ///< these compute one wrong element
};

/// Set between synchronizations, by one thread.
Options& options();

/// Drops all work, frees all memory, streams, events and graphs, forgets errors and counts, and
/// sets the options.
void reset(const Options& to = {});

/// A description of the last fault of a device; empty if there was none since the last reset.
std::string last_fault();

/// Whether this process has a context on the device (on a GPU it takes memory). The first call that
/// needs a device creates it: on the current device, or on the device that the call names.
bool has_context(int device);

struct Usage {
  std::size_t allocations = 0;   ///< live ones of all kinds
  std::size_t device_bytes = 0;  ///< of all devices
  std::size_t peak_device_bytes = 0;
  std::size_t streams = 0;  ///< created and not destroyed
  std::size_t events = 0;
  std::size_t graphs = 0;           ///< graphs and executable graphs
  std::size_t library_handles = 0;  ///< cuBLASLt handles, descriptors, layouts, preferences
  std::size_t queued = 0;           ///< operations that have not run
};
Usage usage();

/// The number of calls of one API function since the last reset ("cudaMalloc"; "launch" for
/// kernels).
std::size_t calls(const std::string& function);

struct LaunchRecord {
  std::string name;
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  bool overlaps = false;     ///< with the kernel before it
  bool cooperative = false;  ///< its blocks wait for each other
};
/// The kernels that were launched or captured since the last reset, oldest first.
std::vector<LaunchRecord> launches();

/// The stand-in's function of that name, if library_prefix begins with "cublasLt" or "libcublasLt".
/// nullptr if there is no such function, or if options().cublaslt_missing.
void* library_symbol(const char* library_prefix, const char* symbol);

}  // namespace switchback_cuda_emu
