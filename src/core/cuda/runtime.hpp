// SPDX-License-Identifier: Apache-2.0
// CUDA core: one Context's CUDA device: stream, memory, events.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/context_state.hpp"
#include "core/cuda/api.hpp"
#include "core/cuda/current_device.hpp"
#include "core/cuda/groups.hpp"
#include "core/device.hpp"

namespace switchback::core::cuda {

class Event {
 public:
  Event() = default;
  /// An event of the current device; with `timing`, cudaEventElapsedTime accepts it.
  explicit Event(bool timing);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A stream that is ordered with other streams only by events, and an event for that purpose.
class SideStream {
 public:
  SideStream() = default;
  ~SideStream() { release(); }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  [[nodiscard]] bool made() const noexcept { return stream_ != nullptr; }
  /// Creates the stream and its event on the current device.
  void make();
  /// Destroys the stream and its event. Work that is queued on the stream keeps running.
  void release() noexcept;
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
  [[nodiscard]] cudaEvent_t event() const noexcept { return event_.get(); }

 private:
  cudaStream_t stream_ = nullptr;
  Event event_;
};

/// State of a higher layer that lives as long as the device, such as a library's handle and plans.
class Extension {
 public:
  virtual ~Extension() = default;
};

class Runtime final : public DeviceRuntime {
 public:
  Runtime(int index, const ContextOptions& options);
  ~Runtime() override;

  [[nodiscard]] const DeviceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] void* stream() const noexcept override { return stream_; }
  void set_stream(void* stream) override;
  [[nodiscard]] bool capturing() const override;
  [[nodiscard]] bool pins() const override { return capturing(); }
  [[nodiscard]] std::size_t free_bytes() const override;
  [[nodiscard]] std::string wrong_memory(const void* data) const override;

  void* allocate(std::size_t bytes) override;
  void release(void* data, std::size_t bytes) noexcept override;
  void release_shared(void* data, std::size_t bytes) noexcept override;

  void copy(void* to, std::size_t to_stride_bytes, const void* from, std::size_t from_stride_bytes,
            std::size_t row_bytes, std::int64_t rows) override;
  void fill(void* data, int byte, std::size_t bytes) override;
  std::shared_ptr<MemorySource> visible_memory() override;
  void convert(ConstAnyMatrix from, AnyMatrix to, bool accumulate) override;
  void synchronize() override;
  void synchronize_device() override;
  bool enter_beside() override;
  void leave_beside() noexcept override { beside_ = false; }
  void join_beside() override;
  void enter() override;
  void leave() noexcept override;
  std::unique_ptr<DeviceTimer> make_timer() override;
  void begin_capture() override;
  std::unique_ptr<DeviceGraph> end_capture() override;
  void close() noexcept override;

  [[nodiscard]] int index() const noexcept { return index_; }
  /// The stream on which work is queued now: the first stream or the concurrent one.
  [[nodiscard]] cudaStream_t cuda_stream() const noexcept {
    return beside_ ? beside_stream_.get() : first_stream();
  }
  [[nodiscard]] int compute_capability() const noexcept { return info_.compute_capability(); }
  /// Whether launch_behind may start a kernel so that it overlaps with the previous kernel, also
  /// during a capture.
  [[nodiscard]] bool overlaps() const noexcept { return overlaps_; }

  /// Whether the device can run cooperative kernels, whose blocks wait for each other, and can copy
  /// asynchronously.
  [[nodiscard]] bool cooperates() const noexcept { return cooperates_; }

  /// A second stream of the device, for parts of one operation; only events order it. The first
  /// use, which must not be during a capture, creates it. (Operations that run concurrently use a
  /// third stream.)
  cudaStream_t side_stream();
  /// An event that orders the first and the side stream, created with side_stream(). Successive
  /// calls share it.
  [[nodiscard]] cudaEvent_t side_event() const noexcept { return side_.event(); }

  /// The reports of kernels: a word of device memory for each ReportedArray. They are allocated on
  /// first use, which must not be during a capture. synchronize() throws Error(invalid_argument)
  /// for the first report that was written since the previous synchronize().
  Report* reports();

  /// State that a higher layer keeps in its own slot of a Runtime; null until the layer stores it.
  enum class Slot { gemm };
  [[nodiscard]] Extension* extension(Slot) const noexcept { return gemm_.get(); }
  void set_extension(Slot, std::unique_ptr<Extension> extension) noexcept {
    gemm_ = std::move(extension);
  }

 private:
  /// The stream for operations that do not run concurrently with others of this Context.
  [[nodiscard]] cudaStream_t first_stream() const noexcept {
    return captures_ ? capture_.get() : stream_;
  }
  /// Whether the first stream is being captured. The caller has made the device current.
  [[nodiscard]] bool asks_capturing() const;
  /// Throws Error(invalid_state) if the first stream is being captured. The caller has made the
  /// device current.
  void refuse_in_capture(std::string_view what) const;
  void clear_reports();
  /// Makes the concurrent stream wait for the work that is queued on the first stream so far.
  void start_beside();

  int index_;
  // State since the outermost enter(): the nesting depth, the current device, and whether the first
  // stream is being captured.
  int depth_ = 0;
  std::optional<CurrentDevice> scope_;
  mutable std::optional<bool> capturing_;
  DeviceInfo info_;
  DeviceAllocator allocator_;
  cudaStream_t stream_ = nullptr;
  /// begin_capture() captures this stream, which is not ordered with any other. If the captured
  /// stream were ordered with the legacy default stream, any use of that stream by another thread
  /// would fail and end the capture. Graphs are launched on `stream_`.
  SideStream capture_;
  bool captures_ = false;
  SideStream side_;
  SideStream beside_stream_;
  bool beside_ = false;
  Event switch_event_;  ///< event that orders a new stream after the previous one
  bool own_stream_ = false;
  bool closed_ = false;
  bool overlaps_ = false;
  bool cooperates_ = false;
  bool pools_ = false;  ///< whether the device supports cudaMallocAsync
  std::unique_ptr<Extension> gemm_;
  Report* reports_ = nullptr;
};

/// The Runtime of a Context, which must be on a device of this backend.
inline Runtime& runtime(const ContextState& state) noexcept {
  return static_cast<Runtime&>(*state.runtime);
}

}  // namespace switchback::core::cuda
