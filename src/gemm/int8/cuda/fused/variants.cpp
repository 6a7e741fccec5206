// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/fused.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

std::span<const FusedVariant> fused_variants(int compute_capability,
                                             std::size_t shared_bytes_per_block,
                                             std::string_view& why_none) noexcept {
  why_none = {};
  std::span<const FusedVariant> built;
  if (compute_capability == 90)
    built = built_for_sm90(why_none);
  else if (compute_capability / 10 == 8)
    built = built_for_sm80(why_none);
  else
    why_none = "its kernels are for compute capability 8.x and 9.0";
  std::size_t fit = 0;
  while (fit < built.size() && built[fit].shared_bytes <= shared_bytes_per_block)
    ++fit;
  if (fit == 0 && !built.empty())
    why_none = "its kernels want more shared memory than a block has here";
  return built.first(fit);
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
