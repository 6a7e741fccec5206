// SPDX-License-Identifier: Apache-2.0
// Measure: seeded random operands, the same values for any thread count, stride and placement.
//
// Element (r, c) is a function of the seed and r·cols + c alone.
#pragma once

#include <cstdint>

#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::measure {

/// Normal data of mean 0 and standard deviation `scale` in f32, f16 or bf16 (rounded once from
/// f32).
void fill_normal(Context& context, AnyMatrix m, std::uint64_t seed, float scale = 1.0f);

/// Codes uniform in [-127, 127], the range a quantizer makes.
void fill_codes(Context& context, MatrixView<std::int8_t> m, std::uint64_t seed);

/// The generator itself: 64 random bits for a seed and a counter.
std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) noexcept;

}  // namespace switchback::measure
