// SPDX-License-Identifier: Apache-2.0
// Engine zone: Philox4x32-10 on vectors of counters. Included once for each Highway target.
#if defined(SWITCHBACK_QUANT_CPU_PHILOX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef SWITCHBACK_QUANT_CPU_PHILOX_INL
#undef SWITCHBACK_QUANT_CPU_PHILOX_INL
#else
#define SWITCHBACK_QUANT_CPU_PHILOX_INL
#endif

#include "core/philox.hpp"
#include "quant/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// The words of a counter in each lane, in place of it.
HWY_INLINE void philox_words(std::uint64_t key, VU& c0, VU& c1, VU& c2, VU& c3) {
  namespace philox = core::philox;
  const U32 d;
#if HWY_TARGET == HWY_SCALAR
  const philox::Words words =
      philox::bits(key, {hn::GetLane(c0), hn::GetLane(c1), hn::GetLane(c2), hn::GetLane(c3)});
  c0 = hn::Set(d, words[0]);
  c1 = hn::Set(d, words[1]);
  c2 = hn::Set(d, words[2]);
  c3 = hn::Set(d, words[3]);
#else
  // Even and odd lanes are multiplied apart; both halves of the products are put together again.
  const auto multiply = [&](VU a, std::uint32_t factor, VU& upper, VU& lower) HWY_ATTR {
    const VU f = hn::Set(d, factor);
    const auto even = hn::BitCast(d, hn::MulEven(a, f));
    const auto odd = hn::BitCast(d, hn::MulEven(hn::DupOdd(a), f));
    lower = hn::OddEven(hn::DupEven(odd), even);
    upper = hn::OddEven(odd, hn::DupOdd(even));
  };
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < philox::rounds; ++round) {
    VU upper0, lower0, upper1, lower1;
    multiply(c0, philox::multiplier0, upper0, lower0);
    multiply(c2, philox::multiplier1, upper1, lower1);
    c0 = hn::Xor(hn::Xor(upper1, c1), hn::Set(d, k0));
    c1 = lower1;
    c2 = hn::Xor(hn::Xor(upper0, c3), hn::Set(d, k1));
    c3 = lower0;
    k0 += philox::weyl0;
    k1 += philox::weyl1;
  }
#endif
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
