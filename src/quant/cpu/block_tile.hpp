// SPDX-License-Identifier: Apache-2.0
// Engine zone: the arguments of the kernel whose codes are passed on block by block.
#pragma once

#include <cstdint>

#include "quant/cpu/column_scales.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/scale.hpp"

namespace switchback::quant::cpu {

/// A tile to be coded with the scales of its rows, of its columns, or of both.
struct BlockTile {
  ConstAnyMatrix x;
  Cut::Piece piece{};
  const Scale* row_scales = nullptr;  ///< of the first row
  std::int64_t row_scale_step = 0;    ///< from one row's scale to the next
  std::int8_t* by_row = nullptr;      ///< rows of `stride` codes
  ColumnScales columns{};             ///< of the matrix
  std::int8_t* by_column = nullptr;   ///< likewise
  std::int64_t stride = 0;            ///< a multiple of 64
  const void* next = nullptr;  ///< where the next tile begins, to prefetch it; null: no prefetch
};

}  // namespace switchback::quant::cpu
