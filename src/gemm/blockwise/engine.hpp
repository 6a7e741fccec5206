// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what a blockwise int8 product computes (BlockwiseProblem), the addresses of its
// operands, and its engines.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/context_state.hpp"
#include "core/device_table.hpp"
#include "gemm/int8/problem.hpp"
#include "switchback/types.hpp"

namespace switchback::blockwise {

using gemm_int8::EngineId;

/// d[N,K] (+)= a[N,Mp] · b[K,Mp]ᵀ, as BlockwiseGemmArgs says.
struct BlockwiseProblem {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;         ///< in the last block; codes from here on are 0
  std::int64_t padded_m = 0;  ///< a multiple of block_rows
  std::int64_t block_rows = 0;
  std::int64_t stride_a = 0;
  std::int64_t stride_b = 0;
  std::int64_t stride_d = 0;
  DType output = DType::f32;
  bool accumulate = false;

  [[nodiscard]] std::int64_t blocks() const noexcept { return padded_m / block_rows; }
};

/// "m=1024 n=64 k=256 blocks of 256 rows bf16 accumulate"
std::string describe(const BlockwiseProblem& problem);

struct BlockwiseOperands {
  const std::int8_t* a = nullptr;
  const std::int8_t* b = nullptr;
  const float* absmax_a = nullptr;  ///< [blocks,n]
  const float* absmax_b = nullptr;  ///< [blocks,k]
  void* d = nullptr;
};

/// One implementation.
struct Engine {
  EngineId id;
  std::string_view name;
  bool is_oracle = false;  ///< see gemm_int8::Engine
  /// Why it cannot run on this machine in this Context; empty if it can.
  std::string_view (*unavailable)(const ContextState& state);
  /// Computes it. n, k and padded_m > 0 (the last engine of a device: any of them may be zero); may
  /// throw Error(out_of_memory) before it writes d.
  void (*run)(ContextState& state, const BlockwiseProblem& problem,
              const BlockwiseOperands& operands);
};

/// All engines of this build, in order of preference. The last one of a device takes every problem.
core::EngineTable<Engine>& engine_table() noexcept;

extern const Engine reference_engine;

// Engines that run in the blocks of a tile kernel.
extern const Engine amx_engine;
extern const Engine avx512_vnni_engine;
extern const Engine avx_vnni_engine;
extern const Engine avx2_engine;

namespace cuda {
std::span<const Engine* const> engines() noexcept;
}
namespace cuda_emulated {
std::span<const Engine* const> engines() noexcept;
}

}  // namespace switchback::blockwise
