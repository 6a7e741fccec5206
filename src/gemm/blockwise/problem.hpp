// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what a blockwise int8 product computes (BlockwiseProblem), how (BlockwiseConfig),
// and the addresses of its operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/context_state.hpp"
#include "core/tunable.hpp"
#include "gemm/blockwise/block_group.hpp"
#include "gemm/int8/problem.hpp"
#include "switchback/types.hpp"

namespace switchback::blockwise {

using gemm_int8::EngineId;

/// d[N,K] (+)= a[N,Mp] · b[K,Mp]ᵀ, as BlockwiseGemmArgs says; Mp is padded_m. With groups, each
/// group multiplies its own blocks of a and b, and d is [groups · N,K]. A tuner never gets a
/// problem with groups.
struct BlockwiseProblem {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;         ///< codes of a row that count; the others, in the last block, are 0
  std::int64_t padded_m = 0;  ///< codes of a row of a or b: a multiple of block_rows
  std::int64_t block_rows = 0;
  std::int64_t stride_a = 0;
  std::int64_t stride_b = 0;
  std::int64_t stride_d = 0;
  DType output = DType::f32;
  bool accumulate = false;
  std::int64_t alignment = 0;  ///< core::alignment_class() of the addresses of a and b
  std::int64_t groups = 0;     ///< 0: no groups. Only the engines of GPUs support groups

  [[nodiscard]] std::int64_t blocks() const noexcept { return padded_m / block_rows; }
  friend bool operator==(const BlockwiseProblem&, const BlockwiseProblem&) = default;
};

/// A problem as text, for example "m=1024 n=64 k=256 blocks of 256 rows bf16 accumulate strides
/// 1024,1024,256".
std::string describe(const BlockwiseProblem& problem);
core::ProblemSize size_of(const BlockwiseProblem& problem) noexcept;

struct BlockwiseOperands {
  const std::int8_t* a = nullptr;
  const std::int8_t* b = nullptr;
  const float* absmax_a = nullptr;  ///< [blocks,n]
  const float* absmax_b = nullptr;  ///< [blocks,k]
  void* d = nullptr;
  /// Array [groups] for CUDA kernels, which alone read it; null: no groups.
  const BlockGroup* block_groups = nullptr;
};

struct BlockwiseConfig {
  EngineId engine = EngineId::reference;
  std::int32_t tile_n = 0;  ///< rows of a in a tile of d; 0: the engine chooses tiles by itself
  friend bool operator==(const BlockwiseConfig&, const BlockwiseConfig&) = default;
};

/// A configuration as text, for example "wgmma tile_n=256".
std::string describe(const BlockwiseConfig& config);

// The constant and the functions that core/tunable.hpp requires of an operation that can be tuned.
// tunable.cpp names the words (numbers) of a query.
extern const core::Tunable tunable;
ConfigQuery to_query(const BlockwiseProblem& problem, const ContextState& state) noexcept;
bool from_query(const ConfigQuery& query, BlockwiseProblem& problem) noexcept;
ConfigChoice to_choice(const BlockwiseConfig& config) noexcept;
bool from_choice(const ConfigChoice& choice, BlockwiseConfig& config) noexcept;
std::string check_config(const BlockwiseProblem& problem, const BlockwiseConfig& config,
                         const ContextState& state);
/// The default configuration: of the first engine in the table that accepts the problem. An engine
/// that needs validation is skipped unless its kernel for the problem is among the `known` right
/// ones.
BlockwiseConfig default_config(const BlockwiseProblem& problem, const ContextState& state,
                               const core::KnownKernels& known = {});
/// The configurations worth measuring. The first is the default. If is_tuned(), the others are
/// those of all engines in all their tiles, except the last engine of the table, which is never the
/// fastest.
std::vector<BlockwiseConfig> candidates(const BlockwiseProblem& problem, const ContextState& state);

/// The kernel that a configuration runs, as the validation of kernels identifies it.
core::KernelId kernel_of(const BlockwiseProblem& problem, const BlockwiseConfig& config);

/// Whether running a configuration may hang or fault; see gemm_int8::needs_validation().
bool needs_validation(const BlockwiseConfig& config) noexcept;

/// Whether a tuner has a choice in this Context, because there are several engines for tensor
/// cores. Otherwise no tuned configuration is looked up.
bool is_tuned(const ContextState& state) noexcept;

/// Runs a problem with one configuration. Throws Error(unsupported) with the reason if the
/// configuration cannot run it. Operands are not validated.
void run(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
         const BlockwiseOperands& operands);

}  // namespace switchback::blockwise
