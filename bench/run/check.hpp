// SPDX-License-Identifier: Apache-2.0
// Bench: checks the results that are timed, on the same data, in a fraction of the time.
//
// A check recomputes whole rows and columns with the simplest code: the first, the last and two
// others, which touch every tile edge of the other dimension. It also looks for unwritten elements
// in the whole output. Codes and dequantized int8 products must match bit for bit; floating point
// products must be within the error bound of f32 sums.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "measure/oracle.hpp"
#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::bench {

/// `wrong` is empty if everything that was checked is correct; else it says where the error is, the
/// value found and the value expected.
struct SampleCheck {
  std::string wrong;
  double error =
      0;  ///< largest |difference| over the largest |expected| (0 where it must be exact)
  [[nodiscard]] bool ok() const noexcept { return wrong.empty(); }
};

using measure::Group;

/// Checks codes q, stored as [rows,cols] or, transposed, as [cols,rows], and the scales of x, by
/// their definition.
SampleCheck check_quantized(Context& context, ConstAnyMatrix x, Group group,
                            MatrixView<const std::int8_t> q, bool transposed,
                            std::span<const float> absmax, std::uint64_t seed);

/// q = x truncated toward zero and clamped.
SampleCheck check_cast(ConstAnyMatrix x, MatrixView<const std::int8_t> q, std::uint64_t seed);

/// d = absmax_b · (absmax_a · (a · bᵀ · c)); absmax_b holds N floats or 1.
SampleCheck check_int8_product(Context& context, MatrixView<const std::int8_t> a,
                               MatrixView<const std::int8_t> b, AnyMatrix d,
                               std::span<const float> absmax_a, std::span<const float> absmax_b,
                               std::uint64_t seed);

/// d = op(a) · op(b) with sums in f32. In addition, each product may be off by product_error of
/// itself.
SampleCheck check_standard_product(Context& context, ConstAnyMatrix a, bool transpose_a,
                                   ConstAnyMatrix b, bool transpose_b, AnyMatrix d,
                                   std::uint64_t seed, double product_error = 0);

}  // namespace switchback::bench
