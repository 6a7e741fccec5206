// SPDX-License-Identifier: Apache-2.0
// Entry zone: checks that int8 codes are from -127 to 127, as every quantize operation makes them.
// The sum of max_exact_k products of codes of -128 would not fit into int32.
#pragma once

#include <string_view>

#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::gemm_int8 {

/// Refuses a matrix that holds a -128 and names the first; `why` ends the message. On the CPU only,
/// because on a device the call would have to wait.
void check_codes(ContextState& state, std::string_view op, std::string_view argument,
                 MatrixView<const std::int8_t> codes, std::string_view why);

}  // namespace switchback::gemm_int8
