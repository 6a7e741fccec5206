// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal door to quantization, for callers that have validated what they pass:
// from a request to operations, and from each to a configuration and its engine.
#pragma once

#include "quant/ops.hpp"

namespace switchback {
struct ContextState;
}

namespace switchback::quant {

/// Makes what the request wants: in one pass over the matrix if there is an operation that does,
/// else in several (quant/passes.hpp). Asserts and never checks. Throws Error(out_of_memory) before
/// anything is written.
void run(ContextState& state, const Request& request);

/// The operation alone, which must make all that is wanted; as the Context's tuner knows best, or
/// as by default.
void run(ContextState& state, Op op, const Request& request);

}  // namespace switchback::quant
