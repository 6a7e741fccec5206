// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry point of quantization, for callers that have validated their
// arguments. It splits a request into operations, and finds a configuration and an engine for each
// operation.
#pragma once

#include "quant/ops.hpp"

namespace switchback {
struct ContextState;
}

namespace switchback::quant {

/// Computes the results of a request: in one pass over the matrix if there is an operation for it,
/// else in several (quant/passes.hpp). Asserts instead of checking. Throws Error(out_of_memory)
/// before anything is written.
void run(ContextState& state, const Request& request);

/// Runs one operation, which must compute all wanted results. The configuration comes from the
/// Context's tuner; otherwise it is the default.
void run(ContextState& state, Op op, const Request& request);

}  // namespace switchback::quant
