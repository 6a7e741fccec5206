// SPDX-License-Identifier: Apache-2.0
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "grouped/cpu/combine.cpp"
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "grouped/cpu/combine.hpp"
#include "quant/cpu/narrow-inl.h"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::grouped::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using quant::HWY_NAMESPACE::F32;
using quant::HWY_NAMESPACE::lanes;
using quant::HWY_NAMESPACE::narrow_any;
using quant::HWY_NAMESPACE::VF;
using quant::HWY_NAMESPACE::widen;
using quant::HWY_NAMESPACE::with_type;

// The weighted sum for one row of out, in `lanes` columns from `col` on.
template <class From>
HWY_INLINE VF sum_of(const CombineArgs& o, std::int64_t row, std::int64_t col) {
  const auto* const y = static_cast<const From*>(o.y.data) + col;
  VF sum = hn::Zero(F32());
  bool first = true;
  for (std::int64_t i = 0; i < o.slots.cols; ++i) {
    const std::int64_t slot = core::load(o.slots.data, row * o.slots.stride + i);
    if (slot < 0) continue;
    VF term = widen(y + slot * o.y.stride);
    if (o.weights.data != nullptr)
      term = hn::Mul(term, hn::Set(F32(), core::load(o.weights.data, row * o.weights.stride + i)));
    sum = first ? term : hn::Add(sum, term);
    first = false;
  }
  return sum;
}

// Computes the rows [begin, end) of out. The caller handles rows shorter than a vector. The last
// vector of a row ends where the row ends, and computes some columns twice.
void CombineRows(const CombineArgs& o, std::int64_t begin, std::int64_t end) {
  with_type(o.y.dtype, [&]<class From>(From) HWY_ATTR {
    with_type(o.out.dtype, [&]<class To>(To) HWY_ATTR {
      for (std::int64_t row = begin; row < end; ++row) {
        auto* const out = static_cast<To*>(o.out.data) + row * o.out.stride;
        for (std::int64_t col = 0; col < o.out.cols; col += lanes) {
          const std::int64_t at = std::min(col, o.out.cols - lanes);
          narrow_any(sum_of<From>(o, row, at), out + at);
        }
      }
    });
  });
}

std::int64_t LeastColumns() {
  return lanes;
}

}  // namespace switchback::grouped::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::grouped {

HWY_EXPORT(CombineRows);
HWY_EXPORT(LeastColumns);

namespace cpu {

void combine(ContextState& state, const CombineArgs& o) {
  if (o.out.rows == 0 || o.out.cols == 0) return;
  const std::size_t index = quant::cpu::table_index(state.features);
  if (state.features.level() == core::Isa::scalar ||
      o.out.cols < HWY_DISPATCH_TABLE(LeastColumns)[index]()) {
    state.threads.for_each(1, [&](std::int64_t, int) { combine_reference(o); });
    return;
  }
  const auto kernel = HWY_DISPATCH_TABLE(CombineRows)[index];
  // The least elements of a task that are worth waking a thread.
  constexpr std::int64_t task_elements = 16384;
  const std::int64_t terms = std::max<std::int64_t>(1, o.slots.cols) * o.out.cols;
  state.threads.for_ranges(
      o.out.rows, std::max<std::int64_t>(1, task_elements / terms),
      [&](std::int64_t begin, std::int64_t end, int) { kernel(o, begin, end); });
}

}  // namespace cpu
}  // namespace switchback::grouped
#endif
