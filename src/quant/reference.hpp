// SPDX-License-Identifier: Apache-2.0
// Reference zone: every quantize operation in the shortest readable code; the oracle of the tests
// and the engine of machines without a vector unit.
#pragma once

#include "quant/problem.hpp"

namespace switchback::quant::reference {

/// The default floating-point environment must be set (Threads::for_each does).
void run(Op op, const Operands& operands) noexcept;

}  // namespace switchback::quant::reference
