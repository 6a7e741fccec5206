// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/kernels.hpp"

#include <array>

#include "gemm/int8/cuda/fused/groups/kernels.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

#if defined(SWITCHBACK_HAVE_CUTLASS)
#define SWITCHBACK_WHY_NONE(generation) \
  "the library was built without kernels for compute capability " generation
#else
#define SWITCHBACK_WHY_NONE(generation) "the library was built without CUTLASS"
#endif

// Kernels written for 8.x, in code for each generation that was asked for.
#if defined(SWITCHBACK_HAVE_FUSED_SM80) || defined(SWITCHBACK_HAVE_FUSED_SM120)
namespace {
std::span<const FusedVariant> all_sm80() noexcept {
  static const std::array all = {
      fused_sm80_128x128x64,   fused_sm80_256x128x64,  fused_sm80_128x256x64,
      fused_sm80_64x128x64,    fused_sm80_64x256x64,   fused_sm80_32x64x128,
      fused_sm80_64x128x128,   fused_sm80_64x64x128,   fused_sm80_16x64x128,
      fused_sm80_128x128x64_5, fused_sm80_256x128x128, fused_sm80_128x256x128};
  return all;
}
std::span<const GroupedFusedVariant> grouped_all_sm80() noexcept {
  static const std::array all = {fused_grouped_sm80_128x128x64, fused_grouped_sm80_64x128x64,
                                 fused_grouped_sm80_32x64x128};
  return all;
}
}  // namespace
#endif

#if defined(SWITCHBACK_HAVE_FUSED_SM80)
std::span<const FusedVariant> built_for_sm80(std::string_view&) noexcept {
  return all_sm80();
}
std::span<const GroupedFusedVariant> grouped_built_for_sm80(std::string_view&) noexcept {
  return grouped_all_sm80();
}
#else
std::span<const FusedVariant> built_for_sm80(std::string_view& why_none) noexcept {
  why_none = SWITCHBACK_WHY_NONE("8.x");
  return {};
}
std::span<const GroupedFusedVariant> grouped_built_for_sm80(std::string_view& why_none) noexcept {
  why_none = SWITCHBACK_WHY_NONE("8.x");
  return {};
}
#endif

#if defined(SWITCHBACK_HAVE_FUSED_SM120)
std::span<const FusedVariant> built_for_sm120(std::string_view&) noexcept {
  return all_sm80();
}
std::span<const GroupedFusedVariant> grouped_built_for_sm120(std::string_view&) noexcept {
  return grouped_all_sm80();
}
#else
std::span<const FusedVariant> built_for_sm120(std::string_view& why_none) noexcept {
  why_none = SWITCHBACK_WHY_NONE("12.x");
  return {};
}
std::span<const GroupedFusedVariant> grouped_built_for_sm120(std::string_view& why_none) noexcept {
  why_none = SWITCHBACK_WHY_NONE("12.x");
  return {};
}
#endif

#if defined(SWITCHBACK_HAVE_FUSED_SM90)
std::span<const FusedVariant> built_for_sm90(std::string_view&) noexcept {
  static const std::array all = {
      fused_sm90_128x256_2x1,    fused_sm90_256x128_2x1,   fused_sm90_128x128_2x1,
      fused_sm90_64x128_1x1,     fused_sm90_64x256_1x1,    fused_sm90_128x256_1x2,
      fused_sm90_128x256_1x1,    fused_sm90_256x128_1x2,   fused_sm90_128x128_1x2,
      fused_sm90_128x128_1x1,    fused_sm90_64x128_2x1,    fused_sm90_64x128_1x4,
      fused_sm90_64x256_2x1,     fused_sm90_64x64x256_1x1, fused_sm90_64x64x256_1x4,
      fused_sm90_16x64x256,      fused_sm90_128x192_2x1,   fused_sm90_128x128_stream_k,
      fused_sm90_32x128_stream_k};
  return all;
}
std::span<const GroupedFusedVariant> grouped_built_for_sm90(std::string_view&) noexcept {
  static const std::array all = {fused_grouped_sm90_128x128_1x1, fused_grouped_sm90_64x128_1x1};
  return all;
}
#else
std::span<const FusedVariant> built_for_sm90(std::string_view& why_none) noexcept {
  why_none = SWITCHBACK_WHY_NONE("9.0");
  return {};
}
std::span<const GroupedFusedVariant> grouped_built_for_sm90(std::string_view& why_none) noexcept {
  why_none = SWITCHBACK_WHY_NONE("9.0");
  return {};
}
#endif

#if defined(SWITCHBACK_HAVE_FUSED_SM100)
std::span<const FusedVariant> built_for_sm100(std::string_view&) noexcept {
  static const std::array all = {fused_sm100_128x256_2x1, fused_sm100_128x128_2x1,
                                 fused_sm100_128x64_2x1,  fused_sm100_128x256_1x1,
                                 fused_sm100_128x128_1x1, fused_sm100_128x64_1x1,
                                 fused_sm100_64x64_1x1};
  return all;
}
#else
std::span<const FusedVariant> built_for_sm100(std::string_view& why_none) noexcept {
  why_none = SWITCHBACK_WHY_NONE("10.0");
  return {};
}
#endif

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
