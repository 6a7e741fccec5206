// SPDX-License-Identifier: Apache-2.0
// CUDA core: one Context's CUDA device: stream, memory, events.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/context_state.hpp"
#include "core/cuda/api.hpp"
#include "core/device.hpp"

namespace switchback::core::SWITCHBACK_CUDA_NS {

/// Makes a device the calling thread's current one for a scope, as every call here needs.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  ///< -1: it was the current one already
};

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

/// Something a higher layer keeps with the device: the handle of a library, its plans.
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

  void copy(void* to, std::size_t to_stride_bytes, const void* from, std::size_t from_stride_bytes,
            std::size_t row_bytes, std::int64_t rows) override;
  void fill(void* data, int byte, std::size_t bytes) override;
  std::shared_ptr<MemorySource> visible_memory() override;
  void convert(ConstAnyMatrix from, AnyMatrix to, bool accumulate) override;
  void synchronize() override;
  std::unique_ptr<DeviceTimer> make_timer() override;
  void begin_capture() override;
  std::unique_ptr<DeviceGraph> end_capture() override;
  void close() noexcept override;

  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] cudaStream_t cuda_stream() const noexcept { return stream_; }
  [[nodiscard]] int compute_capability() const noexcept { return info_.compute_capability(); }

  /// A second stream of the device, for work that runs beside the first; ordered by events alone.
  /// Made on first use, which must not fall into a capture.
  cudaStream_t side_stream();
  /// An event to order the two streams by, made with side_stream(): calls in turn share it.
  [[nodiscard]] cudaEvent_t side_event() const noexcept { return side_event_.get(); }

  /// What a layer keeps here, in a place of its own: null until it put something there.
  enum class Slot { gemm };
  [[nodiscard]] Extension* extension(Slot) const noexcept { return gemm_.get(); }
  void set_extension(Slot, std::unique_ptr<Extension> extension) noexcept {
    gemm_ = std::move(extension);
  }

 private:
  void refuse_in_capture(std::string_view what) const;

  int index_;
  DeviceInfo info_;
  DeviceAllocator allocator_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t side_stream_ = nullptr;
  Event side_event_;
  Event switch_event_;  ///< orders a new stream behind the one before
  bool own_stream_ = false;
  bool closed_ = false;
  bool pools_ = false;  ///< cudaMallocAsync works here
  std::unique_ptr<Extension> gemm_;
};

/// The runtime of a Context on this backend's device.
inline Runtime& runtime(const ContextState& state) noexcept {
  return static_cast<Runtime&>(*state.runtime);
}

}  // namespace switchback::core::SWITCHBACK_CUDA_NS
