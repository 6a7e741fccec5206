// SPDX-License-Identifier: Apache-2.0
// CUDA core: Philox4x32-10 in device code.
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"
#include "core/philox.hpp"

namespace switchback::core::cuda {

namespace philox = core::philox;

/// The keys of all Philox rounds. A kernel gets them as an argument, so it need not compute them.
struct PhiloxKeys {
  unsigned k0[philox::rounds] = {}, k1[philox::rounds] = {};

  PhiloxKeys() = default;
  explicit PhiloxKeys(std::uint64_t key) {
    k0[0] = static_cast<unsigned>(key);
    k1[0] = static_cast<unsigned>(key >> 32);
    for (int round = 1; round < philox::rounds; ++round) {
      k0[round] = k0[round - 1] + philox::weyl0;
      k1[round] = k1[round - 1] + philox::weyl1;
    }
  }
};

/// Returns the same random words as core::philox::bits, in device code.
__device__ __forceinline__ uint4 philox_words(const PhiloxKeys& keys, uint4 c) {
#pragma unroll
  for (int round = 0; round < philox::rounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{philox::multiplier0} * c.x;
    const std::uint64_t p1 = std::uint64_t{philox::multiplier1} * c.z;
    c = make_uint4(
        static_cast<unsigned>(p1 >> 32) ^ c.y ^ keys.k0[round], static_cast<unsigned>(p1),
        static_cast<unsigned>(p0 >> 32) ^ c.w ^ keys.k1[round], static_cast<unsigned>(p0));
  }
  return c;
}

}  // namespace switchback::core::cuda
