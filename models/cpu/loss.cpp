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
#include "models/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// A row is taken in chunks that a cache holds, so that its maximum and its exponentials cost one
// read of memory. Each chunk's exponentials are those of differences to the largest value so far.
inline constexpr std::int64_t most_chunks = 64;
inline constexpr std::int64_t chunk_bytes = 4096;

// So many vectors at a time: where rows are of bf16, memory is faster than `together` of these
// exponentials, of which each waits for itself.
inline constexpr int wide = HWY_TARGET == HWY_AVX3 ? 2 * together : together;

// Of the lines that lie `ahead`, both passes over a chunk ask for half while they compute:
// otherwise memory would rest meanwhile. `half`: 0 or 1.
template <class T>
HWY_INLINE void ask_for_half(const T* x, std::int64_t ahead, std::int64_t half) {
  q::ask_for<wide / 2>(x + ahead + half * (wide / 2) * lanes);
}

template <class T>
HWY_INLINE float max_of(const T* x, std::int64_t count, std::int64_t ahead) {
  float max = static_cast<float>(x[0]);
  VF maxima[together] = {set(max), set(max), set(max), set(max)};
  std::int64_t i = 0;
  for (; i + wide * lanes <= count; i += wide * lanes) {
    ask_for_half(x + i, ahead, 0);
    VF v[wide];
    q::widen_unordered<wide>(x + i, v);
    for (int j = 0; j < wide; ++j)
      maxima[j % together] = hn::Max(maxima[j % together], v[j]);
  }
  for (; i + lanes <= count; i += lanes)
    maxima[0] = hn::Max(maxima[0], q::widen(x + i));
  const VF both = hn::Max(hn::Max(maxima[0], maxima[1]), hn::Max(maxima[2], maxima[3]));
  max = hn::GetLane(hn::MaxOfLanes(F32(), both));
  for (; i < count; ++i)
    max = std::max(max, static_cast<float>(x[i]));
  return max;
}

template <int count, class T>
HWY_INLINE void differences_part(const T* x, std::int64_t n, float shift, VF* e) {
  load_unordered<count>(x, n, e);
  constexpr bool of_bf16 = std::is_same_v<T, bfloat16>;
  // Where x was rounded to 2^-9, the rounding of the shift's product says nothing.
  const VF offset = set(-shift * quant::gelu::log2_e);
  for (int j = 0; j < count; ++j)
    e[j] = of_bf16 ? hn::MulAdd(e[j], set(quant::gelu::log2_e), offset)
                   : hn::Mul(hn::Sub(e[j], set(shift)), set(quant::gelu::log2_e));
  powers_of_two<count, of_bf16>(e);
}

// The sum of exp(x - shift). Unless it is null, `kept` becomes these exponentials, in the order of
// load_unordered; it may be x.
template <class T>
HWY_INLINE float sum_of_exponentials(const T* x, std::int64_t size, float shift, std::int64_t ahead,
                                     float* kept) {
  VF sums[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
  for_parts<wide>(size, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
    if constexpr (count > 1) ask_for_half(x + i, ahead, 1);
    VF e[count];
    differences_part<count>(x + i, n, shift, e);
    if (count == 1 && n < lanes)
      e[0] = hn::IfThenElseZero(hn::FirstN(F32(), static_cast<std::size_t>(n)), e[0]);
    for (int j = 0; j < count; ++j)
      sums[j % together] = hn::Add(sums[j % together], e[j]);
    if (kept != nullptr)
      for (int j = 0; j < count; ++j)
        store_part<count>(e[j], kept + i, j, n);
  });
  return sum_of_parts(sums);
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
  const float at_target = static_cast<float>(row[target]);
  // As even as whole steps allow, since each chunk asks for as much as it has.
  constexpr std::int64_t step = wide * lanes;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(cols * std::int64_t{sizeof(T)} / chunk_bytes, 1, most_chunks);
  const std::int64_t chunk = ((cols + wanted - 1) / wanted + step - 1) / step * step;
  float shifts[most_chunks];
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  std::int64_t chunks = 0;
  for (std::int64_t begin = 0; begin < cols; begin += chunk, ++chunks) {
    const std::int64_t count = std::min(chunk, cols - begin);
    const float before = max;
    max = std::max(max, max_of(row + begin, count, chunk));
    // A chunk may hold nothing but -Inf.
    const float shift = max == -std::numeric_limits<float>::infinity() ? 0.0f : max;
    shifts[chunks] = shift;
    const float more = sum_of_exponentials(row + begin, count, shift, chunk,
                                           kept == nullptr ? nullptr : kept + begin);
    sum = (sum > 0 ? sum * std::exp(before - max) : sum) + more;
  }
  const double loss = std::log(static_cast<double>(sum)) + static_cast<double>(max) -
                      static_cast<double>(at_target);
  if (scale == 0) return loss;
  const float factor = scale / sum;
  for (std::int64_t c = 0; c < chunks; ++c)
    scale_exponentials(kept + c * chunk, std::min(chunk, cols - c * chunk),
                       factor * std::exp(std::min(0.0f, shifts[c] - max)), row + c * chunk);
  row[target] = T(scale * (std::exp(at_target - max) / sum - 1.0f));
  return loss;
}

// -log softmax(row r)[target]. If scale is not 0, the row becomes scale · (softmax - one_hot);
// `scratch`: of a row that is not f32 then, `cols` floats.
double LossOfRow(const AnyMatrix& logits, std::int64_t r, std::int32_t target, float scale,
                 float* scratch) {
  double loss = 0;
  with_type(logits.dtype, [&]<class T>(T) HWY_ATTR {
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
  constexpr std::int64_t rows = 4;  // of a task
  state.threads.for_ranges(
      logits.rows, rows, [&](std::int64_t begin, std::int64_t end, int worker) {
        float* const own = needs_scratch ? scratch + worker * floats : nullptr;
        for (std::int64_t r = begin; r < end; ++r)
          losses[r] = kernel(logits, r, targets[static_cast<std::size_t>(r)], scale, own);
      });
  double sum = 0;
  for (std::int64_t r = 0; r < logits.rows; ++r)
    sum += losses[r];
  *loss = sum / static_cast<double>(count);
}

}  // namespace cpu

}  // namespace switchback::models
#endif
