// SPDX-License-Identifier: Apache-2.0
// Engine zone: the launches of the fused products of groups. The rows of each group are multiplied
// by the group's own matrix. One launch of persistent blocks computes all groups; blocks find their
// tiles on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/cuda/groups.hpp"
#include "switchback/types.hpp"

namespace switchback::products::cuda {

/// The formula of fused.hpp, applied to the rows of each group. The alignment rules of that file
/// apply to a, b and d; b_step and the bytes of d_column_stride must be multiples of 16 too.
struct GroupedFusedArguments {
  core::cuda::GroupArrays groups;
  const std::int8_t* a;   ///< of slot 0
  const std::int8_t* b;   ///< of group 0
  void* d;                ///< of slot 0 and group 0
  const float* absmax_a;  ///< [slots]
  const float* absmax_b;  ///< [groups, n], or [groups] if scalar_b
  const void* bias;       ///< [groups, n] or null
  DType bias_type;
  int n, k;
  std::int64_t a_stride, b_stride, d_stride;
  std::int64_t b_step;           ///< distance between the b of consecutive groups
  std::int64_t d_column_stride;  ///< above zero: see GroupedGemmArgs
  bool scalar_b;
  int multiprocessors;
};

/// One shape of a kernel, like FusedVariant.
struct GroupedFusedVariant {
  int tile_m;
  int tile_n;
  int tile_k;
  std::size_t shared_bytes;  ///< of a block
  /// Bytes of scratch it needs, 256-byte aligned.
  std::size_t (*workspace_bytes)(DType output, const GroupedFusedArguments& arguments);
  cudaError_t (*launch)(DType output, const GroupedFusedArguments& arguments, void* workspace,
                        cudaStream_t stream);
  /// Like FusedVariant::seen, for a scale for each column and for a scale for each group.
  std::string_view seen = {};
  std::string_view seen_scalar = {};
  bool cannot_hang = false;
};

/// Like fused_variants(). The first one is the default when nothing better is known.
std::span<const GroupedFusedVariant> grouped_fused_variants(int compute_capability,
                                                            std::size_t shared_bytes_per_block,
                                                            std::string_view& why_none) noexcept;

std::span<const GroupedFusedVariant> grouped_built_for_sm80(std::string_view& why_none) noexcept;
std::span<const GroupedFusedVariant> grouped_built_for_sm90(std::string_view& why_none) noexcept;
std::span<const GroupedFusedVariant> grouped_built_for_sm120(std::string_view& why_none) noexcept;

}  // namespace switchback::products::cuda
