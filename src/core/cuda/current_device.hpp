// SPDX-License-Identifier: Apache-2.0
// CUDA core: the current device of the calling thread.
#pragma once

#include <new>

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// Makes a device the calling thread's current one for a scope. Every call to CUDA needs that, also
/// calls that name a stream, because the legacy default stream belongs to the current device. Costs
/// one cudaGetDevice if the device is already current.
///
/// Afterwards the thread's previous device is current again, without being initialised: if nothing
/// in the process has used it yet, cudaSetDevice would initialise it, which takes half a gigabyte
/// of its memory.
class CurrentDevice {
 public:
  /// Throws Error(device_error) if the device cannot be made current.
  explicit CurrentDevice(int index);
  /// Does not throw: if the device cannot be made current, the current device stays the same.
  CurrentDevice(int index, std::nothrow_t) noexcept;
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  /// The device of the calling thread's innermost CurrentDevice; -1 if the thread has none.
  static int innermost() noexcept;

 private:
  cudaError_t enter(int index, const char*& call) noexcept;
  cudaError_t make_current(int index, const char*& call) noexcept;

  int outer_ = -1;       ///< device of the CurrentDevice around this one; -1: none
  int before_ = -1;      ///< device that the destructor makes current again; -1: none
  bool pushed_ = false;  ///< whether a driver context was pushed and must be popped
};

}  // namespace switchback::core::cuda
