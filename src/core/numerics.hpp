// SPDX-License-Identifier: Apache-2.0
// Core: constants of docs/numerics.md, for the host, the CPU kernels and device code. This header
// has only constants: a function here would be compiled for every instruction set, and the linker
// could keep a copy that this CPU cannot run.
#pragma once

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0) || \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) ||                          \
    defined(__NO_SIGNED_ZEROS__) || (defined(__CUDA_FTZ) && __CUDA_FTZ != 0)
#error "flags such as -ffast-math change floating-point results: compile without them"
#endif

namespace switchback::core {

/// The constant c of docs/numerics.md: the f32 nearest to 1/127², bits 0x38820610.
inline constexpr float inverse_127_squared = 0x1.040c2p-14f;
static_assert(inverse_127_squared == static_cast<float>(1.0 / (127.0 * 127.0)));

}  // namespace switchback::core
