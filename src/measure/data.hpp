// SPDX-License-Identifier: Apache-2.0
// Measure: seeded random operands, the same values for any device, thread count, stride and
// placement.
#pragma once

#include <cstdint>
#include <span>

#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::measure {

// These functions fill matrices in memory of the Context's device. Element (r, c) depends only on
// the seed and r·cols + c.

/// Fills m with normal data of mean 0 and standard deviation `scale` in f32, f16 or bf16 (rounded
/// once from f32).
void fill_normal(Context& context, AnyMatrix m, std::uint64_t seed, float scale = 1.0f);

/// Fills m with codes uniform in [-127, 127], the range of quantize operations.
void fill_codes(Context& context, MatrixView<std::int8_t> m, std::uint64_t seed);

/// Fills m with normal data, or with codes from -127 to 127, depending on its type. A block of a
/// million values is repeated, from another offset in each row. To an engine that is as random as
/// new values, and it is made at the speed of a copy.
void fill_random(Context& context, AnyMatrix m, std::uint64_t seed);
/// Fills a vector of scales with positive f32 values between 0.5 and 1.5.
void fill_scales(Context& context, std::span<float> values, std::uint64_t seed);

/// The random number generator: 64 bits for a seed and a counter.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) noexcept;

}  // namespace switchback::measure
