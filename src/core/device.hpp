// SPDX-License-Identifier: Apache-2.0
// Core: a device other than the CPU as the layers above see it: its memory, its stream, and how a
// kind of device is registered in the library. Using it requires no header of the device's API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "core/aligned_buffer.hpp"
#include "core/check.hpp"
#include "core/device_kind.hpp"
#include "core/device_table.hpp"
#include "switchback/context.hpp"

namespace switchback::core {

/// The properties that a device reports.
struct DeviceInfo {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  std::size_t shared_bytes_per_block = 0;  ///< most shared memory that a block may request
  int core_clock_khz = 0;                  ///< 0: not known
  int memory_clock_khz = 0;                ///< 0: not known
  int driver_version = 0;                  ///< 13000: the driver supports CUDA 13.0
  int runtime_version = 0;
  std::string pci_bus_id;

  /// The compute capability as one number: 90 is sm_90.
  [[nodiscard]] int compute_capability() const noexcept {
    return compute_major * 10 + compute_minor;
  }
  /// Why int8 products cannot be faster than floating-point products on this device; empty if they
  /// can.
  [[nodiscard]] std::string_view why_no_int8() const noexcept {
    return compute_capability() == 103 ? "the tensor cores of compute capability 10.3 compute int8 "
                                         "products at a small fraction of the rate of bf16"
                                       : std::string_view();
  }
};

/// Measures the time between two points of a stream, with the device's own clock.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  virtual void start() = 0;
  virtual void stop() = 0;
  /// The time between start() and stop(). Waits until the stream has reached the point of stop().
  virtual double seconds() = 0;
};

/// Work that was captured from a stream, to be queued again as a whole.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch() = 0;
};

/// The device of one Context: memory and a stream. Every call that uses the device's time is queued
/// on the stream and returns at once, except for calls that say that they wait. Failures throw
/// Error with the name of the status and the call. As a MemorySource it allocates in the stream's
/// order, aligned to at least 256 bytes, and refuses while the stream is being captured.
class DeviceRuntime : public MemorySource {
 public:
  [[nodiscard]] virtual const DeviceInfo& info() const noexcept = 0;
  /// The stream on which work is queued, a cudaStream_t.
  [[nodiscard]] virtual void* stream() const noexcept = 0;
  /// Queues all later work on the caller's `stream`, after the work that is queued on the present
  /// stream. A stream that is being captured does not wait for that work: captured work cannot wait
  /// for work outside of the capture.
  virtual void set_stream(void* stream) = 0;
  [[nodiscard]] virtual bool capturing() const = 0;
  /// The number of bytes of the device's memory that are free.
  [[nodiscard]] virtual std::size_t free_bytes() const = 0;

  /// Why an operation of this device cannot read or write memory at this address; empty if it can.
  [[nodiscard]] virtual std::string wrong_memory(const void* data) const = 0;

  /// Copies `rows` rows of `row_bytes` bytes from device or host to device or host. Waits for the
  /// copy only if pageable host memory is involved.
  virtual void copy(void* to, std::size_t to_stride_bytes, const void* from,
                    std::size_t from_stride_bytes, std::size_t row_bytes, std::int64_t rows) = 0;
  /// Sets `bytes` bytes of device memory to the value `byte`.
  virtual void fill(void* data, int byte, std::size_t bytes) = 0;
  /// A source of memory that the host can access too, while no queued operation uses it. The memory
  /// is slow, and meant for checks.
  virtual std::shared_ptr<MemorySource> visible_memory() = 0;
  /// Stores `from` in `to`, or adds it if `accumulate`, in f32 with one rounding to the type of
  /// `to`. If `from` has stride zero, all rows of `to` get the same values. A `from` without data
  /// is zero.
  virtual void convert(ConstAnyMatrix from, AnyMatrix to, bool accumulate) = 0;
  /// Waits until all work queued so far is done, and throws an Error for what failed. This includes
  /// invalid values in device arrays that kernels clamped and reported.
  virtual void synchronize() = 0;
  /// Waits until all work queued on the device is done, by any Context of this process.
  virtual void synchronize_device() = 0;

