// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry to the blockwise product, for callers that have validated their
// arguments: the public function, and the layer.
#pragma once

#include "core/context_state.hpp"
#include "switchback/gemm.hpp"

namespace switchback::blockwise {

/// gemm_blockwise() without its checks: runs the named engine, or what the Context's tuner knows,
/// else the default. Throws Error if a named engine is unknown or cannot run.
void multiply(ContextState& state, const BlockwiseGemmArgs& args);

}  // namespace switchback::blockwise
