// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: cross entropy on the CPU.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "studies/models/cpu/loss.cpp"
#include "hwy/foreach_target.h"
//
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/per_worker.hpp"
#include "hwy/cache_control.h"
#include "studies/models/cpu/engine.hpp"
#include "studies/models/cpu/streams-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// Cross entropy reads a row from memory only once, so it does not know the row's maximum in
// advance. It sums exp(x - shift), where the shift is the largest of the first elements, so it is
// one of the terms or close to one. If elements exceed the shift by more than `most_above`, the
// elements from there on use their own maximum as the shift. exp(40) times a million classes is far
// below the largest f32. A term that vanishes compared with exp(0) also vanishes compared with the
// largest term.
inline constexpr std::int64_t first_elements = 1024;
inline constexpr float most_above = 40;
// The number of exponentials that are summed in f32: 16 by each lane of `together` vectors. These
// sums are added in f64, so that a sum of many classes is as exact as one of few.
inline constexpr std::int64_t summed_elements = 16 * together * lanes;

// The number of vectors that are processed together. Memory delivers data faster than the core
// computes `together` exponentials of bf16, each of which is a chain of dependent operations. For
// f32, more vectors would only delay the prefetches.
template <class T>
inline constexpr int wide =
    HWY_TARGET == HWY_AVX3 && !std::is_same_v<T, float> ? 2 * together : together;

template <class T>
HWY_INLINE float max_of(const T* x, std::int64_t count) {
  VF maxima[together];
  for (VF& v : maxima)
    v = set(static_cast<float>(x[0]));
  std::int64_t i = 0;
  for (; i + wide<T> * lanes <= count; i += wide<T> * lanes) {
    VF v[wide<T>];
    q::widen_unordered<wide<T>>(x + i, v);
    for (int j = 0; j < wide<T>; ++j)
      maxima[j % together] = hn::Max(maxima[j % together], v[j]);
  }
  for (; i + lanes <= count; i += lanes)
    maxima[0] = hn::Max(maxima[0], q::widen(x + i));
  const VF both = hn::Max(hn::Max(maxima[0], maxima[1]), hn::Max(maxima[2], maxima[3]));
  float max = hn::GetLane(hn::MaxOfLanes(F32(), both));
  for (; i < count; ++i)
    max = std::max(max, static_cast<float>(x[i]));
  return max;
}

// Constants for the exponentials exp(x - shift) of several elements with one shift.
struct Differences {
  double shift;
  float subtrahend = 0, lowest, added, most = std::numeric_limits<float>::infinity();
  // The limit for x as bits to compare: of x · log2(e) rounded to sixteenths, and of a bf16
  // element.
  std::int32_t most_shifted = std::numeric_limits<std::int32_t>::max();
  std::int16_t most_bf16 = std::numeric_limits<std::int16_t>::max();
  // Whether the shift is subtracted from x. Otherwise it is a multiple of ln(2), which `added`
  // contains, so that nothing is rounded.
  bool subtracts;

  // The shift becomes `near` or a value close to it. `is_limited`: x may exceed it by `most_above`
  // only.
  Differences(float near, bool of_bf16, bool is_limited) : shift(static_cast<double>(near)) {
    constexpr double ln2 = 0x1.62e42fefa39efp-1;
    constexpr float far = 65536;    // beyond it, the error of log2(e) in f32 is too large
    constexpr double least = -127;  // 2^-127 is computed as 0
    // A limit that is compared as bits must not be negative: only the bits of positive numbers have
    // the order of the numbers.
    const float least_near = is_limited ? -most_above : -far;
    subtracts = HWY_TARGET != HWY_AVX3 || !of_bf16 || !(near >= least_near && near <= far);
    double whole = 0;
    if (subtracts) {
      subtrahend = near;
    } else {
      whole = std::rint(shift / ln2);
      shift = whole * ln2;
    }
    added = static_cast<float>(static_cast<double>(sixteenths) - whole);
    lowest = static_cast<float>((least + whole) * ln2);
    if (!is_limited) return;
    most = near + most_above;
    most_shifted = std::bit_cast<std::int32_t>(sixteenths + most_above * quant::gelu::log2_e);
    most_bf16 = static_cast<std::int16_t>(std::bit_cast<std::uint32_t>(most) >> 16);
  }

