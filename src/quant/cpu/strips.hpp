// SPDX-License-Identifier: Apache-2.0
// Engine zone: the arguments of the kernel that computes codes of columns strip by strip.
#pragma once

#include <cstdint>

#include "quant/cpu/engine.hpp"

namespace switchback::quant::cpu {

/// The number of rows whose codes are transposed at a time.
inline constexpr std::int64_t strip_rows = 64;

/// The work of a StripKernel: a block of rows by some columns, each of which has its own scale.
struct StripJob {
  ConstAnyMatrix x;
  MatrixView<std::int8_t> q_t;  ///< [cols, rows]; rows up to the next multiple of strip_rows get 0
  float* absmax = nullptr;      ///< output: absmax of the columns, at any address
  bool stream = false;          ///< stores past the caches: q_t and its stride are multiples of 64
  bool cold = false;            ///< x has not been prefetched
  /// Where the matrix begins that is read after x, and has the same number of rows, to prefetch it;
  /// null: not known.
  const void* next = nullptr;
  std::int64_t next_cols = 0;  ///< the number of columns of the matrix at `next`
};

/// The bytes of scratch memory that a StripKernel needs for a number of rows: two cache lines for
/// each row.
constexpr std::int64_t strip_scratch_bytes(std::int64_t rows) {
  return 2 * ((rows + strip_rows - 1) / strip_rows * strip_rows * 64);
}

using StripKernel = void (*)(const StripJob& job, std::byte* scratch);
/// Returns null if the CPU's vectors are too short, or too few, for a transposition in registers.
StripKernel strip_kernel(const core::CpuFeatures& features);

}  // namespace switchback::quant::cpu
