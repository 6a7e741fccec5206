// SPDX-License-Identifier: Apache-2.0
// Engine zone: elementwise loops before and after f32 products. They widen operands, and add bias
// and old values before the single rounding to the output type.
#pragma once

#include <cstdint>

#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::floating {

/// Writes src, widened to f32, to dst[rows,cols] with the leading dimension ld_dst.
void widen(ContextState& context, ConstAnyMatrix src, float* dst, std::int64_t ld_dst);

/// d = round(sum + bias (+ d)), each step in f32. bias is null or bias[cols] in f32. sum may be d
/// itself if d is f32 and accumulate is false.
void finish(ContextState& context, const float* sum, std::int64_t ld_sum, const float* bias,
            bool accumulate, AnyMatrix d);

}  // namespace switchback::floating
