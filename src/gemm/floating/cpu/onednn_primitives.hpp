// SPDX-License-Identifier: Apache-2.0
// Engine zone: oneDNN matmul primitives, made once per thread and problem, and the calls that run
// them.
#pragma once

#if defined(SWITCHBACK_HAVE_ONEDNN)

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "core/context_state.hpp"
#include "gemm/floating/problem.hpp"

namespace switchback::floating {

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

}  // namespace switchback::floating

#endif
