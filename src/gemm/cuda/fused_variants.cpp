// SPDX-License-Identifier: Apache-2.0
#include "gemm/cuda/fused.hpp"

#include <array>
#if defined(SWITCHBACK_HAVE_CUTLASS)
#include "gemm/cuda/fused_sm90_variants.hpp"
#endif

namespace switchback::products::SWITCHBACK_CUDA_NS {

std::span<const FusedVariant> fused_variants([[maybe_unused]] int compute_capability,
                                             std::string_view& why_none) noexcept {
#if defined(SWITCHBACK_HAVE_CUTLASS)
  if (compute_capability == 90) {
    static const std::array all = {fused_sm90_128x256, fused_sm90_256x128, fused_sm90_128x128,
                                   fused_sm90_64x256, fused_sm90_64x128};
    why_none = {};
    return all;
  }
  why_none = "its kernels are for compute capability 9.0 alone";
#else
  why_none = "the library was built without CUTLASS";
#endif
  return {};
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
