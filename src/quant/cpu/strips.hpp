// SPDX-License-Identifier: Apache-2.0
// Engine zone: the arguments of the kernel that computes codes of columns strip by strip.
#pragma once

#include <cstdint>

#include "quant/cpu/engine.hpp"

namespace switchback::quant::cpu {

/// Rows whose codes a strip transposes at a time.
inline constexpr std::int64_t strip_rows = 64;

/// A block of rows by some columns; each column has its own scale.
struct StripJob {
  ConstAnyMatrix x;
  MatrixView<std::int8_t> q_t;  ///< [cols, rows]; rows up to the next multiple of strip_rows get 0
  float* absmax = nullptr;      ///< of the columns, at any address: written
  bool stream = false;          ///< q_t and its stride are multiples of 64
  bool cold = false;            ///< x has not been prefetched
  /// Where the same number of rows begin that come after x; null: not known.
  const void* next = nullptr;
  std::int64_t next_cols = 0;  ///< the columns of these rows
};

/// The bytes of scratch for this number of rows: two cache lines for each row.
constexpr std::int64_t strip_scratch_bytes(std::int64_t rows) {
  return 2 * ((rows + strip_rows - 1) / strip_rows * strip_rows * 64);
}

using StripKernel = void (*)(const StripJob& job, std::byte* scratch);
/// Null if the vectors are too short, or too few, for a transposition in registers.
StripKernel strip_kernel(const core::CpuFeatures& features);

}  // namespace switchback::quant::cpu
