// SPDX-License-Identifier: Apache-2.0
// Bench: checks the results of the timed calls, on the same data, in a fraction of the calls' time.
//
// A check recomputes whole rows and columns with the simplest code: the first, the last and two
// others, which touch every edge of a kernel's tiles in the other dimension. It also looks for
// unwritten elements in the whole output. Codes and dequantized int8 products must match bit for
// bit; floating point products must be within the error bound of f32 sums.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "measure/oracle.hpp"
#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::bench {

/// The result of a check. `wrong` is empty if everything that was checked is correct. Otherwise it
/// says where the error is, the value found and the value expected.
struct SampleCheck {
  std::string wrong;
  /// The largest |difference| over the largest |expected|; 0 where results must be exact.
  double error = 0;
  [[nodiscard]] bool ok() const noexcept { return wrong.empty(); }
};

using measure::Group;

/// Checks the codes q and the scales of x by their definition. The codes are stored as [rows,cols]
/// or, transposed, as [cols,rows].
SampleCheck check_quantized(Context& context, ConstAnyMatrix x, Group group,
                            MatrixView<const std::int8_t> q, bool transposed,
                            std::span<const float> absmax, std::uint64_t seed);

/// Checks a cast: q = x truncated toward zero and clamped to int8.
SampleCheck check_cast(ConstAnyMatrix x, MatrixView<const std::int8_t> q, std::uint64_t seed);

/// Checks an int8 product d = absmax_b · (absmax_a · (a · bᵀ · c)); absmax_b holds N floats or 1.
SampleCheck check_int8_product(Context& context, MatrixView<const std::int8_t> a,
                               MatrixView<const std::int8_t> b, AnyMatrix d,
                               std::span<const float> absmax_a, std::span<const float> absmax_b,
                               std::uint64_t seed);

/// Checks a floating point product d = op(a) · op(b) with sums in f32. In addition to the error of
/// the sums, each product may be off by product_error times itself.
SampleCheck check_standard_product(Context& context, ConstAnyMatrix a, bool transpose_a,
                                   ConstAnyMatrix b, bool transpose_b, AnyMatrix d,
                                   std::uint64_t seed, double product_error = 0);

}  // namespace switchback::bench
