// SPDX-License-Identifier: Apache-2.0
// Engine zone: the arguments of the kernel whose codes are passed on block by block.
#pragma once

#include <cstdint>

#include "quant/cpu/column_scales.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/scale.hpp"

namespace switchback::quant::cpu {

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
