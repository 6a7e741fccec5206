// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the state that the files of the host API share: devices, streams,
// memory, captures. One lock guards all of it; every API call holds the lock from entry to return.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "switchback_cuda_emu/control.h"
#include "switchback_cuda_emu/launch.h"

namespace switchback_cuda_emu {

struct Device;
struct Capture;

using Run = std::function<cudaError_t()>;

/// Whether an operation is a kernel, and whether it may overlap with the kernel before it.
struct Overlap {
  bool kernel = false;
  /// Set for a kernel that may begin before the previous kernel has run: runs both.
  std::function<cudaError_t(const Run& before)> run_both;
};

/// One operation in a stream. It runs after the earlier operations of its stream, and after all
/// operations in `after`.
struct Operation {
  Run run;
  Overlap overlap;
  std::vector<std::shared_ptr<Operation>> after;
  cudaStream_t stream = nullptr;
  bool done = false;
  std::uint64_t wanted = 0;  ///< the number of the wait (drain) that needs this operation
};
using OperationPtr = std::shared_ptr<Operation>;

enum class MemoryState {
  pending,  ///< allocated by cudaMallocAsync; its stream has not reached that operation yet
  live
};

struct Allocation {
  char* base = nullptr;
  std::size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeDevice;
  int device = 0;
  MemoryState state = MemoryState::live;
  bool free_called = false;
};

struct GraphOperation {
  Run run;
  std::vector<std::size_t> after;
  Overlap overlap;
};

/// The data that a graph owns, shared with the executable graphs made of it.
struct GraphBody {
  std::vector<GraphOperation> operations;
  int device = 0;
};

struct Capture {
  std::shared_ptr<GraphBody> body = std::make_shared<GraphBody>();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  cudaStream_t origin = nullptr;
  std::thread::id thread;
  bool invalid = false;
  bool ended = false;
  std::vector<cudaStream_t> streams;
};
using CapturePtr = std::shared_ptr<Capture>;

struct Device {
  int id = 0;
  cudaStream_t legacy = nullptr;
  std::vector<cudaStream_t> streams;  ///< streams, including destroyed ones that still have work
  cudaError_t sticky = cudaSuccess;
  std::size_t used_bytes = 0;
  bool has_context = false;  ///< whether the device's primary context is active
};

struct State {
  Options options;
  Device devices[2];
  std::map<std::uintptr_t, Allocation> memory;  ///< allocations by their first address
  std::set<cudaStream_t> streams;               ///< streams whose handles may be used
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> execs;
  std::vector<CapturePtr> captures;                                  ///< under way
  std::map<std::pair<const void*, int>, int> dynamic_shared_limits;  // limit by kernel and device
  std::map<std::string, std::size_t> calls;
  std::vector<LaunchRecord> launches;
  std::string fault;
  std::uint64_t random = 1;
  std::uint64_t drains = 0;
  unsigned long long last_id = 0;
  bool on_device = false;  ///< whether device memory may be accessed now
  int touchable_device = -1;
};
State& state();
std::recursive_mutex& lock();

/// Runs `body` as a call of the API: takes the lock, counts the call, and lets failures be
/// injected. Sets up the current device if nothing has yet, reports sticky errors, and remembers
/// the error of `body`.
enum class Safety { always, unsafe_in_capture };
cudaError_t call(const char* name, Safety safety, const std::function<cudaError_t()>& body);
/// As call(), for queries of devices, which need no context of the current device.
cudaError_t call_without_context(const char* name, const std::function<cudaError_t()>& body);
/// As call(), for queries that also work on a machine without a device.
cudaError_t call_without_device(const char* name, const std::function<cudaError_t()>& body);
/// Counts a call of this function. Returns cudaSuccess or the error that a test injects.
cudaError_t injected(const char* name);
int& current_device();
/// Finds the value that cudaDeviceGetAttribute returns. False if the attribute is not emulated.
bool device_attribute(cudaDeviceAttr attribute, int* value);
bool valid_device(int device);
void set_fault(std::string text);

// Functions of memory.cpp.
Allocation* find_allocation(const void* pointer);
/// Whether [pointer, pointer + bytes) is memory that `device` can use at this point of its
/// execution.
bool device_accessible(const void* pointer, std::size_t bytes, int device);
cudaError_t allocate(void** pointer, std::size_t bytes, cudaMemoryType type, MemoryState at_first);
void release_allocation(void* base);
/// Lets AddressSanitizer allow accesses to the memory of one device, or of no device (-1).
void enter_device(int device);
void free_all_memory();

// Functions of stream.cpp.
/// The stream that a handle means, special handles included; nullptr if the handle is not valid.
cudaStream_t resolve(cudaStream_t stream);
/// Queues an operation, or records it if the stream is being captured. If `run` returns an error
/// when it runs, that is a fault of the device.
cudaError_t enqueue(cudaStream_t stream, Run run, OperationPtr after = nullptr,
                    OperationPtr* queued = nullptr, Overlap overlap = {});
/// Runs queued operations until the targets are done. The schedule decides which other operations
/// run.
void drain(const std::vector<OperationPtr>& targets);
void drain_device(int device);
void drain_all();
/// Runs one queued operation, if any can run.
void drain_step();
/// The operations after which all work of the stream is done.
std::vector<OperationPtr> stream_tail(cudaStream_t stream);
void drop_work(Device& device);
void delete_streams();

// Functions of capture.cpp.
/// For a call that waits for a stream. If the stream is being captured, or is the legacy stream
/// while a blocking stream is, returns an error and invalidates the capture.
cudaError_t refuse_in_capture(cudaStream_t stream);
/// For a call that waits for a device: if a stream of it is being captured, returns an error and
/// invalidates the capture.
cudaError_t refuse_in_capture(const Device& device);
cudaError_t check_legacy(cudaStream_t stream);
cudaError_t check_unsafe();
cudaError_t capture_operation(cudaStream_t stream, Run run, Overlap overlap);
void invalidate(const CapturePtr& capture);
void leave_capture(Capture& capture);

namespace names {

struct CUstream_st {
  Device* device = nullptr;
  unsigned flags = 0;
  unsigned long long id = 0;
  bool destroyed = false;
  std::deque<OperationPtr> queue;
  CapturePtr capture;
  std::vector<std::size_t> capture_after;  ///< what the next captured operation depends on

  [[nodiscard]] bool is_legacy() const { return device->legacy == this; }
  [[nodiscard]] bool blocking() const { return (flags & cudaStreamNonBlocking) == 0; }
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  OperationPtr recorded;  ///< the recorded operation; null: never recorded
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
  CapturePtr capture;  ///< the capture in which the event was last recorded
  std::vector<std::size_t> capture_after;
};

struct CUgraph_st {
  std::shared_ptr<GraphBody> body;
};

struct CUgraphExec_st {
  std::shared_ptr<GraphBody> body;
  OperationPtr last;  ///< the last launch; launches of one executable graph are ordered
};

}  // namespace names
}  // namespace switchback_cuda_emu
