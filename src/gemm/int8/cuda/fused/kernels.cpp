// SPDX-License-Identifier: Apache-2.0
// The kernels of shapes.def that this build has. Each is defined in a source file that CMake makes
// of its line.
#include <array>

#include "gemm/cuda/seen.hpp"
#include "gemm/int8/cuda/fused/fused.hpp"
#include "gemm/int8/cuda/fused/groups/launch.hpp"

namespace switchback::products::cuda {

#define FUSED_SM80(m, n, k, cluster, ...) \
  extern const FusedVariant fused_sm80_##m##x##n##x##k##_##cluster;
#define FUSED_SM90(m, n, k, cluster, ...) \
  extern const FusedVariant fused_sm90_##m##x##n##x##k##_##cluster;
#define FUSED_SM100(m, n, k, cluster, ...) \
  extern const FusedVariant fused_sm100_##m##x##n##x##k##_##cluster;
#define ROTATED_SM90(m, n, k, cluster, ...) \
  extern const FusedVariant fused_rotated_sm90_##m##x##n##x##k##_##cluster;
#define GROUPED_SM80(m, n, k, ...) \
  extern const GroupedFusedVariant fused_grouped_sm80_##m##x##n##x##k;
#define GROUPED_SM90(m, n, k, ...) \
  extern const GroupedFusedVariant fused_grouped_sm90_##m##x##n##x##k;
#include "gemm/int8/cuda/fused/shapes.def"

namespace {

#if defined(SWITCHBACK_HAVE_CUTLASS)
#define SWITCHBACK_WHY_NONE(generation) \
  "the library was built without kernels for compute capability " generation
#else
#define SWITCHBACK_WHY_NONE(generation) "the library was built without CUTLASS"
#endif

// Adds to a kernel what is known about it: its time, and the record in which its results were
// right.
[[maybe_unused]] FusedVariant known(FusedVariant variant, double time, std::string_view seen) {
  variant.time = time;
  variant.seen = seen;
  return variant;
}
[[maybe_unused]] GroupedFusedVariant known(GroupedFusedVariant variant, std::string_view seen,
                                           std::string_view seen_scalar) {
  variant.seen = seen;
  variant.seen_scalar = seen_scalar;
  return variant;
}
template <class Variant>
[[maybe_unused]] Variant cannot_hang(Variant variant) {
  variant.cannot_hang = true;
  return variant;
}

// Kernels written for 8.x, in code for each generation that was asked for. They cannot hang: they
// wait only for their own copies and for the warps of their thread block.
#if defined(SWITCHBACK_HAVE_FUSED_SM80) || defined(SWITCHBACK_HAVE_FUSED_SM120)
std::span<const FusedVariant> all_sm80() noexcept {
  static const std::array all = {
      fused_skinny,
#define FUSED_SM80(m, n, k, cluster, time, ...) \
  cannot_hang(known(fused_sm80_##m##x##n##x##k##_##cluster, time, {})),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return all;
}
std::span<const GroupedFusedVariant> grouped_all_sm80() noexcept {
  static const std::array all = {
#define GROUPED_SM80(m, n, k, ...) cannot_hang(fused_grouped_sm80_##m##x##n##x##k),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return all;
}
#endif

}  // namespace

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
      known(fused_skinny, 0, seen_on_h200),
#define FUSED_SM90(m, n, k, cluster, time, seen) \
  known(fused_sm90_##m##x##n##x##k##_##cluster, time, seen),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return all;
}
std::span<const FusedVariant> rotating_built_for_sm90(std::string_view&) noexcept {
  static const std::array all = {
#define ROTATED_SM90(m, n, k, cluster, seen) \
  known(fused_rotated_sm90_##m##x##n##x##k##_##cluster, 0, seen),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return all;
}
std::span<const GroupedFusedVariant> grouped_built_for_sm90(std::string_view&) noexcept {
  static const std::array all = {
#define GROUPED_SM90(m, n, k, seen, seen_scalar) \
  known(fused_grouped_sm90_##m##x##n##x##k, seen, seen_scalar),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return all;
}
#else
std::span<const FusedVariant> built_for_sm90(std::string_view& why_none) noexcept {
  why_none = SWITCHBACK_WHY_NONE("9.0");
  return {};
}
std::span<const FusedVariant> rotating_built_for_sm90(std::string_view& why_none) noexcept {
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
  static const std::array all = {
      fused_skinny,
#define FUSED_SM100(m, n, k, cluster, time) \
  known(fused_sm100_##m##x##n##x##k##_##cluster, time, {}),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return all;
}
#else
std::span<const FusedVariant> built_for_sm100(std::string_view& why_none) noexcept {
  why_none = SWITCHBACK_WHY_NONE("10.0");
  return {};
}
#endif

}  // namespace switchback::products::cuda
