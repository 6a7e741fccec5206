// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what an int8 product computes (GemmProblem), and the addresses of its operands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/context_state.hpp"
#include "core/tunable.hpp"
#include "switchback/types.hpp"

namespace switchback::gemm_int8 {

/// How packed codes are stored: through the caches, or past them, if these would not hold the codes
/// until a product reads them. Each line would then be read from memory only to be overwritten.
enum class Stores { cached, streaming };

/// The numbers of the engines. Pinned, because tuned configurations are stored with them. Append
/// new ones here, and their names to engine_names.
enum class EngineId : std::int64_t {
  none = 0,
  reference = 1,
  avx2 = 2,
  avx_vnni = 3,
  avx512_vnni = 4,
  onednn = 5,
  cublaslt = 6,
  cublaslt_panels = 7,
  dp4a = 8,
  fused = 9,
  amx = 10,
  mma = 11,
  wgmma = 12,
};
inline constexpr EngineId last_engine_id = EngineId::wgmma;

inline constexpr std::array<std::string_view, 13> engine_names = {
    "none", "reference", "avx2", "avx_vnni", "avx512_vnni", "onednn", "cublaslt", "cublaslt_panels",
    "dp4a", "fused",     "amx",  "mma",      "wgmma"};

/// "avx512_vnni"; "unknown" for an unknown number.
constexpr std::string_view engine_name(EngineId id) noexcept {
  const auto number = static_cast<std::size_t>(id);
  return number < engine_names.size() ? engine_names[number] : "unknown";
}

/// How int32 sums become outputs.
enum class ScaleMode : std::int64_t {
  none = 0,        ///< int32 as they are
  row_col = 1,     ///< absmax_a[row] and absmax_b[column]
  row_scalar = 2,  ///< absmax_a[row] and absmax_b[0]
};

/// d[m,n] = epilogue(a[m,k] · b[n,k]ᵀ): everything that the choice of a configuration may depend
/// on.
struct GemmProblem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t stride_a = 0;
  std::int64_t stride_b = 0;  ///< 0 when b is packed
  std::int64_t stride_d = 0;
  DType output = DType::s32;
  ScaleMode scale = ScaleMode::none;
  bool has_bias = false;
  DType bias = DType::f32;               ///< f32 when there is none
  EngineId packed_for = EngineId::none;  ///< none: b is not packed
  std::int64_t alignment = 0;            ///< core::alignment_class of the operands

  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
};

/// "m=8 n=64 k=256 f32 row_col bias=f16 packed=avx2 strides 256,0,64"
std::string describe(const GemmProblem& problem);

core::ProblemSize size_of(const GemmProblem& problem) noexcept;

// The contract of core/tunable.hpp; the words are in tunable.cpp. Instruction set and number of
// threads of the Context are part of a query: one source may serve several Contexts.
extern const core::Tunable tunable;
ConfigQuery to_query(const GemmProblem& problem, const ContextState& state) noexcept;
bool from_query(const ConfigQuery& query, GemmProblem& problem) noexcept;

/// The memory that a problem is run on; strides are in the problem.
struct GemmOperands {
  const std::int8_t* a = nullptr;
  const std::int8_t* b = nullptr;  ///< null when packed
  const void* packed_b = nullptr;  ///< written by the engine's pack(), or null
  void* d = nullptr;
  const float* absmax_a = nullptr;
  const float* absmax_b = nullptr;
  const void* bias = nullptr;
};

}  // namespace switchback::gemm_int8
