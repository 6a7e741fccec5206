// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry to the floating point product, for callers that have validated
// their arguments: the public function, and the layer.
#pragma once

#include "core/context_state.hpp"
#include "switchback/gemm.hpp"

namespace switchback::floating {

/// gemm_standard() without its checks: runs the configuration that the Context's tuner knows, else
/// the default. Throws Error(unsupported) if a forced engine cannot run it.
void multiply(ContextState& state, const StandardGemmArgs& args);

}  // namespace switchback::floating
