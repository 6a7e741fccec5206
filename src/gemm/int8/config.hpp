// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: how an int8 product is computed. A configuration changes speed, never a bit of the
// result.
#pragma once

#include <cstdint>
#include <string>

#include "core/config_source.hpp"
#include "gemm/cublaslt/choice.hpp"
#include "gemm/int8/problem.hpp"

namespace switchback::gemm_int8 {

/// How an engine reads the matrix B if the caller gives it as rows.
enum class Weights : std::int64_t {
  plain = 0,   ///< B is read directly from the caller's rows
  packed = 1,  ///< B is rearranged first, into the workspace (or once by the caller)
};

struct GemmConfig {
  EngineId engine = EngineId::reference;
  Weights weights = Weights::plain;
  // Blocking of the engine's loops: the rows and columns of d in a task, and the length of a piece
  // of the inner dimension. Engines round them to their tiles. 0 means all.
  std::int64_t mc = 0;
  std::int64_t nc = 0;
  std::int64_t kc = 0;
  std::int64_t threads = 0;  ///< the most threads of the Context that are used; 0 = all
  /// For cublaslt: the position of the algorithm in cuBLASLt's own ranking, if `cublaslt` names no
  /// algorithm.
  std::int64_t algorithm = 0;
  CublasLtChoice cublaslt = {};
  // For the fused engine mc, nc and kc are its tile. The following members say which thread blocks
  // share their operands, and in which order tiles are computed.
  std::int64_t cluster = 0;  ///< thread blocks of a cluster along m
  std::int64_t raster = 0;   ///< side that tiles are ordered along: 0 = fewer tiles, 1 = m, 2 = n
  std::int64_t swizzle = 0;  ///< width of a strip in the order of tiles, in tiles: 2, 4 or 8; 0 = 1

  friend bool operator==(const GemmConfig&, const GemmConfig&) = default;
};

/// A configuration as text, for example "avx512_vnni packed mc=96 nc=512 kc=1024 threads=0".
std::string describe(const GemmConfig& config);

// The conversions that core/tunable.hpp requires of an operation.
ConfigChoice to_choice(const GemmConfig& config) noexcept;
bool from_choice(const ConfigChoice& choice, GemmConfig& config) noexcept;
/// Names the member whose value is out of range, for example "mc=-1; none may be negative"; empty
/// if all are valid.
std::string out_of_range(const GemmConfig& config);

}  // namespace switchback::gemm_int8
