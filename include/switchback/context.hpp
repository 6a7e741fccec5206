// SPDX-License-Identifier: Apache-2.0
// Entry zone: the Context: one device, its threads or stream, and one workspace.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "switchback/export.h"

namespace switchback {

class ConfigSource;   // src/core/config_source.hpp; the tuner implements it
struct ContextState;  // src/core/context_state.hpp

/// Where a device Context gets its memory from, in place of the driver's pool. Both functions are
/// called by the thread that uses the Context (release also by one that destroys what holds the
/// memory), with the stream on whose order the memory will be used; null when the Context is gone.
struct DeviceAllocator {
  /// At least `bytes` on the Context's device, aligned to 256 bytes; null if there is none.
  void* (*allocate)(void* user, std::size_t bytes, void* stream) = nullptr;
  void (*release)(void* user, void* data, std::size_t bytes, void* stream) = nullptr;
  void* user = nullptr;
};

/// What a Context is made of. The defaults take the best device there is, whole.
struct ContextOptions {
  /// "cpu", "cuda" (the first), "cuda:N", or empty for the best device of this machine: a CUDA
  /// device this build can use, else the CPU.
  std::string device = {};
  /// CPU threads; 0 means every core this process may run on. A CUDA Context uses one. Where they
  /// cannot be created (a limit on processes), the Context is not: Error(out_of_memory).
  int threads = 0;
  /// Upper bound on the instruction set used on a CPU, for tests and comparisons: "scalar", "sse4",
  /// "avx2", "avx_vnni", "avx512", "avx512_vnni", "amx", or empty for no bound. Codes and int32
  /// sums are the same at every level.
  std::string isa = {};
  /// CUDA: the stream (a cudaStream_t of that device) on which every operation is queued; it must
  /// outlive the Context. Null makes an own one, ordered with the legacy default stream. (That one
  /// itself is cudaStreamLegacy, (void*)1.) Must be null on the CPU.
  void* stream = nullptr;
  /// CUDA: both functions or none. Must be empty on the CPU.
  DeviceAllocator allocator = {};
};

/// Everything an operation needs besides its operands. Move-only; used by one thread at a time.
/// Creating one starts nothing expensive; the first operations allocate the workspace, which grows
/// to the largest need and is then reused, so that a steady state allocates nothing.
///
/// After fork() a child may use and destroy its parent's CPU Contexts and what was made with them,
/// and make its own. All its work is done by the calling thread, with the results of one thread
/// (built without OpenMP, Contexts it makes have threads again). A CUDA Context does not survive:
/// its calls throw Error(invalid_state); the child may only destroy it. Fork while no other thread
/// is inside a call of the library: a lock that it holds (the tuner's, in its first look-up of a
/// problem) stays locked in the child. Children of vfork() may only exec.
///
/// On a CUDA device all pointers (matrices, scales, biases) are of that device, operations are
/// queued on the stream and do not wait for it, and whatever did not have to allocate can be
/// captured into a CUDA graph. A captured graph refers to the Context's workspace and to the
/// layer's caches: keep both, and do not run the Context elsewhere at the same time.
class SWITCHBACK_API Context {
 public:
  explicit Context(const ContextOptions& options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// The device in the form its option takes: "cpu", "cuda:0".
  [[nodiscard]] std::string device() const;
  [[nodiscard]] int threads() const noexcept;
  /// The instruction set in use, in the words of ContextOptions::isa.
  [[nodiscard]] std::string_view isa() const noexcept;
  /// Bytes the workspace holds now.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept;

  /// The stream operations are queued on; null on the CPU.
  [[nodiscard]] void* stream() const noexcept;
  /// CUDA: queues on another stream of the device from here on, the caller's, behind what was
  /// queued before; both streams must exist. Null is refused (the legacy default stream is
  /// (void*)1), and so is the CPU, which has none.
  ///
  /// The other stream may be one that is being captured. What is captured cannot wait for what was
  /// queued before, so the caller sees to it that the graph runs behind that: by waiting for the
  /// stream or the device before the capture, as torch.cuda.graph does. While the present stream is
  /// being captured, the call is refused.
  void set_stream(void* stream);
  /// Waits until everything queued is done, and throws what went wrong in it. Nothing on the CPU.
  void synchronize();

  /// Where operations look up tuned configurations; null (the start) means the defaults.
  void set_config_source(std::shared_ptr<const ConfigSource> source) noexcept;

  /// The library's own view of the Context. Not part of the API.
  [[nodiscard]] ContextState& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<ContextState> state_;
};

}  // namespace switchback
