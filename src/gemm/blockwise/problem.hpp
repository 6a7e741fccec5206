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

/// d[N,K] (+)= a[N,Mp] · b[K,Mp]ᵀ, as BlockwiseGemmArgs says. With groups, each group multiplies
/// its own blocks of a and b, and d is [groups · N,K]. A tuner never sees groups.
struct BlockwiseProblem {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;         ///< in the last block, codes from here on are 0
  std::int64_t padded_m = 0;  ///< a multiple of block_rows
  std::int64_t block_rows = 0;
  std::int64_t stride_a = 0;
  std::int64_t stride_b = 0;
  std::int64_t stride_d = 0;
  DType output = DType::f32;
  bool accumulate = false;
  std::int64_t alignment = 0;  ///< core::alignment_class of a and b
  std::int64_t groups = 0;     ///< 0: no groups. Only engines of devices know groups

  [[nodiscard]] std::int64_t blocks() const noexcept { return padded_m / block_rows; }
  friend bool operator==(const BlockwiseProblem&, const BlockwiseProblem&) = default;
};

/// "m=1024 n=64 k=256 blocks of 256 rows bf16 accumulate strides 1024,1024,256"
std::string describe(const BlockwiseProblem& problem);
core::ProblemSize size_of(const BlockwiseProblem& problem) noexcept;

struct BlockwiseOperands {
  const std::int8_t* a = nullptr;
  const std::int8_t* b = nullptr;
  const float* absmax_a = nullptr;  ///< [blocks,n]
  const float* absmax_b = nullptr;  ///< [blocks,k]
  void* d = nullptr;
  const BlockGroup* block_groups = nullptr;  ///< [groups], read by kernels only
};

struct BlockwiseConfig {
  EngineId engine = EngineId::reference;
  std::int32_t tile_n = 0;  ///< rows of a in a tile of d; 0: the engine chooses tiles by itself
  friend bool operator==(const BlockwiseConfig&, const BlockwiseConfig&) = default;
};

/// "wgmma tile_n=256"
std::string describe(const BlockwiseConfig& config);

// The contract of core/tunable.hpp; the words are in tunable.cpp.
extern const core::Tunable tunable;
ConfigQuery to_query(const BlockwiseProblem& problem, const ContextState& state) noexcept;
bool from_query(const ConfigQuery& query, BlockwiseProblem& problem) noexcept;
ConfigChoice to_choice(const BlockwiseConfig& config) noexcept;
bool from_choice(const ConfigChoice& choice, BlockwiseConfig& config) noexcept;
std::string check_config(const BlockwiseProblem& problem, const BlockwiseConfig& config,
                         const ContextState& state);
/// The first engine of the table that accepts the problem and either needs no validation or has a
/// kernel for it that is known to be right.
BlockwiseConfig default_config(const BlockwiseProblem& problem, const ContextState& state,
                               const core::KnownKernels& known = {});
/// The default. If is_tuned(), also the other engines in all their tiles, except the last engine of
/// the table, which is never the fastest.
std::vector<BlockwiseConfig> candidates(const BlockwiseProblem& problem, const ContextState& state);

/// The kernel of a configuration that needs a validation, as the validation identifies it.
core::KernelId kernel_of(const BlockwiseProblem& problem, const BlockwiseConfig& config);

/// Whether running it may hang or fault; see gemm_int8::needs_validation().
bool needs_validation(const BlockwiseConfig& config) noexcept;

/// Whether a tuner can choose in this Context, because there are several engines for tensor cores.
/// Otherwise nothing is looked up.
bool is_tuned(const ContextState& state) noexcept;

/// Runs a problem with one configuration. Throws Error(unsupported) with the reason if it cannot;
/// operands are not validated.
void run(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
         const BlockwiseOperands& operands);

}  // namespace switchback::blockwise
