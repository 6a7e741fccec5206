// SPDX-License-Identifier: Apache-2.0
// Engine zone: what the engines built on oneDNN share: whether it can be used, its matmul
// primitives, made once per thread and problem, and the calls that run them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/context_state.hpp"
#include "gemm/floating/problem.hpp"

namespace switchback::floating {

/// Why oneDNN cannot be used at all; empty if it can.
std::string onednn_unavailable();
/// Whether oneDNN multiplies bf16 matrices of this inner dimension with bf16 instructions. Without
/// them it emulates bf16, which is slower than widening to f32. With AMX and an inner dimension of
/// 63, its kernel ends the process by an illegal instruction (seen in 2.6.3 and 2.7.3:
/// github.com/uxlfoundation/oneDNN/issues/1661).
bool onednn_multiplies_bf16(std::int64_t k);

/// Throws the Error for a dnnl_status_t that is not success. The message names the call.
void check_onednn(int status, std::string_view call);

#if defined(SWITCHBACK_HAVE_ONEDNN)

/// The layout in which a matmul primitive gets b.
enum class LayoutB {
  plain,        ///< b's rows as the caller gave them
  packed_here,  ///< b is reordered by the call that multiplies
  packed,       ///< b was reordered by pack_transposed(); ldb and transpose_b are ignored
};

/// Runs a problem with f32 or bf16 inputs. bias is null or bias[n] in f32. A packed b must come
/// from pack_transposed().
void multiply(ContextState& context, const Problem& problem, LayoutB layout, const void* a,
              const void* b, void* d, const float* bias);

/// Bytes of a packed b[k,n]; 0 if packing gains nothing.
std::size_t packed_bytes(std::int64_t k, std::int64_t n, DType dtype);
/// Packs the transpose of w[n,k] (leading dimension ld) as the b of x · wᵀ. The result serves any
/// number of rows of x.
void pack_transposed(ContextState& context, const void* w, std::int64_t n, std::int64_t k,
                     std::int64_t ld, DType dtype, void* packed);

#endif

}  // namespace switchback::floating
