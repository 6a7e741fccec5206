// SPDX-License-Identifier: Apache-2.0
// Entry zone: the checks that all int8 products share. Sums must fit into int32, and packed
// operands must be usable.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/context_state.hpp"
#include "gemm/int8/packed_weight.hpp"
#include "switchback/matrix.hpp"

namespace switchback::gemm_int8 {

/// Requires that K is at most max_exact_k.
void check_k(std::string_view op, std::int64_t k);

/// Throws Error(invalid_argument) if a matrix holds a code of -128, and names the first one; `why`
/// ends the message. It checks on the CPU only, because on a GPU the call would have to wait.
/// (Quantize operations make codes from -127 to 127; the sum of max_exact_k products of codes of
/// -128 would not fit into int32.)
void check_codes(ContextState& state, std::string_view op, std::string_view argument,
                 MatrixView<const std::int8_t> codes, std::string_view why);
/// As check_codes(), for an operand of a product, but only if K is so large that codes of -128
/// could make an int32 sum overflow. A null operand is not checked.
void check_operand_codes(ContextState& state, std::string_view op, std::string_view argument,
                         MatrixView<const std::int8_t> codes);

/// Checks a packed_b that was given: it must be filled, and b must not be given too. The message
/// names `packer`, the operation that fills packed_b.
const PackedWeightState& check_filled(std::string_view op, MatrixView<const std::int8_t> b,
                                      const PackedWeight& packed_b, std::string_view packer);
/// Requires that packed_b has K columns, was packed on this device, and has a layout that the
/// forced engine (if there is one) reads.
void check_packed(const ContextState& state, std::string_view op, const PackedWeightState& packed,
                  std::int64_t k, std::string_view engine);

}  // namespace switchback::gemm_int8
