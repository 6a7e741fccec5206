// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry to the floating point product, for callers that have validated
// their arguments: the public function, and the layer.
#pragma once

#include "core/context_state.hpp"
#include "switchback/gemm.hpp"

namespace switchback::floating {

/// gemm_standard() without its checks. Runs the engine that args names, else the configuration of
/// the Context's tuner, else the default. Throws Error(unsupported) if the named engine cannot run
/// the product.
void multiply(ContextState& state, const StandardGemmArgs& args);

}  // namespace switchback::floating
