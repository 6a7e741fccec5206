// SPDX-License-Identifier: Apache-2.0
// Engine zone: rowwise quantization of a matrix whose columns are scaled first.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/scaled.cpp"
#include "hwy/foreach_target.h"
//
#include "core/dry_run.hpp"
#include "core/per_worker.hpp"
#include "hwy/cache_control.h"
#include "quant/cpu/columns.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// Multiplies rows by the scales of columns and quantizes them. Each element is read from memory
// once and its code written once, which is the least that is possible. The scaled row is stored in
// `scratch`, which stays in the first- or second-level cache.
template <bool stream, class T>
void scaled_rows(const Request& o, std::int64_t begin, std::int64_t end, float* scratch) {
  NoMax none;
  for (std::int64_t r = begin; r < end; ++r) {
    RunningMax<float> max;
    scale_run(row<T>(o.x, r), o.x.cols, o.column_scales.data(), scratch, max);
    const float absmax = absmax_from_bits(max.result());
    core::store(o.q.absmax.data(), r, absmax);
    code_run<stream>(static_cast<const float*>(scratch), o.x.cols, Scale::of(absmax),
                     row(o.q.codes, r), static_cast<const float*>(scratch), none);
  }
}

void ScaledRows(const Request& o, std::int64_t begin, std::int64_t end, bool stream,
                float* scratch) {
  with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
    if (!stream) return scaled_rows<false, T>(o, begin, end, scratch);
    scaled_rows<true, T>(o, begin, end, scratch);
    hwy::FlushStream();
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(ScaledRows);

namespace cpu {

void rowwise_scaled(ContextState& state, const Config& config, const Request& o) {
  core::Workspace::Frame frame(state.workspace);
  const core::PerWorker<float> scratch(frame, state.threads.count(), scaled_row_scratch(o.x.cols));
  const auto kernel = HWY_DISPATCH_TABLE(ScaledRows)[table_index(state.features)];
  const auto codes = [&](std::int64_t begin, std::int64_t end, int worker) {
    kernel(o, begin, end, config.stream, scratch.of(worker));
  };
  const bool sums = !o.column_sums.empty();
  if (sums && sums_go_along(state, o.x.rows)) return with_column_sums(state, o, codes);
  const auto all_rows = [&] {
    const std::int64_t elements = task_elements(state, config, o.x.rows, o.x.cols);
    state.threads.for_ranges(o.x.rows, std::max<std::int64_t>(1, elements / o.x.cols), codes);
  };
  if (!sums) return all_rows();
  core::all_or_nothing(state, [&] {
    column_sums(state, config, o);
    all_rows();
  });
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
