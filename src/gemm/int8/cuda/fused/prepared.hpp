// SPDX-License-Identifier: Apache-2.0
// Engine zone: the parameters of launches, kept for the next launch on the same operands. Making
// them asks the driver for three copy descriptors (TMA), which takes longer than the launch itself.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "gemm/int8/cuda/fused/fused.hpp"

namespace switchback::products::cuda {

/// The last few launches of a kernel in this thread. A launch is prepared only from its arguments:
/// addresses, shapes and strides. The contents of the operands do not matter.
template <class Launch>
class Prepared {
 public:
  static constexpr std::size_t most = 16;

  /// The launch for these arguments, either kept or made by prepare(launch). If prepare() fails,
  /// its error is returned and nothing is kept.
  template <class Prepare>
  cudaError_t find(const FusedArguments& arguments, const Prepare& prepare, Launch*& launch) {
    for (std::unique_ptr<Entry>& entry : entries_)
      if (entry != nullptr && entry->arguments == arguments) {
        launch = &entry->launch;
        return cudaSuccess;
      }
    auto made = std::make_unique<Entry>();
    made->arguments = arguments;
    if (const cudaError_t status = prepare(made->launch); status != cudaSuccess) return status;
    std::unique_ptr<Entry>& place = entries_[next_];
    next_ = (next_ + 1) % most;
    place = std::move(made);
    launch = &place->launch;
    return cudaSuccess;
  }

 private:
  struct Entry {
    FusedArguments arguments;
    Launch launch;
  };
  std::array<std::unique_ptr<Entry>, most> entries_;
  std::size_t next_ = 0;  // position of the oldest entry
};

}  // namespace switchback::products::cuda