  /// Queues all later work on a second stream that runs concurrently with the first stream, after
  /// the work queued so far. Returns false, and changes nothing, if the second stream would have to
  /// be created during a capture.
  virtual bool enter_beside() = 0;
  /// Queues all later work on the first stream again, which does not wait for the second stream.
  virtual void leave_beside() noexcept = 0;
  /// Makes all later work on the first stream wait for the second stream.
  virtual void join_beside() = 0;

  /// While the dry run of core/dry_run.hpp is on, no work is queued. Memory is allocated, and
  /// streams and plans are made.
  void set_dry_run(bool on) noexcept { is_dry_run_ = on; }
  [[nodiscard]] bool is_dry_run() const noexcept { return is_dry_run_; }

  /// enter() begins an operation of this Context or a part of one, and leave() ends it. Device
  /// properties that do not change in between are queried once. See DeviceScope.
  virtual void enter() {}
  virtual void leave() noexcept {}

  virtual std::unique_ptr<DeviceTimer> make_timer() = 0;
  /// Begins a capture: later work is recorded instead of run, regardless of what other threads do.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<DeviceGraph> end_capture() = 0;

  /// Called when the Context is destroyed: later, memory is freed without the Context's stream.
  virtual void close() noexcept = 0;

 private:
  bool is_dry_run_ = false;
};

/// A kind of device that this process can use.
struct DevicePlatform {
  /// Returns the number of devices; if it is 0, sets `why_none` to the reason in a few words.
  int (*count)(std::string& why_none);
  /// Opens a device: its stream and memory. Throws Error(device_error) that says what is missing.
  std::shared_ptr<DeviceRuntime> (*open)(int index, const ContextOptions& options);
};

/// The platform of each kind of device. It is null for the CPU, which needs none, and for kinds
/// that this build does not support.
DeviceTable<const DevicePlatform*>& device_platforms() noexcept;

/// The name of a kind of device: "cpu", "cuda" or "emulated".
std::string_view device_kind_name(DeviceKind kind) noexcept;

/// The class of operand alignment that a tuned configuration may depend on. It is 16 if all
/// addresses (and the distances of rows in bytes, if they are given too) are multiples of 16, else
/// 1. It is always 0 on the CPU, whose engines do not depend on alignment.
std::int64_t alignment_class(const ContextState& state,
                             std::initializer_list<const void*> addresses,
                             std::initializer_list<std::int64_t> strides_bytes = {}) noexcept;

/// Throws Error(invalid_state) if a parent process made a Context of a device before fork(): a
/// device context belongs to the process that made it. A CPU Context passes.
void check_process(const ContextState& state, std::string_view op);

/// DeviceInfo::why_no_int8() of this Context's device; empty if the Context is on the CPU.
std::string_view why_no_int8(const ContextState& state) noexcept;

/// While the object lives, an operation of several parts runs on the device. The constructor calls
/// check_process first: a process that inherited the device by fork() must not query it.
class DeviceScope {
 public:
  DeviceScope(const ContextState& state, std::string_view op);
  ~DeviceScope() {
    if (runtime_ != nullptr) runtime_->leave();
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  DeviceRuntime* runtime_;
};

/// Checks that no output overlaps another operand (check_disjoint). On a device it also checks that
/// this process may use the device (check_process), and that the device can access all operands.
void check_operands(const ContextState& state, std::string_view op,
                    std::initializer_list<Operand> outputs, std::initializer_list<Operand> inputs);

}  // namespace switchback::core

/// Formats a device as device_name() does, such as "cuda:0".
template <>
struct fmt::formatter<switchback::Device> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const switchback::Device& device, fmt::format_context& context) const {
    const std::string_view kind = switchback::core::device_kind_name(device.kind);
    return device.kind == switchback::DeviceKind::cpu
               ? fmt::format_to(context.out(), "{}", kind)
               : fmt::format_to(context.out(), "{}:{}", kind, device.index);
  }
};
