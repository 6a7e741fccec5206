// SPDX-License-Identifier: Apache-2.0
// Engine zone: the scales of all columns of a matrix, from magnitudes that were found in its parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/unaligned.hpp"
#include "quant/cpu/scale.hpp"
#include "switchback/matrix.hpp"

namespace switchback::quant::cpu {

/// The length of an array with a scale for each column: the number of columns rounded up to a
/// multiple of 64.
constexpr std::int64_t padded_columns(std::int64_t cols) {
  return (cols + 63) / 64 * 64;
}

/// Scales of all columns, 64-byte aligned and padded to a multiple of 64.
struct ColumnScales {
  float* lower = nullptr;
  float* upper = nullptr;
  float* divisor = nullptr;  ///< absmax, or 0 if codes are 0
  /// For each 64 columns: whether the codes of all of them can be made by products instead of
  /// divisions (scale.hpp).
  bool* group_bracketed = nullptr;

  [[nodiscard]] bool bracketed(std::int64_t begin, std::int64_t end) const {
    return std::all_of(group_bracketed + begin / 64, group_bracketed + (end + 63) / 64,
                       [](bool b) { return b; });
  }
};

/// The largest magnitudes of columns in some parts of a matrix, as bits of the element type.
struct ColumnMagnitudes {
  std::byte* data = nullptr;
  std::int64_t part_bytes = 0;
  std::int64_t parts = 0;
  DType dtype = DType::f32;

  [[nodiscard]] void* of(std::int64_t part, std::int64_t col) const {
    return data + part * part_bytes + col * static_cast<std::int64_t>(dtype_size_bytes(dtype));
  }
  /// The magnitudes of `count` of the parts, from part `first` on.
  [[nodiscard]] ColumnMagnitudes from(std::int64_t first, std::int64_t count) const {
    return {data + first * part_bytes, part_bytes, count, dtype};
  }
  [[nodiscard]] float absmax(std::int64_t col) const {
    float largest = 0.0f;
    for (std::int64_t part = 0; part < parts; ++part)
      largest = larger_magnitude(largest, core::load_float(of(part, col), dtype, 0));
    return largest;
  }
};

/// Computes absmax and the scales of columns [begin, end) from their magnitudes in all parts; begin
/// is a multiple of 64.
inline void finish_columns(const ColumnMagnitudes& magnitudes, std::int64_t begin, std::int64_t end,
                           float* absmax, const ColumnScales& scales) {
  for (std::int64_t group = begin; group < end; group += 64) {
    bool bracketed = true;
    for (std::int64_t c = group; c < group + 64; ++c) {
      const Scale scale = c < end ? Scale::of(magnitudes.absmax(c)) : Scale();
      if (c < end) core::store(absmax, c, scale.absmax);
      scales.lower[c] = scale.lower;
      scales.upper[c] = scale.upper;
      scales.divisor[c] = scale.method == Scale::Method::none ? 0.0f : scale.absmax;
      bracketed = bracketed && scale.method == Scale::Method::bracket;
    }
    scales.group_bracketed[group / 64] = bracketed;
  }
}

}  // namespace switchback::quant::cpu
