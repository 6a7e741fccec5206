// SPDX-License-Identifier: Apache-2.0
// Reference zone: computes every possible request, in the shortest readable code. It is the oracle
// of the tests and the engine on machines without a vector unit.
#pragma once

#include "quant/request.hpp"

namespace switchback::quant::reference {

/// Computes the results of a request. The default floating-point environment must be set
/// (Threads::for_each does that).
void run(const Request& request) noexcept;

}  // namespace switchback::quant::reference
