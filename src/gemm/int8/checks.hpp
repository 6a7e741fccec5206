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

/// Refuses a matrix that holds a -128 and names the first; `why` ends the message. On the CPU only,
/// because on a device the call would have to wait. (Quantize operations make codes from -127 to
/// 127; the sum of max_exact_k products of codes of -128 would not fit into int32.)
void check_codes(ContextState& state, std::string_view op, std::string_view argument,
                 MatrixView<const std::int8_t> codes, std::string_view why);
/// The same for an operand of a product, but only where K is so large that codes of -128 could make
/// a sum overflow. Without data there is nothing to check.
void check_operand_codes(ContextState& state, std::string_view op, std::string_view argument,
                         MatrixView<const std::int8_t> codes);

/// Checks a packed_b that was given: it must be filled, and b must not be given too. The message
/// names `packer`, the operation that fills it.
const PackedWeightState& check_filled(std::string_view op, MatrixView<const std::int8_t> b,
                                      const PackedWeight& packed_b, std::string_view packer);
/// Also requires that packed_b has K columns, and the layout of the device and of the forced
/// engine, if one is forced.
void check_packed(const ContextState& state, std::string_view op, const PackedWeightState& packed,
                  std::int64_t k, std::string_view engine);

}  // namespace switchback::gemm_int8
