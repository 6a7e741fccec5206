// SPDX-License-Identifier: Apache-2.0
// Entry zone: whether int8 codes are those that quantizers make, from -127 to 127. -128 is none of
// them: max_exact_k products of such codes with each other do not fit into int32.
#pragma once

#include <string_view>

#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::gemm_int8 {

/// Refuses a matrix that holds a -128, naming the first; `why` ends the message. Only on the CPU: a
/// device would have to be waited for.
void check_codes(ContextState& state, std::string_view op, std::string_view argument,
                 MatrixView<const std::int8_t> codes, std::string_view why);

}  // namespace switchback::gemm_int8
