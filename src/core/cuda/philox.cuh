// SPDX-License-Identifier: Apache-2.0
// CUDA core: Philox4x32-10 in device code.
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"
#include "core/philox.hpp"

namespace switchback::core::SWITCHBACK_CUDA_NS {

/// The words of core::philox::bits.
__device__ __forceinline__ uint4 philox_words(std::uint64_t key, uint4 c) {
  namespace philox = core::philox;
  auto k0 = static_cast<unsigned>(key);
  auto k1 = static_cast<unsigned>(key >> 32);
#pragma unroll
  for (int round = 0; round < philox::rounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{philox::multiplier0} * c.x;
    const std::uint64_t p1 = std::uint64_t{philox::multiplier1} * c.z;
    c = make_uint4(static_cast<unsigned>(p1 >> 32) ^ c.y ^ k0, static_cast<unsigned>(p1),
                   static_cast<unsigned>(p0 >> 32) ^ c.w ^ k1, static_cast<unsigned>(p0));
    k0 += philox::weyl0;
    k1 += philox::weyl1;
  }
  return c;
}

}  // namespace switchback::core::SWITCHBACK_CUDA_NS
