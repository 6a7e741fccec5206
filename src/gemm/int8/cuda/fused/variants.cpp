// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/fused.hpp"
#include "gemm/int8/cuda/fused/groups/launch.hpp"

namespace switchback::products::cuda {

namespace {

// A generation of GPUs, and the variants that were built for it.
template <class Variant>
struct Generation {
  bool (*is_it)(int compute_capability);
  std::span<const Variant> (*built)(std::string_view& why_none) noexcept;
};

constexpr bool is_sm80(int capability) {
  return capability / 10 == 8;
}
constexpr bool is_sm90(int capability) {
  return capability == 90;
}
// Does not include 10.3, where tcgen05 has no int8 products.
constexpr bool is_sm100(int capability) {
  return capability == 100;
}
constexpr bool is_sm120(int capability) {
  return capability / 10 == 12;
}

// The variants that a device can run. `no_generation` is the reason for devices of other
// generations.
template <class Variant>
std::span<const Variant> variants_of(int compute_capability, std::size_t shared_bytes_per_block,
                                     std::string_view& why_none,
                                     std::span<const Generation<Variant>> generations,
                                     std::string_view no_generation) noexcept {
  why_none = no_generation;
  std::span<const Variant> built;
  for (const Generation<Variant>& generation : generations)
    if (generation.is_it(compute_capability)) {
      why_none = {};
      built = generation.built(why_none);
    }
  std::size_t fit = 0;
  while (fit < built.size() && built[fit].shared_bytes <= shared_bytes_per_block)
    ++fit;
  if (fit == 0 && !built.empty())
    why_none = "its kernels need more shared memory than a block has on this device";
  return built.first(fit);
}

}  // namespace

std::span<const FusedVariant> fused_variants(int compute_capability,
                                             std::size_t shared_bytes_per_block,
                                             std::string_view& why_none) noexcept {
  static constexpr Generation<FusedVariant> generations[] = {{is_sm80, built_for_sm80},
                                                             {is_sm90, built_for_sm90},
                                                             {is_sm100, built_for_sm100},
                                                             {is_sm120, built_for_sm120}};
  return variants_of<FusedVariant>(
      compute_capability, shared_bytes_per_block, why_none, generations,
      "its kernels are for compute capability 8.x, 9.0, 10.0 and 12.x");
}

std::span<const FusedVariant> rotating_variants(int compute_capability,
                                                std::size_t shared_bytes_per_block) noexcept {
  static constexpr Generation<FusedVariant> generations[] = {{is_sm90, rotating_built_for_sm90}};
  std::string_view why_none;
  return variants_of<FusedVariant>(compute_capability, shared_bytes_per_block, why_none,
                                   generations, {});
}

std::span<const GroupedFusedVariant> grouped_fused_variants(int compute_capability,
                                                            std::size_t shared_bytes_per_block,
                                                            std::string_view& why_none) noexcept {
  static constexpr Generation<GroupedFusedVariant> generations[] = {
      {is_sm80, grouped_built_for_sm80},
      {is_sm90, grouped_built_for_sm90},
      {is_sm120, grouped_built_for_sm120}};
  return variants_of<GroupedFusedVariant>(
      compute_capability, shared_bytes_per_block, why_none, generations,
      "its kernels for groups are for compute capability 8.x, 9.0 and 12.x");
}

}  // namespace switchback::products::cuda