 private:
  static constexpr float sixteenths = 0x1.8p19f;  // added to v, leaves 16·v in the low bits
};

#if HWY_TARGET == HWY_AVX3
// Whether an element of `count` vectors of bf16 exceeds a limit that is not negative.
template <int count>
HWY_INLINE bool any_exceeds(const bfloat16* x, std::int16_t most_bf16) {
  const hn::Repartition<std::int16_t, F32> d;
  const auto* const words = reinterpret_cast<const std::int16_t*>(x);
  auto top = hn::LoadU(d, words);
  for (int j = 2; j < count; j += 2)
    top = hn::Max(top, hn::LoadU(d, words + j * lanes));
  return !hn::AllFalse(d, hn::Gt(top, hn::Set(d, most_bf16)));
}
#endif

// Computes p and power with p · power = exp(x - shift). Returns false if an x exceeds the limit; p
// and power are then undefined. `tested`: the caller has already compared with the limit.
template <int count, class T, bool subtracts, bool tested>
HWY_INLINE bool exponentials_of_differences(const Differences& d, VF* x, VF* p, VF* power) {
  constexpr bool of_bf16 = !std::is_same_v<T, float>;
#if HWY_TARGET == HWY_AVX3
  // exp(x - shift) = 2^(n + i/16) · 2^r. Powers of sixteenths are in a table, so that |r| <= 1/32,
  // and minimax fits with two (bf16; relative error 4.3e-7) or three (1.6e-9) coefficients are
  // enough: per cycle, Zen 4 starts one multiplication and one addition, and in addition moves or
  // integer additions. Shifting n + i/16 into the exponent also adds i to the mantissa, so each
  // power in the table is reduced by that.
  alignas(64) static constexpr std::uint32_t sixteenth_powers[16] = {
      0x3F800000, 0x3F7DAAC3, 0x3F7B95C2, 0x3F79C3D3, 0x3F7837F0, 0x3F76F532,
      0x3F75FED7, 0x3F75583F, 0x3F7504F3, 0x3F7508A4, 0x3F75672A, 0x3F76248C,
      0x3F7744FD, 0x3F78CCDF, 0x3F7AC0C7, 0x3F7D257D};
  const q::I32 di;
  VF shifted[count], r[count];
  for (int j = 0; j < count; ++j) {
    if constexpr (subtracts) x[j] = hn::Sub(x[j], set(d.subtrahend));
    x[j] = at_least(d.lowest, x[j]);
    shifted[j] = hn::MulAdd(x[j], set(quant::gelu::log2_e), set(d.added));
  }
  if constexpr (!tested) {
    auto top = hn::BitCast(di, shifted[0]);
    for (int j = 1; j < count; ++j)
      top = hn::Max(top, hn::BitCast(di, shifted[j]));
    if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Gt(top, hn::Set(di, d.most_shifted))))) return false;
  }
  for (int j = 0; j < count; ++j)
    r[j] = hn::MulAdd(x[j], set(quant::gelu::log2_e), hn::Sub(set(d.added), shifted[j]));
  const __m512i table = _mm512_load_si512(sixteenth_powers);
  for (int j = 0; j < count; ++j) {
    const __m512i bits = hn::BitCast(di, shifted[j]).raw;
    power[j] = VF{_mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_permutexvar_epi32(bits, table), _mm512_slli_epi32(bits, 19)))};
    if constexpr (of_bf16)
      p[j] = hn::MulAdd(set(0x1.ebfbd6p-3f), r[j], set(0x1.62e98p-1f));
    else
      p[j] = hn::MulAdd(hn::MulAdd(set(0x1.c6ac6ap-5f), r[j], set(0x1.ebfff4p-3f)), r[j],
                        set(0x1.62e43p-1f));
    p[j] = hn::MulAdd(p[j], r[j], set(1.0f));
  }
#else
  VF top = x[0];
  for (int j = 1; j < count; ++j)
    top = hn::Max(top, x[j]);
  if (HWY_UNLIKELY(!hn::AllFalse(F32(), hn::Gt(top, set(d.most))))) return false;
  for (int j = 0; j < count; ++j) {
    p[j] = hn::Mul(hn::Sub(x[j], set(d.subtrahend)), set(quant::gelu::log2_e));
    power[j] = set(1.0f);
  }
  powers_of_two<count, of_bf16>(p);
