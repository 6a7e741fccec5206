// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: from checked operands to a configuration, and on to its engine.
#pragma once

#include "quant/problem.hpp"
#include "switchback/context.hpp"

namespace switchback::quant {

/// Does it as the Context's tuner knows best, or as by default.
void run(Context& context, Op op, const Operands& operands);

}  // namespace switchback::quant
