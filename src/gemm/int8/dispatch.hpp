// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry to the int8 products, for callers that have validated their
// arguments: the public functions, and the layer.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/context_state.hpp"
#include "switchback/gemm.hpp"

namespace switchback::gemm_int8 {

/// gemm() and gemm_s8s8s32() without their checks: runs the configuration that the Context's tuner
/// knows, else the default. Throws Error(unsupported) if a forced engine cannot run it.
void multiply(ContextState& state, const GemmArgs& args);
void multiply(ContextState& state, const GemmS8S8S32Args& args);

/// pack_weight() and pack_weights() without their checks. b holds `groups` matrices below each
/// other. `op` is the operation's name in the error that is thrown if the engine does not exist.
void pack(ContextState& state, std::string_view op, MatrixView<const std::int8_t> b,
          std::int64_t groups, PackedWeight& out, std::string_view engine);

/// Writes the codes of a packed matrix of one group: [rows,cols].
void unpack(ContextState& state, const PackedWeight& b, MatrixView<std::int8_t> codes);

/// Makes `out` the packed transpose of a packed B[n,k], for the same engine.
void pack_transposed(ContextState& state, const PackedWeight& b, PackedWeight& out);

/// Where the codes of packed matrices are written.
struct PackedRows {
  MatrixView<std::int8_t> first{};
  std::int64_t step = 0;  ///< codes from one matrix to the next
};
/// Makes `out` hold `groups` packed matrices B[n,k] whose codes are not written yet, for an engine
/// that packs rows unchanged. For other engines the result has no data: use pack(). Without
/// `fresh`, `out` already holds packed matrices of the same sizes, which stay until they are
/// overwritten.
PackedRows begin_packed_rows(ContextState& state, std::int64_t groups, std::int64_t n,
                             std::int64_t k, PackedWeight& out, std::string_view engine,
                             bool fresh);

}  // namespace switchback::gemm_int8
