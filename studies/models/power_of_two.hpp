// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: polynomial coefficients for powers of two, which CPU and CUDA code share so
// that their results are the same.
#pragma once

namespace switchback::models::power_of_two {

// A polynomial for 2^r, |r| <= 1/2: the coefficients of r, r², r³ and r⁴ of a minimax fit whose
// constant term is 1. Its relative error of 3e-6 is far below 2^-9, the rounding error of bf16.
inline constexpr float bf16_1 = 0x1.62e12cp-1f;
inline constexpr float bf16_2 = 0x1.ec0378p-3f;
inline constexpr float bf16_3 = 0x1.c9fc46p-5f;
inline constexpr float bf16_4 = 0x1.3a02ccp-7f;

}  // namespace switchback::models::power_of_two
