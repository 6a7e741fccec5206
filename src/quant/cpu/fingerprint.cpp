// SPDX-License-Identifier: Apache-2.0
// Engine zone: the hash of fingerprint() with vectors and threads.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/fingerprint.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "quant/cpu/engine.hpp"
#include "quant/fingerprint.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
// The sum of the lanes modulo 2^64. On AVX-512 with GCC, hn::SumOfLanes adds signed integers, which
// must not overflow.
template <class D>
std::uint64_t SumOfLanesModulo(D /*d*/, hn::Vec<D> lanes) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(lanes);
  } else {
    const hn::Half<D> half;
    return SumOfLanesModulo(half, hn::Add(hn::LowerHalf(half, lanes), hn::UpperHalf(half, lanes)));
  }
}
#endif

// Computes the three sums of the NH hash of one block.
void BlockSums(const unsigned char* data, std::int64_t chunks, const std::uint32_t* key,
               std::uint64_t (&sum)[hash::sums]) {
#if HWY_TARGET == HWY_SCALAR  // NH multiplies pairs of lanes, and these vectors have one lane
  hash::block_sums(data, chunks, key, sum);
#else
  using D = hn::CappedTag<std::uint32_t, hash::chunk_bytes / 4>;
  const D d;
  const hn::Repartition<std::uint64_t, D> wide;
  constexpr std::int64_t lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  constexpr std::int64_t chunk = hash::chunk_bytes / 4;
  static_assert(chunk <= 4 * lanes && chunk % lanes == 0 && hash::sums == 3);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(data);
  const auto products = [&](hn::Vec<D> x, const std::uint32_t* k) HWY_ATTR {
    const auto a = hn::Add(x, hn::Load(d, k));
    return hn::MulEven(a, hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))));
  };
  auto sum_0 = hn::Zero(wide);
  auto sum_1 = hn::Zero(wide);
  auto sum_2 = hn::Zero(wide);
  const auto add = [&](std::int64_t i) HWY_ATTR {
    const auto x = hn::LoadU(d, words + i);
    sum_0 = hn::Add(sum_0, products(x, key + i));
    sum_1 = hn::Add(sum_1, products(x, key + i + chunk));
    sum_2 = hn::Add(sum_2, products(x, key + i + 2 * chunk));
  };
  for (std::int64_t i = 0; i < chunks * chunk; i += chunk) {
    // The multiplications delay the loads that follow them, so lines are prefetched well ahead: in
    // this block, and past its end, where the next block most likely begins.
    constexpr std::uintptr_t ahead_bytes = 4096;
    hwy::Prefetch(reinterpret_cast<const unsigned char*>(
        reinterpret_cast<std::uintptr_t>(words + i) + ahead_bytes));
    add(i);
    if constexpr (lanes < chunk) add(i + lanes);
    if constexpr (2 * lanes < chunk) {
      add(i + 2 * lanes);
      add(i + 3 * lanes);
    }
  }
  sum[0] = SumOfLanesModulo(wide, sum_0);
  sum[1] = SumOfLanesModulo(wide, sum_1);
  sum[2] = SumOfLanesModulo(wide, sum_2);
#endif
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(BlockSums);

namespace cpu {

hash::Field fingerprint(ContextState& state, const hash::Key& key, ConstAnyMatrix x) {
  hash::Field value = hash::of_shape(key, x);
  if (x.rows == 0 || x.cols == 0) return value;
  const hash::Bytes bytes(x);
  const auto kernel = HWY_DISPATCH_TABLE(BlockSums)[table_index(state.features)];
  const std::int64_t blocks = bytes.blocks();
  const std::int64_t tasks = (blocks + hash::task_blocks - 1) / hash::task_blocks;
  core::Workspace::Frame frame(state.workspace);
  auto* const values = frame.take<hash::Field>(tasks);
  // The hash is the value of a polynomial at a point. A task computes the value of its coefficients
  // alone. When other coefficients follow, this value is multiplied by a power of the point.
  state.threads.for_ranges(
      blocks, hash::task_blocks, [&](std::int64_t begin, std::int64_t end, int) {
        unsigned char buffer[hash::block_bytes];
        hash::Field part = 0;
        for (std::int64_t b = begin; b < end; ++b) {
          std::uint64_t sum[hash::sums];
          kernel(bytes.block(b, buffer), bytes.chunks_of_block(b), key.words, sum);
          part = hash::with_block(key, part, sum);
        }
        values[begin / hash::task_blocks] = part;
      });
  const std::int64_t last = 2 * (blocks - (tasks - 1) * hash::task_blocks);
  for (std::int64_t task = 0; task < tasks; ++task) {
    const hash::Field up = task + 1 < tasks ? key.point_of_task : hash::power(key.point, last);
    value = hash::add(hash::multiply(value, up), values[task]);
  }
  return value;
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
