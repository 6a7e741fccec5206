// SPDX-License-Identifier: Apache-2.0
// Reference zone: stochastic rounding of one element, which every engine reproduces bit for bit,
// and the check of its argument. Needs the default floating-point environment.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/philox.hpp"
#include "quant/scalar.hpp"
#include "switchback/rounding.hpp"

namespace switchback::quant {

/// The number of neighbouring columns that share a Philox counter.
inline constexpr std::int64_t columns_of_counter = 8;

/// Checks that row0 + rows fits into 32 bits.
void check_rounding(std::string_view op, const StochasticRounding& rounding, std::int64_t rows);

/// The 16 random bits by which the code of an element is rounded.
inline std::uint32_t random_bits(const StochasticRounding& s, std::int64_t row,
                                 std::int64_t col) noexcept {
  const core::philox::Words words =
      core::philox::bits(s.seed, {static_cast<std::uint32_t>(col / columns_of_counter),
                                  static_cast<std::uint32_t>(s.row0 + row), s.stream, s.step});
  const std::uint32_t pair = words[static_cast<std::size_t>(col % columns_of_counter / 2)];
  return col % 2 == 0 ? pair & 0xFFFFu : pair >> 16;
}

/// The stochastically rounded code of x: floor((round_half_even(65536 · (127 · (x / absmax))) + r)
/// / 65536); 0 in a group of zeros or with a NaN or Inf.
inline std::int8_t stochastic_code(float x, float absmax, std::uint32_t r) noexcept {
  if (!has_codes(absmax)) return 0;
  const auto i = static_cast<std::int32_t>(std::nearbyint(65536.0f * (127.0f * (x / absmax))));
  return static_cast<std::int8_t>((i + static_cast<std::int32_t>(r)) >> 16);
}

}  // namespace switchback::quant
