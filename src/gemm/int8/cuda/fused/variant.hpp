// SPDX-License-Identifier: Apache-2.0
// Engine zone: makes a variant of a fused product from its kernels, one for each type of output.
#pragma once

#include <algorithm>

#include "gemm/int8/cuda/fused/fused.hpp"
#include "gemm/int8/cuda/fused/groups/launch.hpp"

namespace switchback::products::cuda {

template <class Arguments, class F32, class F16, class Bf16>
struct FusedKernels {
  static std::size_t workspace_bytes(DType output, const Arguments& p) {
    switch (output) {
      case DType::f32:
        return F32::workspace_bytes(p);
      case DType::f16:
        return F16::workspace_bytes(p);
      default:
        return Bf16::workspace_bytes(p);
    }
  }
  static cudaError_t launch(DType output, const Arguments& p, void* workspace,
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

/// Makes a variant from its kernels for f32, f16 and bf16 outputs. Variant is FusedVariant or
/// GroupedFusedVariant; Arguments is the type of its arguments.
template <class Variant, class Arguments, class F32, class F16, class Bf16>
constexpr Variant make_variant(int tile_m, int tile_n, int tile_k) {
  using Kernels = FusedKernels<Arguments, F32, F16, Bf16>;
  Variant variant{};
  variant.tile_m = tile_m;
  variant.tile_n = tile_n;
  variant.tile_k = tile_k;
  variant.shared_bytes = std::max({F32::shared_bytes, F16::shared_bytes, Bf16::shared_bytes});
  variant.workspace_bytes = Kernels::workspace_bytes;
  variant.launch = Kernels::launch;
  return variant;
}

template <class F32, class F16, class Bf16>
constexpr FusedVariant fused_variant(int tile_m, int tile_n, int tile_k, int cluster) {
  auto variant = make_variant<FusedVariant, FusedArguments, F32, F16, Bf16>(tile_m, tile_n, tile_k);
  variant.cluster = cluster;
  return variant;
}

template <class F32, class F16, class Bf16>
constexpr GroupedFusedVariant grouped_fused_variant(int tile_m, int tile_n, int tile_k) {
  return make_variant<GroupedFusedVariant, GroupedFusedArguments, F32, F16, Bf16>(tile_m, tile_n,
                                                                                  tile_k);
}

}  // namespace switchback::products::cuda
