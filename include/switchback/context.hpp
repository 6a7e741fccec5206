// SPDX-License-Identifier: Apache-2.0
// Entry zone: the Context, which holds one device, its threads or stream, and scratch memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "switchback/export.h"
#include "switchback/language.hpp"

namespace switchback {

class ConfigSource;   // defined in src/core/config_source.hpp; the tuner implements it
struct ContextState;  // defined in src/core/context_state.hpp

/// Functions that supply a CUDA Context with device memory, instead of the driver's pool. The
/// thread that uses the Context calls them. A thread that destroys an object made with the Context
/// may also call release. `stream` is the stream in whose order the memory is used. release gets a
/// null stream once the Context is destroyed, and for the memory of a weight that layers share. The
/// device has then finished all work that used the memory.
struct DeviceAllocator {
  /// Returns at least `bytes` of device memory, aligned to 256 bytes, or null on failure.
  void* (*allocate)(void* user, std::size_t bytes, void* stream) = nullptr;
  /// Takes back `data`, which allocate returned for this number of bytes.
  void (*release)(void* user, void* data, std::size_t bytes, void* stream) = nullptr;
  void* user = nullptr;  ///< passed to allocate and release as their first argument
};

/// The options of a new Context. The defaults use the best device of this machine, and all CPU
/// cores.
struct ContextOptions {
  /// The device: "cpu", "cuda" (the first CUDA device) or "cuda:N". Empty: the best device of this
  /// machine, which is a CUDA device that this build can use, else the CPU.
  std::string device = {};
  /// The number of CPU threads. 0: one for each core that this process may run on, but at most the
  /// whole cores of its container's CPU quota (cgroup v1 and v2). A CUDA Context uses one thread.
  /// If the threads cannot be created (a limit on processes), the constructor throws
  /// Error(out_of_memory).
  int threads = 0;
  /// Upper bound on the instruction set used on a CPU, for tests and comparisons: "scalar", or of
  /// x86 "sse4", "avx2", "avx_vnni", "avx512", "avx512_vnni", "amx", or of 64-bit Arm "neon",
  /// "neon_dotprod", "neon_i8mm", or empty for no bound. For another name the Context's constructor
  /// throws an Error that lists all names. Codes and int32 sums are the same at every level.
  std::string isa = {};
  /// CUDA: the stream (a cudaStream_t of that device) on which every operation is queued; it must
  /// outlive the Context. Null creates a stream, ordered with the legacy default stream. (To use
  /// the legacy default stream itself, pass cudaStreamLegacy, (void*)1.) Must be null on the CPU.
  void* stream = nullptr;
  /// CUDA: functions that supply device memory. Set both, or neither to use the driver's pool. Must
  /// be empty on the CPU.
  DeviceAllocator allocator = {};
};

/// What an operation needs in addition to its operands: a device, its threads or stream, and
/// scratch memory (the workspace). Move-only; used by one thread at a time. Creating a Context is
/// cheap. The first operations allocate the workspace, which grows to the largest size needed and
/// is then reused: once every shape has been seen, calls allocate nothing.
///
/// After fork() a child may use and destroy its parent's CPU Contexts and the objects made with
/// them, and may create its own. The calling thread then does all the work, and results are those
/// of one thread. (In a build without OpenMP, Contexts that the child creates have threads again.)
/// A CUDA Context does not survive: its calls throw Error(invalid_state), and the child may only
/// destroy it. Fork while no other thread is inside a call of the library: a lock which that thread
/// holds (the tuner's, in its first look-up of a problem) stays locked in the child. A child of
/// vfork() may only exec.
///
/// On a CUDA device all pointers (matrices, scales, biases) refer to memory of that device.
/// Operations are queued on the stream and do not wait for it. A call that does not have to
/// allocate can be captured into a CUDA graph. The graph refers to the Context's workspace and to
/// the layer's caches: keep both alive, and do not use the Context elsewhere while the graph runs.
class SWITCHBACK_API Context {
 public:
  /// Opens the device. Throws Error if the device does not exist or the options contradict each
  /// other.
  explicit Context(const ContextOptions& options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// The device, as ContextOptions::device names it: "cpu", "cuda:0".
  [[nodiscard]] std::string device() const;
  /// The number of CPU threads, of which the calling one is the first; 1 on a CUDA device.
  [[nodiscard]] int threads() const noexcept;
  /// The instruction set in use, as ContextOptions::isa names it.
  [[nodiscard]] std::string_view isa() const noexcept;
  /// Bytes of scratch memory that the Context holds now.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept;

  /// The CUDA stream on which operations are queued; null on the CPU.
  [[nodiscard]] void* stream() const noexcept;
  /// CUDA: from now on operations are queued on `stream`, which belongs to the caller and to the
  /// same device. They run after what was queued on the previous stream; both streams must exist.
  /// Refused: null (the legacy default stream is (void*)1), a CPU Context, and a call while the
  /// previous stream is being captured.
  ///
  /// The new stream may itself be one that is being captured. A captured graph cannot wait for work
  /// queued before the capture, so the caller must ensure that order: wait for the stream or the
  /// device before the capture, as torch.cuda.graph does.
  void set_stream(void* stream);
  /// Waits until all operations queued on the stream are done, and throws if any of them failed.
  /// Throws Error(invalid_argument) if arrays of a grouped operation in the device's memory had
  /// invalid values. No effect on the CPU.
  void synchronize();

  /// Sets the source in which operations look up tuned configurations; null: none. The initial
  /// source follows from the environment variable SWITCHBACK_TUNE.
  void set_config_source(std::shared_ptr<const ConfigSource> source) noexcept;

  /// The Context's internal state, for the library itself. Not part of the API.
  [[nodiscard]] ContextState& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<ContextState> state_;
};

}  // namespace switchback
