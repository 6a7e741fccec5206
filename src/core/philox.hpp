// SPDX-License-Identifier: Apache-2.0
// Core: Philox4x32-10, a random number generator without a state: the bits are a function of a key
// and a counter (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
#pragma once

#include <array>
#include <cstdint>

namespace switchback::core::philox {

inline constexpr std::uint32_t multiplier0 = 0xD2511F53u;
inline constexpr std::uint32_t multiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t weyl0 = 0x9E3779B9u;
inline constexpr std::uint32_t weyl1 = 0xBB67AE85u;
inline constexpr int rounds = 10;

using Words = std::array<std::uint32_t, 4>;

inline Words bits(std::uint64_t key, Words counter) noexcept {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{multiplier0} * counter[0];
    const std::uint64_t p1 = std::uint64_t{multiplier1} * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += weyl0;
    k1 += weyl1;
  }
  return counter;
}

}  // namespace switchback::core::philox