#endif
  return true;
}

// Adds exp(x - shift) of `size` elements to the sum. If it `keeps` them, `kept` receives these
// exponentials in the order of load_unordered; `kept` may be x. Stops before a group of vectors
// with an element above the limit, and returns the number of processed elements.
template <bool subtracts, bool keeps, class T>
HWY_INLINE std::int64_t add_exponentials(const T* x, std::int64_t size, const Differences& d,
                                         float* kept, double& sum) {
  for (std::int64_t begin = 0; begin < size; begin += summed_elements) {
    const std::int64_t end = std::min(size, begin + summed_elements);
    VF sums[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
    // Processes `count` vectors from element i on; a single vector may be short, with n elements.
    // Returns false if an element exceeds the limit.
    const auto take = [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
      constexpr std::int64_t far_bytes = 4096;
      q::ask_for<count>(x + i + far_bytes / std::int64_t{sizeof(T)});
      VF v[count], p[count], power[count];
      load_unordered<count>(x + i, n, v);
      if (count == 1 && n < lanes)
        v[0] = hn::IfThenElse(hn::FirstN(F32(), static_cast<std::size_t>(n)), v[0],
                              set(-std::numeric_limits<float>::infinity()));
      constexpr bool tested = !subtracts && count > 1;
#if HWY_TARGET == HWY_AVX3
      if constexpr (tested)
        if (HWY_UNLIKELY(any_exceeds<count>(x + i, d.most_bf16))) return false;
#endif
      if (!exponentials_of_differences<count, T, subtracts, tested>(d, v, p, power)) return false;
      for (int j = 0; j < count; ++j) {
        sums[j % together] = hn::MulAdd(p[j], power[j], sums[j % together]);
        if constexpr (!keeps) continue;  // saves the product if exponentials are not kept
        const VF e = hn::Mul(p[j], power[j]);
        if constexpr (count > 1)
          q::narrow(e, kept + i + j * lanes);  // may store any NaN; scaling replaces it
        else
          store(e, kept + i, n);
      }
      return true;
    };
    std::int64_t i = begin;
    bool goes_on = true;
    for (; i + wide<T> * lanes <= end; i += wide<T> * lanes)
      if (!(goes_on = take(Count<wide<T>>(), i, 0))) break;
    for (; goes_on && i < end; i += lanes)
      if (!(goes_on = take(Count<1>(), i, end - i))) break;
    sum += static_cast<double>(sum_of_parts(sums));
    if (!goes_on) return i;
  }
  return size;
}
template <class T>
HWY_INLINE std::int64_t add_exponentials(const T* x, std::int64_t size, const Differences& d,
                                         float* kept, double& sum) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (!std::is_same_v<T, float>)
    if (!d.subtracts)
      return kept == nullptr ? add_exponentials<false, false>(x, size, d, kept, sum)
                             : add_exponentials<false, true>(x, size, d, kept, sum);
#endif
  return kept == nullptr ? add_exponentials<true, false>(x, size, d, kept, sum)
                         : add_exponentials<true, true>(x, size, d, kept, sum);
}

// Computes x = factor · kept. For bf16 the memory would be idle meanwhile, so the row `next` is
// prefetched into the second-level cache; the first level is full of kept exponentials. Rows of f32
// are longer and are scaled in place: there prefetching took 1.08 times as long on Zen 4.
template <class T>
HWY_INLINE void scale_exponentials(const float* kept, std::int64_t size, float factor, T* x,
                                   const T* next) {
  for_parts<wide<T>>(size, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
    if constexpr (!std::is_same_v<T, float>) q::ask_for<count, 2>(next + i);
    VF e[count];
    for (int j = 0; j < count; ++j)
      e[j] = hn::Mul(load_part<count>(kept + i, j, n), set(factor));
    store_unordered<count>(e, x + i, n);
  });
}

