// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry to the blockwise product, for callers that have validated their
// arguments: the public function, and the layer.
#pragma once

#include <span>

#include "core/context_state.hpp"
#include "gemm/blockwise/block_group.hpp"
#include "switchback/gemm.hpp"

namespace switchback::blockwise {

/// gemm_blockwise() without its checks. Runs the engine that args names, else the configuration of
/// the Context's tuner, else the default. Throws Error if the named engine is unknown or cannot
/// run.
///
/// With `groups`, group g multiplies only its own blocks, and its d has the bits of that product. d
/// is [G·N,K], the matrices of the groups below each other. args.m is ignored. The d of a group
/// without rows is zero, or unchanged if args.accumulate is set. `groups` is in the memory of the
/// Context's device. On a GPU only kernels read it. On the CPU it is also read in a dry run. The
/// tuner is not asked.
void multiply(ContextState& state, const BlockwiseGemmArgs& args,
              std::span<const BlockGroup> groups = {});

}  // namespace switchback::blockwise
