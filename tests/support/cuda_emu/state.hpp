// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the state that the host API's files share: devices, streams, memory,
// captures. One lock guards all of it; every API call holds the lock from entry to return.
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

/// For an operation that is a kernel: which kernel it may overlap with.
struct Overlap {
  bool kernel = false;
  /// For a kernel that may begin before the previous one has run: runs both.
  std::function<cudaError_t(const Run& before)> run_both;
};

/// One operation in a stream. Runs after the earlier operations of its stream and `after`.
struct Operation {
  Run run;
  Overlap overlap;
  std::vector<std::shared_ptr<Operation>> after;
  cudaStream_t stream = nullptr;
  bool done = false;
  std::uint64_t wanted = 0;  ///< the drain that needs it
};
using OperationPtr = std::shared_ptr<Operation>;

enum class MemoryState {
  pending,  ///< from cudaMallocAsync; its stream has not reached it yet
  live,
  freed  ///< cudaFreeAsync was called; the memory may still be in use
};

struct Allocation {
  char* base = nullptr;
  std::size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeDevice;
  int device = 0;
  MemoryState state = MemoryState::live;
  bool free_called = false;
  bool of_graph = false;  ///< freed with the graph rather than by the operation
};

struct GraphOperation {
  Run run;
  std::vector<std::size_t> after;
  Overlap overlap;
};

/// The data that a graph owns, shared with the executable graphs made of it.
struct GraphBody {
  std::vector<GraphOperation> operations;
  std::vector<void*> memory;
  int device = 0;
  ~GraphBody();
};

struct Capture {
  std::shared_ptr<GraphBody> body = std::make_shared<GraphBody>();
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  cudaStream_t origin = nullptr;
  std::thread::id thread;
  bool invalid = false;
  bool ended = false;
  unsigned long long id = 0;
  std::vector<cudaStream_t> streams;
};
using CapturePtr = std::shared_ptr<Capture>;

struct Device {
  int id = 0;
  cudaStream_t legacy = nullptr;
  std::map<std::thread::id, cudaStream_t> per_thread;
  std::vector<cudaStream_t> streams;  ///< also destroyed ones that still have work
  cudaError_t sticky = cudaSuccess;
  std::size_t used_bytes = 0;
  bool has_context = false;  ///< its primary context is active
};

struct State {
  Options options;
  Device devices[2];
  std::map<std::uintptr_t, Allocation> memory;  ///< by first address
  std::set<cudaStream_t> streams;               ///< handles that may be used
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> execs;
  std::vector<CapturePtr> captures;                                  ///< under way
  std::map<std::pair<const void*, int>, int> dynamic_shared_limits;  // of a kernel on a device
  std::map<std::string, std::size_t> calls;
  std::vector<LaunchRecord> launches;
  std::string fault;
  std::size_t peak_device_bytes = 0;
  std::uint64_t random = 1;
  std::uint64_t drains = 0;
  unsigned long long last_id = 0;
  bool on_device = false;  ///< device memory can be accessed now
  int touchable_device = -1;
};
State& state();
std::recursive_mutex& lock();

/// A call of the API: takes the lock, counts the call, and lets failures be injected. Sets up the
/// current device if nothing has yet, reports sticky errors, and remembers the error of `body`.
enum class Safety { always, unsafe_in_capture };
cudaError_t call(const char* name, Safety safety, const std::function<cudaError_t()>& body);
/// The same for queries of devices, which need no context of the current one.
cudaError_t call_without_context(const char* name, const std::function<cudaError_t()>& body);
/// The same for queries that work on a machine without a device.
cudaError_t call_without_device(const char* name, const std::function<cudaError_t()>& body);
/// Counts a call for the injector; cudaSuccess or the injected error.
cudaError_t injected(const char* name);
int& current_device();
/// The value that cudaDeviceGetAttribute returns; false if there is none.
bool device_attribute(cudaDeviceAttr attribute, int* value);
bool valid_device(int device);
void set_fault(std::string text);

// Memory (memory.cpp).
Allocation* find_allocation(const void* pointer);
/// Whether [pointer, pointer + bytes) is memory that `device` can use at this point of its
/// execution.
bool device_accessible(const void* pointer, std::size_t bytes, int device);
cudaError_t allocate(void** pointer, std::size_t bytes, cudaMemoryType type, MemoryState at_first);
void release_allocation(void* base);
/// Lets AddressSanitizer allow accesses to the memory of one device, or of no device (-1).
void enter_device(int device);
void free_all_memory();

// Streams (stream.cpp).
/// The stream that a handle means, special handles included; nullptr if the handle is not valid.
cudaStream_t resolve(cudaStream_t stream);
/// Queues or captures an operation. If `run` returns an error when it runs, that is a fault of the
/// device.
cudaError_t enqueue(cudaStream_t stream, Run run, OperationPtr after = nullptr,
                    OperationPtr* queued = nullptr, Overlap overlap = {});
/// Runs until the targets are done. The schedule decides which other operations run.
void drain(const std::vector<OperationPtr>& targets);
void drain_device(int device);
void drain_all();
/// Runs one operation, if any can run.
void drain_step();
/// The operations after which all work of the stream is done.
std::vector<OperationPtr> stream_tail(cudaStream_t stream);
void drop_work(Device& device);
void delete_streams();

// Captures (capture.cpp).
/// Fails and invalidates the capture, as calls that wait or use the legacy stream do.
cudaError_t refuse_in_capture(cudaStream_t stream);
/// The same for a device.
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
  std::vector<std::size_t> capture_after;  ///< for the next captured operation

  [[nodiscard]] bool is_legacy() const { return device->legacy == this; }
  [[nodiscard]] bool blocking() const { return (flags & cudaStreamNonBlocking) == 0; }
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  OperationPtr recorded;  ///< null: never recorded
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
  CapturePtr capture;  ///< the capture it was last recorded in
  std::vector<std::size_t> capture_after;
};

struct CUgraph_st {
  std::shared_ptr<GraphBody> body;
};

struct CUgraphExec_st {
  std::shared_ptr<GraphBody> body;
  OperationPtr last;  ///< launches of one executable graph run one after another
};

}  // namespace names
}  // namespace switchback_cuda_emu
