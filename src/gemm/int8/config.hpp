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

/// How an engine reads a B that is given as rows.
enum class Weights : std::int64_t {
  plain = 0,   ///< directly from the caller's rows
  packed = 1,  ///< rearranged first, into the workspace (or by the caller, once)
};

struct GemmConfig {
  EngineId engine = EngineId::reference;
  Weights weights = Weights::plain;
  // Blocking of the engine's loops: the rows and columns of d in a task, and the length of a piece
  // of the inner dimension. Engines round them to their tiles. 0 means all.
  std::int64_t mc = 0;
  std::int64_t nc = 0;
  std::int64_t kc = 0;
  std::int64_t threads = 0;  ///< how many of the Context's threads at most; 0 = all
  /// cublaslt: the position in the library's own ranking, if no algorithm is given.
  std::int64_t algorithm = 0;
  CublasLtChoice cublaslt = {};
  // fused: mc, nc and kc are its tiles. These members say which blocks share their operands, and in
  // which order tiles are computed.
  std::int64_t cluster = 0;  ///< blocks of a cluster along m
  std::int64_t raster =
      0;  ///< side of d that the order goes along; 0 = the fewer tiles, 1 = m, 2 = n
  std::int64_t swizzle = 0;  ///< width of a strip in that order, in tiles: 2, 4 or 8; 0 = 1

  friend bool operator==(const GemmConfig&, const GemmConfig&) = default;
};

/// "avx512_vnni packed mc=96 nc=512 kc=1024 threads=0"
std::string describe(const GemmConfig& config);

// The contract of core/tunable.hpp.
ConfigChoice to_choice(const GemmConfig& config) noexcept;
bool from_choice(const ConfigChoice& choice, GemmConfig& config) noexcept;
/// The member whose value is out of range, as in "mc=-1; none may be negative"; empty if all are
/// valid.
std::string out_of_range(const GemmConfig& config);

}  // namespace switchback::gemm_int8
