// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry to the blockwise product, for callers that have validated their
// arguments: the public function, and the layer.
#pragma once

#include <span>

#include "core/context_state.hpp"
#include "gemm/blockwise/block_group.hpp"
#include "switchback/gemm.hpp"

namespace switchback::blockwise {

/// gemm_blockwise() without its checks: runs the named engine, or what the Context's tuner knows,
/// else the default. Throws Error if a named engine is unknown or cannot run.
///
/// With `groups`, group g multiplies its own blocks alone, and its d has the bits of that product.
/// d is [G·N,K], the matrices of the groups below each other. args.m is ignored. A group without
/// rows has a d of zeros, or an unchanged one if it accumulates. `groups` is in the memory of the
/// Context's device: on a device it is read by kernels only. On the CPU it is also read in a
/// dry run. The tuner is not asked.
void multiply(ContextState& state, const BlockwiseGemmArgs& args,
              std::span<const BlockGroup> groups = {});

}  // namespace switchback::blockwise
