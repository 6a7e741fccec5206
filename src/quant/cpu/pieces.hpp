// SPDX-License-Identifier: Apache-2.0
// Engine zone: kernels for a piece of a matrix, shared by several operations.
#pragma once

#include <atomic>
#include <cstdint>

#include "quant/cpu/engine.hpp"
#include "quant/cpu/scale.hpp"

namespace switchback::quant::cpu {

/// The largest magnitude in the piece, as the bits of an f32 (see absmax_from_bits).
using AbsmaxKernel = std::uint32_t (*)(const ConstAnyMatrix& x, const Cut::Piece& piece);
AbsmaxKernel absmax_kernel(const core::CpuFeatures& features);

/// Computes the codes of a piece of x, all with one scale. With `stream`, codes are stored past the
/// caches.
using CodesKernel = void (*)(const ConstAnyMatrix& x, const MatrixView<std::int8_t>& q,
                             const Cut::Piece& piece, const Scale& scale, bool stream);
CodesKernel codes_kernel(const core::CpuFeatures& features);

inline void raise(std::atomic<std::uint32_t>& maximum, std::uint32_t value) noexcept {
  std::uint32_t seen = maximum.load(std::memory_order_relaxed);
  while (seen < value && !maximum.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace switchback::quant::cpu
