// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry to the int8 products, for callers that have validated their
// arguments: the public functions, and the layer.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/context_state.hpp"
#include "switchback/gemm.hpp"

namespace switchback::gemm_int8 {

struct Product;  // defined in gemm/int8/product.hpp

/// gemm() and gemm_s8s8s32() without their checks. Run the configuration of the Context's tuner,
/// else the default. Throw Error(unsupported) if the engine that args names cannot run the product.
void multiply(ContextState& state, const GemmArgs& args);
void multiply(ContextState& state, const GemmS8S8S32Args& args);
/// Computes a single product or the products of groups. It runs the tuned configuration. If there
/// is none, it runs the default of the forced engine, of the engine that b is packed for, or of the
/// first engine that accepts the problem. A library may have no algorithm for a problem that its
/// engine accepts. Then, unless that engine was forced, the device's last engine runs: it accepts
/// everything and reads the packed form of the other engines. `op` is the operation's name in
/// messages. Sets the problem's alignment.
void multiply(ContextState& state, std::string_view op, Product& product, std::string_view forced);

/// Computes d = rotate(gemm()) by groups of `group` columns, rounded once, if an engine has a
/// kernel for it: the named one, or any if the name is empty. Otherwise returns false and does
/// nothing. args has no bias. (switchback/rotation.hpp defines rotations.)
bool multiply_rotated(ContextState& state, const GemmArgs& args, int group);

/// pack_weight() and pack_weights() without their checks. b holds `groups` matrices below each
/// other. `op` is the operation's name in the error that is thrown if the engine does not exist.
void pack(ContextState& state, std::string_view op, MatrixView<const std::int8_t> b,
          std::int64_t groups, PackedWeight& out, std::string_view engine);

/// Restores the codes of packed matrices and writes them below each other: [groups·rows,cols].
void unpack(ContextState& state, const PackedWeight& b, MatrixView<std::int8_t> codes);

/// Makes `out` hold the packed transpose of each packed matrix B[n,k] in b, for the same engine.
void pack_transposed(ContextState& state, const PackedWeight& b, PackedWeight& out);

/// The rows of packed matrices, if a caller can write codes to them directly.
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
