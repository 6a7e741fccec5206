// SPDX-License-Identifier: Apache-2.0
// Engine zone: what the transposing kernel is told.
#pragma once

#include <cstdint>

#include "quant/cpu/engine.hpp"
#include "quant/cpu/scale.hpp"

namespace switchback::quant::cpu {

/// Scales of all columns, 64-byte aligned and padded to a multiple of 64.
struct ColumnScales {
  float* lower = nullptr;
  float* upper = nullptr;
  float* divisor = nullptr;         ///< absmax, or 0 where codes are 0
  bool* group_bracketed = nullptr;  ///< for 64 columns each: whether none needs the division

  [[nodiscard]] bool bracketed(std::int64_t begin, std::int64_t end) const {
    return std::all_of(group_bracketed + begin / 64, group_bracketed + (end + 63) / 64,
                       [](bool b) { return b; });
  }
};

struct TileJob {
  ConstAnyMatrix x;
  MatrixView<std::int8_t> q;  ///< the untransposed codes, or no data
  MatrixView<std::int8_t> q_t;
  bool by_column = false;
  Scale scale;           ///< unless by_column; with codes
  ColumnScales columns;  ///< if by_column
  bool stream = false;
};

}  // namespace switchback::quant::cpu
