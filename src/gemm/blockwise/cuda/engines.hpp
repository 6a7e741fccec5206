// SPDX-License-Identifier: Apache-2.0
// Engine zone: what the CUDA engines of the blockwise product share.
#pragma once

#include <string_view>

#include "gemm/blockwise/cuda/kernels.hpp"
#include "gemm/blockwise/engine.hpp"

namespace switchback::blockwise::cuda {

/// The arguments of the kernels for a problem. m is rounded up to whole steps of 64 codes, so that
/// kernels load whole words.
BlockwiseArguments arguments_of(const BlockwiseProblem& problem, const BlockwiseOperands& operands);

void run_dp4a(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
              const BlockwiseOperands& operands);
/// Why the copies of the mma kernel cannot read a problem's operands; empty if they can.
std::string_view mma_unsupported(const BlockwiseProblem& problem);
/// Runs the mma kernel, or run_dp4a() if the kernel's copies cannot read the operands.
void run_mma(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
             const BlockwiseOperands& operands);
/// Why the wgmma kernel (for 9.0a) cannot compute a problem; empty if it can.
std::string_view wgmma_unsupported(const BlockwiseProblem& problem);
Tiles wgmma_tiles(const BlockwiseProblem& problem, const ContextState& state) noexcept;
void run_wgmma(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
               const BlockwiseOperands& operands);

}  // namespace switchback::blockwise::cuda
