// SPDX-License-Identifier: Apache-2.0
// Core: a device beside the CPU as the layers above see it: its memory, its stream, and how a kind
// of device joins the library. No header of a device's own is needed to use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/device_kind.hpp"
#include "core/device_table.hpp"
#include "core/memory_source.hpp"
#include "switchback/context.hpp"

namespace switchback::core {

/// What a device says of itself.
struct DeviceInfo {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t l2_bytes = 0;
  std::size_t shared_bytes_per_block = 0;  ///< the most a block may have, when it asks for it
  int core_clock_khz = 0;                  ///< 0: not known
  int memory_clock_khz = 0;                ///< 0: not known
  int driver_version = 0;                  ///< 13000: supports CUDA 13.0
  int runtime_version = 0;
  std::string pci_bus_id;

  /// 90 is sm_90.
  [[nodiscard]] int compute_capability() const noexcept {
    return compute_major * 10 + compute_minor;
  }
  /// Why int8 products cannot be faster than floating ones here; empty: they can.
  [[nodiscard]] std::string_view why_no_int8() const noexcept {
    return compute_capability() == 103
               ? "the tensor cores of compute capability 10.3 have given up int8 for narrow "
                 "floating "
                 "point: int8 products run at a small part of the rate of bf16"
               : std::string_view();
  }
};

/// Time between two points of a stream, measured by the device.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  virtual void start() = 0;
  virtual void stop() = 0;
  /// Waits for the second point.
  virtual double seconds() = 0;
};

/// Work that was captured from a stream, to be queued again as a whole.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch() = 0;
};

/// One Context's device: memory and a stream. Every call that takes the device's time is queued on
/// the stream and returns at once, but for those that say that they wait. Failures throw Error with
/// the status' name and the call. As MemorySource it allocates in the stream's order, aligned to at
/// least 256 bytes, and refuses while the stream is being captured.
class DeviceRuntime : public MemorySource {
 public:
  [[nodiscard]] virtual const DeviceInfo& info() const noexcept = 0;
  /// The cudaStream_t.
  [[nodiscard]] virtual void* stream() const noexcept = 0;
  /// Queues on another stream, the caller's, from here on, behind what is queued on the present
  /// one; but for a stream that is being captured, which can wait for nothing outside.
  virtual void set_stream(void* stream) = 0;
  [[nodiscard]] virtual bool capturing() const = 0;
  /// Bytes of the device's memory that nobody has taken.
  [[nodiscard]] virtual std::size_t free_bytes() const = 0;

  /// Why an operation of this device cannot read or write memory at this address; empty if it can.
  [[nodiscard]] virtual std::string wrong_memory(const void* data) const = 0;

  /// `rows` rows of `row_bytes`, between any two places of this device and the host. Waits only
  /// where pageable host memory is involved.
  virtual void copy(void* to, std::size_t to_stride_bytes, const void* from,
                    std::size_t from_stride_bytes, std::size_t row_bytes, std::int64_t rows) = 0;
  /// Sets bytes of the device to a value.
  virtual void fill(void* data, int byte, std::size_t bytes) = 0;
  /// Memory that the host can access too, while no operation is queued that uses it. Slow: it is
  /// for checks.
  virtual std::shared_ptr<MemorySource> visible_memory() = 0;
  /// to (+)= from, in f32 and rounded once to the type of `to`. A `from` of stride zero gives each
  /// row of `to` the same values; one without data is zero.
  virtual void convert(ConstAnyMatrix from, AnyMatrix to, bool accumulate) = 0;
  /// Waits until everything queued so far is done, and throws what went wrong in it; also values of
  /// arrays in device memory that kernels found wrong, and clamped.
  virtual void synchronize() = 0;
  /// Waits until everything queued on the device is done, by any Context of this process.
  virtual void synchronize_device() = 0;

  /// Queues on a stream beside the first from here on, behind what is queued so far. False, and
  /// nothing is changed, where that stream would have to be made during a capture.
  virtual bool enter_beside() = 0;
  /// Queues on the first stream again, which does not wait for the other.
  virtual void leave_beside() noexcept = 0;
  /// What is queued on the first stream from here on waits for the other.
  virtual void join_beside() = 0;

  /// While on, nothing is queued: the rehearsal of core/rehearsal.hpp. Memory is given out, streams
  /// and plans are made.
  void rehearse(bool on) noexcept { rehearsing_ = on; }
  [[nodiscard]] bool rehearsing() const noexcept { return rehearsing_; }

  /// Begins and ends an operation of this Context, or a part of one: what does not change meanwhile
  /// is asked once. See DeviceScope.
  virtual void enter() {}
  virtual void leave() noexcept {}

  virtual std::unique_ptr<DeviceTimer> make_timer() = 0;
  /// From here on what is queued is recorded and not run, whatever other threads do meanwhile.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<DeviceGraph> end_capture() = 0;

  /// The Context is gone: memory is given back from here on without its stream.
  virtual void close() noexcept = 0;

 private:
  bool rehearsing_ = false;
};

/// A kind of device that this process can use.
struct DevicePlatform {
  /// How many devices there are; where there are none, why, in a few words.
  int (*count)(std::string& why_none);
  /// A device's stream and memory. Throws Error(device_error) that says what is missing.
  std::shared_ptr<DeviceRuntime> (*open)(int index, const ContextOptions& options);
};

/// The platform of each kind; null where this build has none. The CPU has none and needs none.
DeviceTable<const DevicePlatform*>& device_platforms() noexcept;

/// "cpu", "cuda", "emulated"
std::string_view device_kind_name(DeviceKind kind) noexcept;

/// The class of operands' alignment that a tuned configuration may depend on: 16 if all addresses
/// (and the distances of rows in bytes, where they are given too) are multiples of 16, else 1;
/// always 0 on the CPU, whose engines do not care.
std::int64_t alignment_class(const ContextState& state,
                             std::initializer_list<const void*> addresses,
                             std::initializer_list<std::int64_t> strides_bytes = {}) noexcept;

/// Throws Error(invalid_state) where a parent process made a Context of a device before fork(): a
/// device's context is that process' own. A CPU Context passes.
void check_process(const ContextState& state, std::string_view op);

/// DeviceInfo::why_no_int8() of this Context's device; empty on a CPU.
std::string_view why_no_int8(const ContextState& state) noexcept;

/// An operation of many parts, as long as the object lives. Before it, check_process: nothing of a
/// device may be asked in a process that inherited it.
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

/// check_disjoint, and on a device: check_process, and every operand lies in memory that the device
/// can use.
void check_operands(const ContextState& state, std::string_view op,
                    std::initializer_list<Operand> outputs, std::initializer_list<Operand> inputs);

}  // namespace switchback::core

/// device_name()
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
