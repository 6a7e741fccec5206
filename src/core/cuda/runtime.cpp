// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/runtime.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "core/cuda/elementwise.hpp"
#include "core/cuda/shared_limits.hpp"
#include "core/cuda/status.hpp"

namespace switchback::core::cuda {

namespace {

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, index), "cudaDeviceGetAttribute");
  return value;
}

DeviceInfo describe_device(int index) {
  DeviceInfo info;
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  info.name = properties.name;
  info.compute_major = properties.major;
  info.compute_minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = properties.totalGlobalMem;
  info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  info.shared_bytes_per_block = properties.sharedMemPerBlockOptin;
  info.core_clock_khz = attribute(cudaDevAttrClockRate, index);
  info.memory_clock_khz = attribute(cudaDevAttrMemoryClockRate, index);
  check(cudaDriverGetVersion(&info.driver_version), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&info.runtime_version), "cudaRuntimeGetVersion");
  info.pci_bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                properties.pciBusID, properties.pciDeviceID);
  return info;
}

// Clears an error that is not reported, so that other code's cudaGetLastError does not return it.
void forget(cudaError_t status) noexcept {
  if (status != cudaSuccess) (void)cudaGetLastError();
}

// Describes a report other than no_report as a message, such as "groups.ends[2] = 1; …".
std::string describe(ReportedArray array, Report report) {
  std::string_view name;
  std::string_view rule;
  switch (array) {
    case ReportedArray::ends:
      name = "groups.ends";
      rule = "ends must not decrease, and must be from 0 to the number of slots M";
      break;
    case ReportedArray::used:
      name = "groups.used";
      rule = "it must be from 0 to groups.rows";
      break;
    case ReportedArray::index:
      name = "x.index";
      rule = "it must be from 0 to the last row of x";
      break;
    case ReportedArray::slots:
      name = "slots";
      rule = "it must be at most the last row of y (a negative value means no slot)";
      break;
  }
  return fmt::format("{}[{}] = {}; {}", name, report >> 32,
                     static_cast<std::int32_t>(static_cast<std::uint32_t>(report)), rule);
}

// A source of pinned host memory, which the device can access. The device could read managed memory
// faster, but migrating pages is slow and fragile on some machines.
class Pinned final : public MemorySource {
 public:
  explicit Pinned(int index) : index_(index) {}
  void* allocate(std::size_t bytes) override {
    const CurrentDevice current(index_);
    void* data = nullptr;
    check(cudaMallocHost(&data, bytes), "cudaMallocHost", "{} bytes", bytes);
    return data;
  }
  void release(void* data, std::size_t) noexcept override {
    const CurrentDevice current(index_, std::nothrow);
    forget(cudaFreeHost(data));
  }

 private:
  int index_;
};

