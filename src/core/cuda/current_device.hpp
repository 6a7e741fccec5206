// SPDX-License-Identifier: Apache-2.0
// CUDA core: which device the calling thread's calls are for.
#pragma once

#include <new>

#include "core/cuda/api.hpp"

namespace switchback::core::SWITCHBACK_CUDA_NS {

/// Makes a device the calling thread's current one for a scope, as every call to CUDA needs: also
/// those that name a stream, for the legacy default stream is that of the current device. Costs one
/// cudaGetDevice where it is the current one already.
///
/// The thread's own device is the current one again afterwards, and is not touched by that: where
/// nothing in the process has used it yet, cudaSetDevice would set it up, which takes half a
/// gigabyte of its memory.
class CurrentDevice {
 public:
  /// Throws Error(device_error).
  explicit CurrentDevice(int index);
  /// Where it fails, the current device remains what it was.
  CurrentDevice(int index, std::nothrow_t) noexcept;
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  cudaError_t enter(int index, const char*& call) noexcept;

  int before_ = -1;      ///< to be made the current one again; -1: nothing is to be done
  bool pushed_ = false;  ///< a context was pushed that is to be popped
};

}  // namespace switchback::core::SWITCHBACK_CUDA_NS
