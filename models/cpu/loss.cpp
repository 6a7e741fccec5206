// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: cross entropy.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/loss.cpp"
#include "hwy/foreach_target.h"
//
#include <cmath>
#include <limits>
#include <type_traits>

#include "models/cpu/engine.hpp"
#include "models/cpu/streams-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// A row is read once: its exponentials are those of differences to a shift, which is the largest of
// its first elements, and so one of the terms. Those that exceed the shift by more than
// `most_above` end that: what follows has the largest of itself as its shift. exp(40) times a
// million classes is far from the largest f32, and what vanishes beside it vanishes beside the
// largest term.
inline constexpr std::int64_t first_elements = 1024;
inline constexpr float most_above = 40;
// Elements that are summed in f32: 16 by each lane of `together` vectors. Their sums are added in
// f64, so that a sum of many classes is as exact as one of few.
inline constexpr std::int64_t summed_elements = 16 * together * lanes;

// So many vectors at a time: where rows are of bf16, memory is faster than `together` of these
// exponentials, of which each waits for itself.
inline constexpr int wide = HWY_TARGET == HWY_AVX3 ? 2 * together : together;

template <class T>
HWY_INLINE float max_of(const T* x, std::int64_t count) {
  VF maxima[together];
  for (VF& v : maxima)
    v = set(static_cast<float>(x[0]));
  std::int64_t i = 0;
  for (; i + wide * lanes <= count; i += wide * lanes) {
    VF v[wide];
    q::widen_unordered<wide>(x + i, v);
    for (int j = 0; j < wide; ++j)
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

// e = exp(e - shift) of elements of T.
template <int count, class T>
HWY_INLINE void exponentials_of_differences(float shift, VF* e) {
  constexpr bool of_bf16 = !std::is_same_v<T, float>;
  // Where x was rounded to 2^-8, the rounding of the shift's product says nothing.
  const VF offset = set(-shift * quant::gelu::log2_e);
  for (int j = 0; j < count; ++j)
    e[j] = of_bf16 ? hn::MulAdd(e[j], set(quant::gelu::log2_e), offset)
                   : hn::Mul(hn::Sub(e[j], set(shift)), set(quant::gelu::log2_e));
  powers_of_two<count, of_bf16>(e);
}

// Adds exp(x - shift) of `size` elements to the sum. Unless it is null, `kept` becomes these
// exponentials, in the order of load_unordered; it may be x. Stops before elements above `most`, at
// vectors that are taken together, and returns how many were taken.
template <class T>
HWY_INLINE std::int64_t add_exponentials(const T* x, std::int64_t size, float shift, float most,
                                         float* kept, double& sum) {
  for (std::int64_t begin = 0; begin < size; begin += summed_elements) {
    const std::int64_t end = std::min(size, begin + summed_elements);
    VF sums[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
    // Of `count` vectors, the last of `n` elements if it is short; whether they were taken.
    const auto take = [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
      constexpr std::int64_t far_bytes = 4096;
      q::ask_for<count>(x + i + far_bytes / std::int64_t{sizeof(T)});
      VF e[count];
      load_unordered<count>(x + i, n, e);
      const bool is_short = count == 1 && n < lanes;
      const auto inside = hn::FirstN(F32(), static_cast<std::size_t>(is_short ? n : lanes));
      if (is_short) e[0] = hn::IfThenElse(inside, e[0], set(shift));
      VF top = e[0];
      for (int j = 1; j < count; ++j)
        top = hn::Max(top, e[j]);
      if (HWY_UNLIKELY(!hn::AllFalse(F32(), hn::Gt(top, set(most))))) return false;
      exponentials_of_differences<count, T>(shift, e);
      if (is_short) e[0] = hn::IfThenElseZero(inside, e[0]);
      for (int j = 0; j < count; ++j)
        sums[j % together] = hn::Add(sums[j % together], e[j]);
      if (kept != nullptr) {
        if constexpr (count > 1)
          for (int j = 0; j < count; ++j)
            q::narrow(e[j], kept + i + j * lanes);  // NaN is replaced when they are scaled
        else
          store(e[0], kept + i, n);
      }
      return true;
    };
    std::int64_t i = begin;
    bool goes_on = true;
    for (; i + wide * lanes <= end; i += wide * lanes)
      if (!(goes_on = take(Count<wide>(), i, 0))) break;
    for (; goes_on && i < end; i += lanes)
      if (!(goes_on = take(Count<1>(), i, end - i))) break;
    sum += static_cast<double>(sum_of_parts(sums));
    if (!goes_on) return i;
  }
  return size;
}

// x = factor · kept
template <class T>
HWY_INLINE void scale_exponentials(const float* kept, std::int64_t size, float factor, T* x) {
  for_parts<wide>(size, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
    VF e[count];
    for (int j = 0; j < count; ++j)
      e[j] = hn::Mul(load_part<count>(kept + i, j, n), set(factor));
    store_unordered<count>(e, x + i, n);
  });
}

// `kept`: `cols` floats for the exponentials, if there is a scale; the row itself if it is of f32.
template <class T>
HWY_INLINE double loss_of_row(T* row, std::int64_t cols, std::int32_t target, float scale,
                              float* kept) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float at_target = static_cast<float>(row[target]);
  float shift = max_of(row, std::min(cols, first_elements));
  if (shift == -infinity) shift = max_of(row, cols);  // classes that are masked
  if (shift == -infinity) shift = 0;
  double sum = 0;
  const std::int64_t taken = add_exponentials(row, cols, shift, shift + most_above, kept, sum);
  double before = 1;  // what the exponentials up to there are multiplied with
  if (taken < cols) {
    const float larger = max_of(row + taken, cols - taken);
    before = std::exp(static_cast<double>(shift) - static_cast<double>(larger));
    sum *= before;
    shift = larger;
    add_exponentials(row + taken, cols - taken, shift, infinity,
                     kept == nullptr ? nullptr : kept + taken, sum);
  }
  const double difference = static_cast<double>(at_target) - static_cast<double>(shift);
  const double loss = std::log(sum) - difference;
  if (scale == 0) return loss;
  const double factor = static_cast<double>(scale) / sum;
  scale_exponentials(kept, taken, static_cast<float>(factor * before), row);
  scale_exponentials(kept + taken, cols - taken, static_cast<float>(factor), row + taken);
  row[target] =
      T(static_cast<float>(static_cast<double>(scale) * (std::exp(difference) / sum - 1)));
  return loss;
}

// -log softmax(row r)[target]. If scale is not 0, the row becomes scale · (softmax - one_hot);
// `scratch`: of a row that is not f32 then, `cols` floats.
double LossOfRow(const AnyMatrix& logits, std::int64_t r, std::int32_t target, float scale,
                 float* scratch, bool avx512_bf16) {
  double loss = 0;
  q::with_float_or_bf16(logits.dtype, avx512_bf16, [&]<class T>(T) HWY_ATTR {
    T* const row = static_cast<T*>(logits.data) + r * logits.stride;
    float* kept = scratch;
    if constexpr (std::is_same_v<T, float>) kept = row;
    loss = loss_of_row(row, logits.cols, target, scale, scale == 0 ? nullptr : kept);
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
  const std::int64_t floats = (logits.cols + 15) / 16 * 16;
  auto* const scratch = needs_scratch ? frame.take<float>(state.threads.count() * floats) : nullptr;
  const auto element_bytes = static_cast<std::int64_t>(dtype_size_bytes(logits.dtype));
  const std::int64_t rows = size_of_task(state, logits.rows, 4, 16);
  const auto logit = [&](std::int64_t r) {
    return static_cast<const std::byte*>(logits.data) +
           (r * logits.stride + targets[static_cast<std::size_t>(r)]) * element_bytes;
  };
  state.threads.for_ranges(logits.rows, rows,
                           [&](std::int64_t begin, std::int64_t end, int worker) {
                             float* const own = needs_scratch ? scratch + worker * floats : nullptr;
                             for (std::int64_t r = begin; r < end; ++r) {
                               // The target's, which comes before its turn.
                               hwy::Prefetch(logit(std::min(r + 1, end - 1)));
                               losses[r] = kernel(logits, r, targets[static_cast<std::size_t>(r)],
                                                  scale, own, state.features.avx512_bf16);
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