class Timer final : public DeviceTimer {
 public:
  explicit Timer(Runtime& owner)
      : owner_(owner), index_(owner.index()), start_(true), stop_(true) {}
  ~Timer() override {
    const CurrentDevice current(index_, std::nothrow);
    start_ = Event();
    stop_ = Event();
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void start() override {
    const CurrentDevice current(index_);
    check(cudaEventRecord(start_.get(), owner_.cuda_stream()), "cudaEventRecord");
  }
  void stop() override {
    const CurrentDevice current(index_);
    check(cudaEventRecord(stop_.get(), owner_.cuda_stream()), "cudaEventRecord");
  }
  double seconds() override {
    const CurrentDevice current(index_);
    check(cudaEventSynchronize(stop_.get()), "cudaEventSynchronize");
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  Runtime& owner_;
  int index_;
  Event start_;
  Event stop_;
};

class Graph final : public DeviceGraph {
 public:
  Graph(Runtime& owner, cudaGraphExec_t executable)
      : owner_(owner), index_(owner.index()), executable_(executable) {}
  ~Graph() override {
    const CurrentDevice current(index_, std::nothrow);
    forget(cudaGraphExecDestroy(executable_));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() override {
    const CurrentDevice current(index_);
    check(cudaGraphLaunch(executable_, owner_.cuda_stream()), "cudaGraphLaunch");
  }

 private:
  Runtime& owner_;
  int index_;
  cudaGraphExec_t executable_;
};

bool captures(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

Event::Event(bool timing) {
  check(cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
}

Event::~Event() {
  if (event_ != nullptr) forget(cudaEventDestroy(event_));
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

Runtime::Runtime(int index, const ContextOptions& options)
    : index_(index), allocator_(options.allocator) {
  const CurrentDevice current(index);
  info_ = describe_device(index);
  // Compute capability 7.5 is the first with dp4a and int8 tensor cores. The kernels are not
  // compiled for older devices.
  constexpr int oldest = 75;
  if (compute_capability() < oldest)
    fail(Status::device_error,
         "device 'cuda:{}': {} has compute capability {}.{}; it must be at least 7.5; use cpu",
         index, info_.name, info_.compute_major, info_.compute_minor);
  forget_shared_bytes(index);
  pools_ = attribute(cudaDevAttrMemoryPoolsSupported, index) != 0;
  constexpr int copies_asynchronously = 80;
  cooperates_ = compute_capability() >= copies_asynchronously &&
                attribute(cudaDevAttrCooperativeLaunch, index) != 0;
  // Only code for 9.0 and later waits for the previous kernel, so only such kernels may overlap
  // with it. A newer device runs code for older devices if it has no other. Graphs support
  // overlapping kernels from CUDA 12.3 on.
  constexpr int waits = 90;
  if (compute_capability() >= waits && info_.driver_version >= 12030) {
    int version = 0;
    check(kernel_version(version), "cudaFuncGetAttributes");
    overlaps_ = version >= waits;
  }
  if (options.stream != nullptr) {
    stream_ = static_cast<cudaStream_t>(options.stream);
  } else {
    // The Context's own stream is not a non-blocking one: callers that use no streams work on the
    // legacy default stream, and a blocking stream is ordered with that one.
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamDefault), "cudaStreamCreateWithFlags");
    own_stream_ = true;
  }
}

Runtime::~Runtime() {
  close();
}

void Runtime::close() noexcept {
  if (closed_) return;
  closed_ = true;
  const CurrentDevice current(index_, std::nothrow);
  gemm_.reset();
  release(reports_, reported_arrays * sizeof(Report));
  reports_ = nullptr;
  // Work queued on destroyed streams still finishes.
  capture_.release();
  side_.release();
  beside_stream_.release();
  switch_event_ = Event();
  if (own_stream_) forget(cudaStreamDestroy(stream_));
}

void Runtime::set_stream(void* stream) {
  const auto next = static_cast<cudaStream_t>(stream);
  if (next == stream_) return;
  const CurrentDevice current(index_);
  refuse_in_capture("another stream");
  // Captured work cannot wait for work outside the capture. The caller that began the capture must
  // ensure that its graph runs after the work that is queued here.
  if (!captures(next)) {
    if (switch_event_.get() == nullptr) switch_event_ = Event(false);
    check(cudaEventRecord(switch_event_.get(), stream_), "cudaEventRecord");
    check(cudaStreamWaitEvent(next, switch_event_.get(), 0), "cudaStreamWaitEvent");
  }
  // CUDA destroys the stream only after the work queued on it has finished.
  if (own_stream_) forget(cudaStreamDestroy(stream_));
  own_stream_ = false;
  stream_ = next;
}

bool Runtime::capturing() const {
  const CurrentDevice current(index_);
  return asks_capturing();
}

bool Runtime::asks_capturing() const {
  if (depth_ == 0) return captures(first_stream());
  if (!capturing_) capturing_ = captures(first_stream());
  return *capturing_;
}

void Runtime::enter() {
  if (depth_ == 0) {
    scope_.emplace(index_);
    capturing_.reset();
  }
  ++depth_;
}

void Runtime::leave() noexcept {
  if (--depth_ == 0) scope_.reset();
}

void Runtime::refuse_in_capture(std::string_view what) const {
  if (asks_capturing())
    fail(Status::invalid_state,
         "{} is not possible while the stream is being captured; run the same call once before the "
         "capture",
         what);
}

std::size_t Runtime::free_bytes() const {
  const CurrentDevice current(index_);
  std::size_t free_now = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free_now, &total), "cudaMemGetInfo");
  return free_now;
}

std::string Runtime::wrong_memory(const void* data) const {
  const CurrentDevice current(index_);
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, data);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    return "is not memory that CUDA knows";
  }
  switch (attributes.type) {
    case cudaMemoryTypeUnregistered:
      return "is host memory";
    case cudaMemoryTypeDevice:
      if (attributes.device != index_)
        return fmt::format("is memory of cuda:{}", attributes.device);
      return {};
    case cudaMemoryTypeHost:  // pinned host memory: the device reads it over the bus
      if (attributes.devicePointer != data)
        return "is pinned host memory that the device cannot access";
      return {};
    default:  // managed
      return {};
  }
}

