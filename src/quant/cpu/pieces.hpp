// SPDX-License-Identifier: Apache-2.0
// Engine zone: kernels for a piece of a matrix, and their arguments.
#pragma once

#include <atomic>
#include <cstdint>

#include "quant/cpu/column_scales.hpp"
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

/// Rotates the rows [begin, end) of o.x, and computes their absmax and codes. With `stream`, codes
/// are stored past the caches. scratch has room for a row of floats.
using RotatedRowsKernel = void (*)(const Request& o, std::int64_t begin, std::int64_t end,
                                   bool stream, float* scratch);
RotatedRowsKernel rotated_rows_kernel(const core::CpuFeatures& features);

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

/// A tile of a matrix to be quantized with the scales of its rows, with those of its columns, or
/// with each of both.
struct BlockTile {
  ConstAnyMatrix x;
  Cut::Piece piece{};
  const Scale* row_scales = nullptr;  ///< the scale of the first row
  std::int64_t row_scale_step = 0;  ///< from one row's scale to the next; 0: one scale for all rows
  std::int8_t* by_row = nullptr;    ///< codes made with row scales, in rows of `stride`
  ColumnScales columns{};           ///< the scales of all columns of the matrix
  std::int8_t* by_column = nullptr;  ///< codes made with column scales, in rows of `stride`
  std::int64_t stride = 0;           ///< of `by_row` and `by_column`: a multiple of 64
  const void* next = nullptr;  ///< where the next tile begins, to prefetch it; null: no prefetch
};

}  // namespace switchback::quant::cpu