// The loss of one row of logits; with a scale, also its gradient in place. `kept` receives the
// row's exponentials if there is a scale: `cols` floats, or the row itself if it is f32.
template <class T>
HWY_INLINE double loss_of_row(T* row, std::int64_t cols, std::int32_t target, float scale,
                              float* kept, const T* next) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float at_target = static_cast<float>(row[target]);
  float shift = max_of(row, std::min(cols, first_elements));
  if (shift == -infinity) shift = max_of(row, cols);  // the first classes are masked
  if (shift == -infinity) shift = 0;
  constexpr bool of_bf16 = !std::is_same_v<T, float>;
  Differences d(shift, of_bf16, true);
  double sum = 0;
  const std::int64_t taken = add_exponentials(row, cols, d, kept, sum);
  double before = 1;  // factor of the exponentials with the first shift
  if (taken < cols) {
    const Differences larger(max_of(row + taken, cols - taken), of_bf16, false);
    before = std::exp(d.shift - larger.shift);
    sum *= before;
    d = larger;
    add_exponentials(row + taken, cols - taken, d, kept == nullptr ? nullptr : kept + taken, sum);
  }
  const double difference = static_cast<double>(at_target) - d.shift;
  const double loss = std::log(sum) - difference;
  if (scale == 0) return loss;
  const double factor = static_cast<double>(scale) / sum;
  scale_exponentials(kept, taken, static_cast<float>(factor * before), row, next);
  scale_exponentials(kept + taken, cols - taken, static_cast<float>(factor), row + taken,
                     next + taken);
  row[target] =
      T(static_cast<float>(static_cast<double>(scale) * (std::exp(difference) / sum - 1)));
  return loss;
}

// Returns -log softmax(row r)[target]. If scale is not 0, replaces the row by its gradient scale ·
// (softmax - one_hot). `scratch`: `cols` floats, used for gradients of rows that are not f32.
double LossOfRow(const AnyMatrix& logits, std::int64_t r, std::int32_t target, float scale,
                 float* scratch, bool avx512_bf16) {
  double loss = 0;
  q::with_float_or_bf16(logits.dtype, avx512_bf16, [&]<class T>(T) HWY_ATTR {
    T* const row = static_cast<T*>(logits.data) + r * logits.stride;
    float* kept = scratch;
    if constexpr (std::is_same_v<T, float>) kept = row;
    loss = loss_of_row(row, logits.cols, target, scale, scale == 0 ? nullptr : kept,
                       row + logits.stride);
  });
  return loss;
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::models {

HWY_EXPORT(LossOfRow);

namespace cpu {

void queue_cross_entropy(ContextState& state, AnyMatrix logits, Tokens targets, std::int64_t count,
                         bool gradient, double* loss) {
  const auto kernel = HWY_DISPATCH_TABLE(LossOfRow)[quant::cpu::table_index(state.features)];
  const float scale = gradient ? 1.0f / static_cast<float>(count) : 0.0f;
  core::Workspace::Frame frame(state.workspace);
  auto* const losses = frame.take<double>(logits.rows);
  const bool needs_scratch = gradient && logits.dtype != DType::f32;
  const core::PerWorker<float> scratch(frame, state.threads.count(),
                                       needs_scratch ? logits.cols : 0);
  const auto element_bytes = static_cast<std::int64_t>(dtype_size_bytes(logits.dtype));
  const std::int64_t rows = size_of_task(state, logits.rows, 4, 16);
  const auto logit = [&](std::int64_t r) {
    return static_cast<const std::byte*>(logits.data) +
           (r * logits.stride + targets[static_cast<std::size_t>(r)]) * element_bytes;
  };
  state.threads.for_ranges(
      logits.rows, rows, [&](std::int64_t begin, std::int64_t end, int worker) {
        for (std::int64_t r = begin; r < end; ++r) {
          // The target's logit of the next row, which is read before that row is processed.
          hwy::Prefetch(logit(std::min(r + 1, end - 1)));
          losses[r] = kernel(logits, r, targets[static_cast<std::size_t>(r)], scale,
                             scratch.of(worker), state.features.avx512_bf16);
        }
      });
  double sum = 0;
  for (std::int64_t r = 0; r < logits.rows; ++r)
    sum += losses[r];
  *loss = sum / static_cast<double>(count);
}

}  // namespace cpu

}  // namespace switchback::models
#endif
