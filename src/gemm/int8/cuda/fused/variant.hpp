// SPDX-License-Identifier: Apache-2.0
// Engine zone: a variant of the fused product from its kernels, one for each type of output.
#pragma once

#include <algorithm>

#include "gemm/int8/cuda/fused/fused.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

template <class F32, class F16, class Bf16>
struct FusedKernels {
  static std::size_t workspace_bytes(DType output, const FusedArguments& p) {
    switch (output) {
      case DType::f32:
        return F32::workspace_bytes(p);
      case DType::f16:
        return F16::workspace_bytes(p);
      default:
        return Bf16::workspace_bytes(p);
    }
  }
  static cudaError_t launch(DType output, const FusedArguments& p, void* workspace,
                            cudaStream_t stream) {
    switch (output) {
      case DType::f32:
        return F32::launch(p, workspace, stream);
      case DType::f16:
        return F16::launch(p, workspace, stream);
      case DType::bf16:
        return Bf16::launch(p, workspace, stream);
      default:
        return cudaErrorInvalidValue;
    }
  }
};

template <class F32, class F16, class Bf16>
constexpr FusedVariant fused_variant(int tile_m, int tile_n, int tile_k, int cluster_m,
                                     int cluster_n) {
  using Kernels = FusedKernels<F32, F16, Bf16>;
  return {tile_m,
          tile_n,
          tile_k,
          cluster_m,
          cluster_n,
          std::max({F32::shared_bytes, F16::shared_bytes, Bf16::shared_bytes}),
          Kernels::workspace_bytes,
          Kernels::launch};
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
