// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/fused.hpp"
#include "gemm/int8/cuda/fused/groups/launch.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

namespace {

// Those of a device: `sm80` and `sm90` say what was built for each generation.
template <class Variant>
std::span<const Variant> variants_of(
    int compute_capability, std::size_t shared_bytes_per_block, std::string_view& why_none,
    std::span<const Variant> (*sm80)(std::string_view&) noexcept,
    std::span<const Variant> (*sm90)(std::string_view&) noexcept) noexcept {
  why_none = {};
  std::span<const Variant> built;
  if (compute_capability == 90)
    built = sm90(why_none);
  else if (compute_capability / 10 == 8)
    built = sm80(why_none);
  else
    why_none = "its kernels are for compute capability 8.x and 9.0";
  std::size_t fit = 0;
  while (fit < built.size() && built[fit].shared_bytes <= shared_bytes_per_block)
    ++fit;
  if (fit == 0 && !built.empty())
    why_none = "its kernels want more shared memory than a block has here";
  return built.first(fit);
}

}  // namespace

std::span<const FusedVariant> fused_variants(int compute_capability,
                                             std::size_t shared_bytes_per_block,
                                             std::string_view& why_none) noexcept {
  return variants_of(compute_capability, shared_bytes_per_block, why_none, built_for_sm80,
                     built_for_sm90);
}

std::span<const GroupedFusedVariant> grouped_fused_variants(int compute_capability,
                                                            std::size_t shared_bytes_per_block,
                                                            std::string_view& why_none) noexcept {
  return variants_of(compute_capability, shared_bytes_per_block, why_none, grouped_built_for_sm80,
                     grouped_built_for_sm90);
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
