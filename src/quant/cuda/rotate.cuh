// SPDX-License-Identifier: Apache-2.0
// Device code: calls with the group size of a rotation as a constant.
#pragma once

#include <type_traits>

#include "core/cuda/api.hpp"
#include "switchback/rotation.hpp"

namespace switchback::quant::cuda {

namespace {

/// Calls f with the rotation's group size as a compile-time constant.
template <class F>
cudaError_t for_group(Rotation rotation, F f) {
  switch (rotation) {
    case Rotation::hadamard_4:
      return f(std::integral_constant<int, 4>());
    case Rotation::hadamard_16:
      return f(std::integral_constant<int, 16>());
    case Rotation::hadamard_64:
      return f(std::integral_constant<int, 64>());
    case Rotation::hadamard_256:
      return f(std::integral_constant<int, 256>());
    default:
      return f(std::integral_constant<int, 1024>());
  }
}

}  // namespace

}  // namespace switchback::quant::cuda
