// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: cross entropy.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/loss.cpp"
#include "hwy/foreach_target.h"
//
#include <cmath>

#include "models/cpu/vectors-inl.h"
#include "models/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// -log softmax(row r)[target]. If scale is not 0, the row becomes scale · (softmax - one_hot).
double LossOfRow(const AnyMatrix& logits, std::int64_t r, std::int32_t target, float scale) {
  double loss = 0;
  with_type(logits.dtype, [&]<class T>(T) HWY_ATTR {
    T* const row = static_cast<T*>(logits.data) + r * logits.stride;
    const std::int64_t cols = logits.cols;
    float max = static_cast<float>(row[0]);
    std::int64_t i = 0;
    VF maxima = set(max);
    for (; i + lanes <= cols; i += lanes)
      maxima = hn::Max(maxima, q::widen(row + i));
    max = hn::GetLane(hn::MaxOfLanes(F32(), maxima));
    for (; i < cols; ++i)
      max = std::max(max, static_cast<float>(row[i]));
    const auto shifted = [&](std::int64_t at) HWY_ATTR {
      const std::int64_t n = cols - at;
      const VF e = exponential(hn::Sub(load(row + at, n), set(max)));
      if (HWY_LIKELY(n >= lanes)) return e;
      return hn::IfThenElseZero(hn::FirstN(F32(), static_cast<std::size_t>(n)), e);
    };
    VF sums = hn::Zero(F32());
    for (i = 0; i < cols; i += lanes)
      sums = hn::Add(sums, shifted(i));
    const float sum = sum_of_lanes(sums);
    const float at_target = static_cast<float>(row[target]);
    loss = std::log(static_cast<double>(sum)) + static_cast<double>(max) -
           static_cast<double>(at_target);
    if (scale == 0) return;
    const float factor = scale / sum;
    const float p_target = std::exp(at_target - max) / sum;
    for (i = 0; i < cols; i += lanes)
      store(hn::Mul(shifted(i), set(factor)), row + i, cols - i);
    row[target] = T(scale * (p_target - 1.0f));
  });
  return loss;
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::models {

HWY_EXPORT(LossOfRow);

double cross_entropy(ContextState& state, AnyMatrix logits, Tokens targets, std::int64_t count,
                     bool gradient) {
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
  return sum / static_cast<double>(count);
}

}  // namespace switchback::models
#endif
