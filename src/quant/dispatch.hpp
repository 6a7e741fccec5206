// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal door to quantization, for callers that have validated their
// arguments: from a request to operations, and from each operation to a configuration and its
// engine.
#pragma once

#include "quant/ops.hpp"

namespace switchback {
struct ContextState;
}

namespace switchback::quant {

/// Computes the results of a request: in one pass over the matrix if there is an operation for it,
/// else in several (quant/passes.hpp). Asserts and never checks. Throws Error(out_of_memory) before
/// anything is written.
void run(ContextState& state, const Request& request);

/// Runs one operation, which must compute all wanted results, with the configuration of the
/// Context's tuner, or else the default.
void run(ContextState& state, Op op, const Request& request);

}  // namespace switchback::quant