void* Runtime::allocate(std::size_t bytes) {
  const CurrentDevice current(index_);
  refuse_in_capture(fmt::format("a new allocation of {} bytes", bytes));
  void* data = nullptr;
  if (allocator_.allocate != nullptr) {
    data = allocator_.allocate(allocator_.user, bytes, stream_);
    if (data == nullptr)
      fail(Status::out_of_memory, "the Context's allocator could not allocate {} bytes", bytes);
  } else if (pools_) {
    check(cudaMallocAsync(&data, bytes, stream_), "cudaMallocAsync", "{} bytes", bytes);
  } else {
    check(cudaMalloc(&data, bytes), "cudaMalloc", "{} bytes", bytes);
  }
  // The allocation is ordered on the first stream, so the concurrent stream has to wait for it.
  if (beside_) start_beside();
  return data;
}

void Runtime::start_beside() {
  check(cudaEventRecord(beside_stream_.event(), first_stream()), "cudaEventRecord");
  check(cudaStreamWaitEvent(beside_stream_.get(), beside_stream_.event(), 0),
        "cudaStreamWaitEvent");
}

void Runtime::release(void* data, std::size_t bytes) noexcept {
  if (data == nullptr) return;
  if (closed_) return release_shared(data, bytes);
  const CurrentDevice current(index_, std::nothrow);
  if (allocator_.release != nullptr)
    return allocator_.release(allocator_.user, data, bytes, stream_);
  forget(pools_ ? cudaFreeAsync(data, stream_) : cudaFree(data));
}

// Reads no member that changes: another thread may be inside a call on the Context meanwhile.
void Runtime::release_shared(void* data, std::size_t bytes) noexcept {
  const CurrentDevice current(index_, std::nothrow);
  // Waits for the whole device: no single stream is ordered after all users of the memory, and
  // cudaFree does not wait if the memory came from a pool.
  forget(cudaDeviceSynchronize());
  if (allocator_.release != nullptr)
    return allocator_.release(allocator_.user, data, bytes, nullptr);
  forget(cudaFree(data));
}

void Runtime::copy(void* to, std::size_t to_stride_bytes, const void* from,
                   std::size_t from_stride_bytes, std::size_t row_bytes, std::int64_t rows) {
  if (row_bytes == 0 || rows == 0 || is_dry_run()) return;
  const CurrentDevice current(index_);
  const auto height = static_cast<std::size_t>(rows);
  if (height == 1 || (to_stride_bytes == row_bytes && from_stride_bytes == row_bytes)) {
    check(cudaMemcpyAsync(to, from, row_bytes * height, cudaMemcpyDefault, cuda_stream()),
          "cudaMemcpyAsync", "{} bytes", row_bytes * height);
    return;
  }
  check(cudaMemcpy2DAsync(to, to_stride_bytes, from, from_stride_bytes, row_bytes, height,
                          cudaMemcpyDefault, cuda_stream()),
        "cudaMemcpy2DAsync", "{} rows of {} bytes", height, row_bytes);
}

