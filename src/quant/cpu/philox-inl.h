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

// Replaces the Philox counter in each lane of `count` vectors by four random words: c[j] are the
// four words of vector j. A round waits for its products, so two vectors take little more time than
// one.
template <int count>
HWY_INLINE void philox_words(std::uint64_t key, VU (*c)[4]) {
  namespace philox = core::philox;
  const U32 d;
#if HWY_TARGET == HWY_SCALAR
  for (int j = 0; j < count; ++j) {
    const philox::Words words = philox::bits(key, {hn::GetLane(c[j][0]), hn::GetLane(c[j][1]),
                                                   hn::GetLane(c[j][2]), hn::GetLane(c[j][3])});
    for (std::size_t w = 0; w < 4; ++w)
      c[j][w] = hn::Set(d, words[w]);
  }
#else
  // MulEven multiplies only even lanes. So odd lanes are moved to even ones in a second set of
  // counters, and moved back at the end: six operations for each round and set. The odd lanes of a
  // set are never read.
  struct Set {
    VU c0, c1, c2, c3;
  };
  const auto round_of = [&](Set& s, VU key0, VU key1) HWY_ATTR {
    const auto product0 = hn::MulEven(s.c0, hn::Set(d, philox::multiplier0));
    const auto product1 = hn::MulEven(s.c2, hn::Set(d, philox::multiplier1));
    const VU upper0 = hn::BitCast(d, hn::ShiftRight<32>(product0));
    const VU upper1 = hn::BitCast(d, hn::ShiftRight<32>(product1));
    s.c0 = hn::Xor3(upper1, s.c1, key0);
    s.c1 = hn::BitCast(d, product1);
    s.c2 = hn::Xor3(upper0, s.c3, key1);
    s.c3 = hn::BitCast(d, product0);
  };
  Set even[count], odd[count];
  for (int j = 0; j < count; ++j) {
    even[j] = {c[j][0], c[j][1], c[j][2], c[j][3]};
    odd[j] = {hn::DupOdd(c[j][0]), hn::DupOdd(c[j][1]), hn::DupOdd(c[j][2]), hn::DupOdd(c[j][3])};
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < philox::rounds; ++round) {
    const VU key0 = hn::Set(d, k0);
    const VU key1 = hn::Set(d, k1);
    for (int j = 0; j < count; ++j) {
      round_of(even[j], key0, key1);
      round_of(odd[j], key0, key1);
    }
    k0 += philox::weyl0;
    k1 += philox::weyl1;
  }
  for (int j = 0; j < count; ++j) {
    c[j][0] = hn::OddEven(hn::DupEven(odd[j].c0), even[j].c0);
    c[j][1] = hn::OddEven(hn::DupEven(odd[j].c1), even[j].c1);
    c[j][2] = hn::OddEven(hn::DupEven(odd[j].c2), even[j].c2);
    c[j][3] = hn::OddEven(hn::DupEven(odd[j].c3), even[j].c3);
  }
#endif
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
