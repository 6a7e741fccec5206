// SPDX-License-Identifier: Apache-2.0
// Engine zone: the blocked int8 product that all vector engines share: cache blocks, threads,
// packing, epilogue. The engines differ only in their MicroKernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/code_blocks.hpp"
#include "core/context_state.hpp"
#include "gemm/int8/config.hpp"
#include "gemm/int8/cpu/micro_kernel.hpp"
#include "gemm/int8/problem.hpp"
#include "switchback/matrix.hpp"

namespace switchback::gemm_int8 {

/// Size of B[n,k] in the kernel's panels, in bytes.
std::size_t blocked_packed_bytes(const MicroKernel& kernel, std::int64_t n, std::int64_t k);

/// Packs a block of B[·,k], or a block of B transposed, [k,·]. `out` is the address of B's first
/// panel, 64-byte aligned.
void blocked_pack_rows(const MicroKernel& kernel, std::int64_t k, const core::CodeBlock& block,
                       void* out, Stores stores);
void blocked_pack_columns(const MicroKernel& kernel, std::int64_t k, const core::CodeBlock& block,
                          void* out, Stores stores);
/// Packs the whole matrix B.
void blocked_pack(const MicroKernel& kernel, core::Threads& threads,
                  MatrixView<const std::int8_t> b, void* out);

/// Restores the whole matrix B from its panels.
void blocked_unpack(const MicroKernel& kernel, core::Threads& threads, const void* from,
                    MatrixView<std::int8_t> b);

/// Converts the panels of B[n,k] to the panels of its transpose.
void blocked_pack_transposed(const MicroKernel& kernel, core::Threads& threads, std::int64_t n,
                             std::int64_t k, const void* from, void* out);

/// d = epilogue(a · bᵀ), for a problem without groups. Operands and config.weights say how B is
/// read: packed by the caller, packed here into the workspace, or directly from its rows.
void blocked_run(const MicroKernel& kernel, ContextState& state, const GemmProblem& problem,
                 const GemmConfig& config, const GemmOperands& operands);

/// blocked_run() for a problem with groups: blocks of all groups are tasks of one list, the largest
/// groups first. config.mc and config.nc are the largest blocks of a group.
void blocked_run_groups(const MicroKernel& kernel, ContextState& state, const GemmProblem& problem,
                        const GemmConfig& config, const GemmOperands& operands);

}  // namespace switchback::gemm_int8