void Runtime::fill(void* data, int byte, std::size_t bytes) {
  if (bytes == 0 || is_dry_run()) return;
  const CurrentDevice current(index_);
  check(cudaMemsetAsync(data, byte, bytes, cuda_stream()), "cudaMemsetAsync", "{} bytes", bytes);
}

std::shared_ptr<MemorySource> Runtime::visible_memory() {
  return std::make_shared<Pinned>(index_);
}

void Runtime::convert(ConstAnyMatrix from, AnyMatrix to, bool accumulate) {
  if (to.rows == 0 || to.cols == 0 || is_dry_run()) return;
  const CurrentDevice current(index_);
  const ConvertArguments arguments = {from.data,   to.data,   to.rows,   to.cols,
                                      from.stride, to.stride, accumulate};
  const DType from_type = from.data == nullptr ? DType::f32 : from.dtype;
  check(launch_convert(from_type, to.dtype, arguments, cuda_stream()), "kernel convert", "{}",
        ConstAnyMatrix(to));
}

void Runtime::synchronize() {
  const CurrentDevice current(index_);
  refuse_in_capture("waiting for the stream");
  std::array<Report, reported_arrays> found;
  found.fill(no_report);
  if (reports_ != nullptr)
    check(cudaMemcpyAsync(found.data(), reports_, sizeof found, cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync", "{} bytes", sizeof found);
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  for (int i = 0; i < reported_arrays; ++i) {
    const Report report = found[static_cast<std::size_t>(i)];
    if (report == no_report) continue;
    clear_reports();
    fail(Status::invalid_argument,
         "a grouped operation that was queued before this synchronization read an invalid value "
         "from the device's memory and clamped it: {}",
         describe(static_cast<ReportedArray>(i), report));
  }
}

void Runtime::synchronize_device() {
  const CurrentDevice current(index_);
  refuse_in_capture("waiting for the device");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void Runtime::clear_reports() {
  check(cudaMemsetAsync(reports_, 0xFF, reported_arrays * sizeof(Report), first_stream()),
        "cudaMemsetAsync");
}

Report* Runtime::reports() {
  if (reports_ != nullptr) return reports_;
  const CurrentDevice current(index_);
  reports_ = static_cast<Report*>(allocate(reported_arrays * sizeof(Report)));
  clear_reports();
  if (beside_) start_beside();
  return reports_;
}

std::unique_ptr<DeviceTimer> Runtime::make_timer() {
  const CurrentDevice current(index_);
  return std::make_unique<Timer>(*this);
}

void Runtime::begin_capture() {
  const CurrentDevice current(index_);
  refuse_in_capture("a capture");
  capturing_.reset();
  if (!capture_.made()) capture_.make();
  check(cudaStreamBeginCapture(capture_.get(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  captures_ = true;
}

std::unique_ptr<DeviceGraph> Runtime::end_capture() {
  const CurrentDevice current(index_);
  cudaGraph_t graph = nullptr;
  captures_ = false;
  capturing_.reset();
  check(cudaStreamEndCapture(capture_.get(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  return std::make_unique<Graph>(*this, executable);
}

void SideStream::make() {
  event_ = Event(false);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

void SideStream::release() noexcept {
  event_ = Event();
  if (stream_ != nullptr) forget(cudaStreamDestroy(stream_));
  stream_ = nullptr;
}

cudaStream_t Runtime::side_stream() {
  if (!side_.made()) {
    const CurrentDevice current(index_);
    refuse_in_capture("a second stream");
    side_.make();
  }
  return side_.get();
}

bool Runtime::enter_beside() {
  const CurrentDevice current(index_);
  if (!beside_stream_.made()) {
    if (captures(first_stream())) return false;
    beside_stream_.make();
  }
  if (!is_dry_run()) start_beside();
  beside_ = true;
  return true;
}

void Runtime::join_beside() {
  if (is_dry_run()) return;
  const CurrentDevice current(index_);
  check(cudaEventRecord(beside_stream_.event(), beside_stream_.get()), "cudaEventRecord");
  check(cudaStreamWaitEvent(first_stream(), beside_stream_.event(), 0), "cudaStreamWaitEvent");
}

}  // namespace switchback::core::cuda
