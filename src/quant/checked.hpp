// SPDX-License-Identifier: Apache-2.0
// Entry zone: the entry point of quantization with checks, which every public operation uses.
#pragma once

#include <string_view>

#include "quant/ops.hpp"
#include "switchback/context.hpp"

namespace switchback::quant {

/// The names of a public operation's arguments and sizes in its messages.
struct ArgumentNames {
  std::string_view x{};
  std::string_view rows{}, cols{};  ///< of x
  std::string_view absmax{};        ///< the scales of q; absmax_t: those of q_t
  std::string_view absmax_t{};
  std::string_view sums{};
  std::string_view value{};
  std::string_view rotated = "y";
};
const ArgumentNames& names_of(Op op) noexcept;

/// Checks a request and runs it as the operation `op`. It must be a request that the operation's
/// public function can make.
void run_checked(Context& context, Op op, const Request& request);

/// Checks a request for any results of a floating-point matrix, and computes them in one pass.
/// Messages name the members of switchback_quantize_args. Throws Error(unsupported) if there is no
/// such pass.
void run_checked(Context& context, const Request& request);

}  // namespace switchback::quant
