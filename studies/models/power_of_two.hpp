// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: coefficients of powers of two, which the CPU and devices compute alike.
#pragma once

namespace switchback::models::power_of_two {

// 2^r, |r| <= 1/2: the coefficients from the first power on, of a minimax fit that is 1 at 0.
// Relative error 3e-6, far below the 2^-9 by which a bf16 is rounded.
inline constexpr float bf16_1 = 0x1.62e12cp-1f;
inline constexpr float bf16_2 = 0x1.ec0378p-3f;
inline constexpr float bf16_3 = 0x1.c9fc46p-5f;
inline constexpr float bf16_4 = 0x1.3a02ccp-7f;

}  // namespace switchback::models::power_of_two
