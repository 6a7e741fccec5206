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
#include "core/cuda/reports.hpp"
#include "core/device.hpp"

namespace switchback::core::cuda {

class Event {
 public:
  Event() = default;
  /// An event of the current device; `timing` makes it one that cudaEventElapsedTime takes.
  explicit Event(bool timing);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A stream that is ordered with others only by events, and an event for that.
class SideStream {
 public:
  SideStream() = default;
  ~SideStream() { release(); }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;
  [[nodiscard]] bool made() const noexcept { return stream_ != nullptr; }
  /// On the current device.
  void make();
  /// What is queued keeps running.
  void release() noexcept;
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
  [[nodiscard]] cudaEvent_t event() const noexcept { return event_.get(); }

 private:
  cudaStream_t stream_ = nullptr;
  Event event_;
};

/// State of a higher layer that lives with the device: a library's handle, its plans.
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
  /// Where work is queued.
  [[nodiscard]] cudaStream_t cuda_stream() const noexcept {
    return beside_ ? beside_stream_.get() : first_stream();
  }
  [[nodiscard]] int compute_capability() const noexcept { return info_.compute_capability(); }
  /// Whether a kernel that waits for the one before it may be launched to overlap with that, in
  /// captures too.
  [[nodiscard]] bool overlaps() const noexcept { return overlaps_; }

  /// Whether kernels may be launched whose blocks wait for each other and copy asynchronously.
  [[nodiscard]] bool cooperates() const noexcept { return cooperates_; }

  /// A second stream of the device, for parts of one operation; ordered by events alone. Made on
  /// first use, which must not fall into a capture. (Operations run beside each other on a third.)
  cudaStream_t side_stream();
  /// An event to order the two streams by, made with side_stream(): calls in turn share it.
  [[nodiscard]] cudaEvent_t side_event() const noexcept { return side_.event(); }

  /// A word for each ReportedArray in device memory, made on first use, which must not fall into a
  /// capture. synchronize() throws Error(invalid_argument) for the first that was written since the
  /// last one.
  Report* reports();

  /// What a layer keeps here, in a place of its own: null until it put something there.
  enum class Slot { gemm };
  [[nodiscard]] Extension* extension(Slot) const noexcept { return gemm_.get(); }
  void set_extension(Slot, std::unique_ptr<Extension> extension) noexcept {
    gemm_ = std::move(extension);
  }

 private:
  /// The stream operations are queued on that do not run beside others.
  [[nodiscard]] cudaStream_t first_stream() const noexcept {
    return captures_ ? capture_.get() : stream_;
  }
  /// Whether the first stream is being captured; the device is current.
  [[nodiscard]] bool asks_capturing() const;
  /// The device is current.
  void refuse_in_capture(std::string_view what) const;
  void clear_reports();
  /// What is queued on the stream beside the first waits for what is queued on that so far.
  void start_beside();

  int index_;
  // What was asked since the outermost enter().
  int depth_ = 0;
  std::optional<CurrentDevice> scope_;
  mutable std::optional<bool> capturing_;
  DeviceInfo info_;
  DeviceAllocator allocator_;
  cudaStream_t stream_ = nullptr;
  /// begin_capture() captures this one, which is ordered with no other: during the capture of one
  /// that is ordered with the legacy default stream, any other thread's use of that would be an
  /// error there and end the capture here. Graphs are launched on `stream_`.
  SideStream capture_;
  bool captures_ = false;
  SideStream side_;
  SideStream beside_stream_;
  bool beside_ = false;
  Event switch_event_;  ///< orders a new stream behind the one before
  bool own_stream_ = false;
  bool closed_ = false;
  bool overlaps_ = false;
  bool cooperates_ = false;
  bool pools_ = false;  ///< cudaMallocAsync works here
  std::unique_ptr<Extension> gemm_;
  Report* reports_ = nullptr;
};

/// The runtime of a Context on this backend's device.
inline Runtime& runtime(const ContextState& state) noexcept {
  return static_cast<Runtime&>(*state.runtime);
}

}  // namespace switchback::core::cuda
