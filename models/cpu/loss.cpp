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

#include "hwy/cache_control.h"
#include "models/cpu/engine.hpp"
#include "models/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// A row is taken in chunks that a cache holds, so that its maximum and its exponentials cost one
// read of memory. Each chunk's exponentials are those of differences to the largest value so far.
inline constexpr std::int64_t most_chunks = 64;
inline constexpr std::int64_t least_chunk = 1024;

template <class T>
HWY_INLINE float max_of(const T* x, std::int64_t count) {
  float max = static_cast<float>(x[0]);
  VF maxima = set(max);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    maxima = hn::Max(maxima, q::widen(x + i));
  max = hn::GetLane(hn::MaxOfLanes(F32(), maxima));
  for (; i < count; ++i)
    max = std::max(max, static_cast<float>(x[i]));
  return max;
}

template <int count, class T>
HWY_INLINE void differences_part(const T* x, std::int64_t n, float shift, VF* e) {
  for (int j = 0; j < count; ++j)
    e[j] = hn::Sub(load_part<count>(x, j, n), set(shift));
  exponentials<count>(e);
}

// The sum of exp(x - shift); with `keeps`, which takes f32, they replace x. Meanwhile memory
// delivers what lies `ahead`: otherwise it would rest while a chunk is computed.
template <bool keeps, class T>
HWY_INLINE float sum_of_exponentials(T* x, std::int64_t count, float shift, std::int64_t ahead) {
  VF sums[together] = {hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32()), hn::Zero(F32())};
  VF e[together];
  std::int64_t i = 0;
  for (; i + together * lanes <= count; i += together * lanes) {
    for (std::int64_t line = 0; line < together * lanes; line += 64 / std::int64_t{sizeof(T)})
      hwy::Prefetch(x + i + ahead + line);
    differences_part<together>(x + i, 0, shift, e);
    for (int j = 0; j < together; ++j) {
      sums[j] = hn::Add(sums[j], e[j]);
      if constexpr (keeps) hn::StoreU(e[j], F32(), x + i + j * lanes);
    }
  }
  for (; i < count; i += lanes) {
    const std::int64_t n = count - i;
    differences_part<1>(x + i, n, shift, e);
    if (n < lanes) e[0] = hn::IfThenElseZero(hn::FirstN(F32(), static_cast<std::size_t>(n)), e[0]);
    sums[0] = hn::Add(sums[0], e[0]);
    if constexpr (keeps) store(e[0], x + i, n);
  }
  return sum_of_parts(sums);
}

// x *= factor
HWY_INLINE void scale_values(float* x, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; i += lanes)
    store(hn::Mul(load(x + i, count - i), set(factor)), x + i, count - i);
}
// x = factor · exp(x - shift)
template <class T>
HWY_INLINE void scaled_exponentials(T* x, std::int64_t count, float shift, float factor) {
  VF e[together];
  std::int64_t i = 0;
  for (; i + together * lanes <= count; i += together * lanes) {
    differences_part<together>(x + i, 0, shift, e);
    for (int j = 0; j < together; ++j)
      store_part<together>(hn::Mul(e[j], set(factor)), x + i, j, 0);
  }
  for (; i < count; i += lanes) {
    differences_part<1>(x + i, count - i, shift, e);
    store(hn::Mul(e[0], set(factor)), x + i, count - i);
  }
}

template <class T>
HWY_INLINE double loss_of_row(T* row, std::int64_t cols, std::int32_t target, float scale) {
  constexpr bool is_f32 = std::is_same_v<T, float>;
  const float at_target = static_cast<float>(row[target]);
  const std::int64_t chunk = std::max(least_chunk, (cols + most_chunks - 1) / most_chunks);
  float shifts[most_chunks];
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  std::int64_t chunks = 0;
  for (std::int64_t begin = 0; begin < cols; begin += chunk, ++chunks) {
    const std::int64_t count = std::min(chunk, cols - begin);
    const float before = max;
    max = std::max(max, max_of(row + begin, count));
    // A chunk may hold nothing but -Inf.
    const float shift = max == -std::numeric_limits<float>::infinity() ? 0.0f : max;
    shifts[chunks] = shift;
    const float more = is_f32 && scale != 0
                           ? sum_of_exponentials<is_f32>(row + begin, count, shift, chunk)
                           : sum_of_exponentials<false>(row + begin, count, shift, chunk);
    sum = (sum > 0 ? sum * std::exp(before - max) : sum) + more;
  }
  const double loss = std::log(static_cast<double>(sum)) + static_cast<double>(max) -
                      static_cast<double>(at_target);
  if (scale == 0) return loss;
  const float factor = scale / sum;
  for (std::int64_t c = 0; c < chunks; ++c) {
    T* const x = row + c * chunk;
    const std::int64_t count = std::min(chunk, cols - c * chunk);
    if constexpr (is_f32)
      scale_values(x, count, factor * std::exp(std::min(0.0f, shifts[c] - max)));
    else
      scaled_exponentials(x, count, max, factor);
  }
  row[target] = T(scale * (std::exp(at_target - max) / sum - 1.0f));
  return loss;
}

// -log softmax(row r)[target]. If scale is not 0, the row becomes scale · (softmax - one_hot).
double LossOfRow(const AnyMatrix& logits, std::int64_t r, std::int32_t target, float scale) {
  double loss = 0;
  with_type(logits.dtype, [&]<class T>(T) HWY_ATTR {
    loss =
        loss_of_row(static_cast<T*>(logits.data) + r * logits.stride, logits.cols, target, scale);
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
  constexpr std::int64_t rows = 4;  // of a task
  state.threads.for_ranges(logits.rows, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r)
      losses[r] = kernel(logits, r, targets[static_cast<std::size_t>(r)], scale);
  });
  double sum = 0;
  for (std::int64_t r = 0; r < logits.rows; ++r)
    sum += losses[r];
  *loss = sum / static_cast<double>(count);
}

}  // namespace cpu

}  // namespace switchback::models
#endif
