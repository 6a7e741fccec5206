// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused products of groups: kernels and arguments. The rows of each group are
// multiplied by the group's own matrix. One launch of persistent thread blocks computes all groups;
// thread blocks find their tiles on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/cuda/groups.hpp"
#include "switchback/types.hpp"

namespace switchback::products::cuda {

/// The arguments of a grouped fused product: the formula of fused.hpp, applied to the rows of each
/// group. The alignment rules of that file apply to a, b and d; b_step and the bytes of
/// d_column_stride must be multiples of 16 too.
struct GroupedFusedArguments {
  core::cuda::GroupArrays groups;
  const std::int8_t* a;   ///< address of the row of slot 0
  const std::int8_t* b;   ///< address of the matrix of group 0
  void* d;                ///< address of the result of slot 0 and group 0
  const float* absmax_a;  ///< [slots]
  const float* absmax_b;  ///< [groups, n], or [groups] if scalar_b
  const void* bias;       ///< [groups, n]; null: no bias
  DType bias_type;
  int n, k;
  std::int64_t a_stride, b_stride, d_stride;
  std::int64_t b_step;           ///< distance between the b of consecutive groups
  std::int64_t d_column_stride;  ///< if above zero: step from one group's d to the next
  bool scalar_b;
  int multiprocessors;
};

/// One tile shape of a fused kernel for groups; the members are those of FusedVariant.
struct GroupedFusedVariant {
  int tile_m;
  int tile_n;
  int tile_k;
  std::size_t shared_bytes;  ///< shared memory of a thread block
  /// The bytes of scratch memory that a launch needs, 256-byte aligned.
  std::size_t (*workspace_bytes)(DType output, const GroupedFusedArguments& arguments);
  cudaError_t (*launch)(DType output, const GroupedFusedArguments& arguments, void* workspace,
                        cudaStream_t stream);
  /// As FusedVariant::seen, for a scale for each column (seen), and for a scale for each group
  /// (seen_scalar).
  std::string_view seen = {};
  std::string_view seen_scalar = {};
  bool cannot_hang = false;
};

/// As fused_variants(), for products of groups. The variants are sorted by descending tile_m.
std::span<const GroupedFusedVariant> grouped_fused_variants(int compute_capability,
                                                            std::size_t shared_bytes_per_block,
                                                            std::string_view& why_none) noexcept;

std::span<const GroupedFusedVariant> grouped_built_for_sm80(std::string_view& why_none) noexcept;
std::span<const GroupedFusedVariant> grouped_built_for_sm90(std::string_view& why_none) noexcept;
std::span<const GroupedFusedVariant> grouped_built_for_sm120(std::string_view& why_none) noexcept;

}  // namespace switchback::products::cuda
