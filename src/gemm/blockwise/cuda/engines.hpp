// SPDX-License-Identifier: Apache-2.0
// Engine zone: what the CUDA engines of the blockwise product share.
#pragma once

#include <string_view>

#include "gemm/blockwise/cuda/kernels.hpp"
#include "gemm/blockwise/engine.hpp"

namespace switchback::blockwise::cuda {

/// The parts of a problem that kernels read. m is rounded up to whole steps of 64 codes, so that
/// whole words are loaded.
BlockwiseArguments arguments_of(const BlockwiseProblem& problem, const BlockwiseOperands& operands);

void run_dp4a(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
              const BlockwiseOperands& operands);
/// Why the copies of the tensor-core kernels cannot read a problem; empty if they can.
std::string_view mma_unsupported(const BlockwiseProblem& problem);
/// Problems that the copies cannot read go to run_dp4a.
void run_mma(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
             const BlockwiseOperands& operands);
/// The same for the kernel for 9.0a.
std::string_view wgmma_unsupported(const BlockwiseProblem& problem);
Tiles wgmma_tiles(const BlockwiseProblem& problem, const ContextState& state) noexcept;
void run_wgmma(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
               const BlockwiseOperands& operands);

}  // namespace switchback::blockwise::cuda
