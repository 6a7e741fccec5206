// SPDX-License-Identifier: Apache-2.0
// Entry zone: int8 quantization with stochastic rounding, for gradients.
//
// With v = 127 · (g / absmax) in f32, i = round_half_even(65536 · v) and a uniform r in [0, 65535],
// the code is floor((i + r) / 65536), from -127 to 127. Its expectation is v except for the
// rounding of i (2^-17), where rounding to nearest has a bias; its variance is larger.
//
// r is a function of the element's place: 16 bits of Philox4x32-10 with the key `seed` and the
// counter {column / 8, row0 + row, stream, step}; column j of the eight takes half j mod 2 of word
// j / 2, low half first. So codes are the same on every device, instruction set and thread count,
// and a matrix that is cut into shards of rows has the codes of the whole one.
#pragma once

#include <cstdint>
#include <span>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/matrix.hpp"

namespace switchback {

/// Which random bits stochastic rounding uses: the key and a part of the counter of Philox4x32-10.
struct StochasticRounding {
  std::uint64_t seed = 0;    ///< the key of Philox4x32-10
  std::uint32_t stream = 0;  ///< a word of the counter, for example the number of a layer
  std::uint32_t step = 0;    ///< a word of the counter, for example the number of the training step
  std::int64_t row0 = 0;     ///< row 0's number in the whole matrix; row numbers are below 2^32
};

/// Quantizes g[M,N] to codes q[M,N] with one scale per row, absmax[M], as quantize_rowwise does
/// except for the rounding. Throws Error(invalid_argument) if row0 is negative or row0 + M above
/// 2^32.
SWITCHBACK_API void quantize_rowwise_stochastic(Context& context, ConstAnyMatrix g,
                                                const StochasticRounding& rounding,
                                                MatrixView<std::int8_t> q, std::span<float> absmax);

/// Quantizes g[M,N] to codes q_t[N,Mp] and scales absmax[B,N] as quantize_blockwise_transpose does
/// except for the rounding. An element has the same random bits as in quantize_rowwise_stochastic:
/// those of its row and column in g. Throws Error(invalid_argument) if row0 is negative or row0 + M
/// above 2^32.
SWITCHBACK_API void quantize_blockwise_transpose_stochastic(Context& context, ConstAnyMatrix g,
                                                            const StochasticRounding& rounding,
                                                            std::int64_t block_rows,
                                                            MatrixView<std::int8_t> q_t,
                                                            std::span<float> absmax);

}  // namespace switchback
