// SPDX-License-Identifier: Apache-2.0
#include "linear/weight_cache.hpp"

#include <utility>

#include "core/check.hpp"
#include "core/context_state.hpp"
#include "gemm/int8/dispatch.hpp"
#include "linear/copy.hpp"
#include "quant/dispatch.hpp"

namespace switchback::linear {

void QuantizedWeight::release() noexcept {
  // Moves the contents into an object that ends here: creating an empty one to assign would
  // allocate.
  const PackedWeight gone(std::move(packed_));
  absmax_.release();
  count_ = 0;
  valid_ = false;
}

std::span<float> QuantizedWeight::begin(const ContextState& state, std::int64_t count) {
  valid_ = false;
  count_ = static_cast<std::size_t>(count);
  absmax_.reserve(count_ * sizeof(float), state.runtime);
  return {absmax_.as<float>(), count_};
}

MatrixView<std::int8_t> QuantizedWeight::begin_codes(ContextState& state,
                                                     core::Workspace::Frame& frame,
                                                     std::int64_t rows, std::int64_t cols,
                                                     std::string_view engine) {
  const MatrixView<std::int8_t> packed =
      gemm_int8::begin_packed_rows(state, rows, cols, packed_, engine);
  in_place_ = packed.data != nullptr;
  if (in_place_) return packed;
  return {frame.take<std::int8_t>(rows * cols), rows, cols};
}

void QuantizedWeight::finish(ContextState& state, MatrixView<const std::int8_t> codes,
                             WeightScales scales, std::string_view engine) {
  if (!in_place_) gemm_int8::pack(state, codes, packed_, engine);
  scales_ = scales;
  valid_ = true;
}

void QuantizedWeight::set(ContextState& state, MatrixView<const std::int8_t> codes,
                          std::span<const float> absmax, WeightScales scales,
                          std::string_view engine) {
  QuantizedWeight made;
  const std::span<float> own = made.begin(state, static_cast<std::int64_t>(absmax.size()));
  copy_dense(state, core::operand("absmax", absmax).matrix, own.data());
  gemm_int8::pack(state, codes, made.packed_, engine);
  made.scales_ = scales;
  made.valid_ = true;
  *this = std::move(made);
}

const QuantizedWeight& WeightCache::forward(ContextState& state, ConstAnyMatrix w,
                                            WeightScales scales, std::string_view engine,
                                            bool and_backward) {
  if (forward_.valid(scales)) return forward_;
  const std::int64_t n = w.rows;
  const std::int64_t k = w.cols;
  const bool rowwise = scales == WeightScales::per_row_and_column;
  core::Workspace::Frame frame(state.workspace);
  const MatrixView<std::int8_t> q = forward_.begin_codes(state, frame, n, k, engine);
  const quant::Scales of_rows = rowwise ? quant::Scales::per_row : quant::Scales::global;
  if (!and_backward || backward_.valid(scales)) {
    quant::run(state, {.x = w, .q = {of_rows, q, forward_.begin(state, rowwise ? n : 1)}});
    forward_.finish(state, q, scales, engine);
    return forward_;
  }
  const MatrixView<std::int8_t> q_t = backward_.begin_codes(state, frame, k, n, engine);
  const std::span<float> absmax = forward_.begin(state, rowwise ? n : 1);
  const std::span<float> absmax_backward = backward_.begin(state, rowwise ? k : 1);
  if (rowwise) {
    quant::run(state, {.x = w,
                       .q = {quant::Scales::per_row, q, absmax},
                       .q_t = {quant::Scales::per_column, q_t, absmax_backward}});
  } else {
    quant::run(state, {.x = w,
                       .q = {quant::Scales::global, q, absmax},
                       .q_t = {quant::Scales::global, q_t, absmax}});
    copy_dense(state, core::operand("absmax", absmax).matrix, absmax_backward.data());
  }
  forward_.finish(state, q, scales, engine);
  backward_.finish(state, q_t, scales, engine);
  return forward_;
}

const QuantizedWeight& WeightCache::backward(ContextState& state, ConstAnyMatrix w,
                                             WeightScales scales, std::string_view engine) {
  if (backward_.valid(scales)) return backward_;
  const std::int64_t n = w.rows;
  const std::int64_t k = w.cols;
  core::Workspace::Frame frame(state.workspace);
  const MatrixView<std::int8_t> q_t = backward_.begin_codes(state, frame, k, n, engine);
  const bool by_column = scales == WeightScales::per_row_and_column;
  const quant::Scales of_columns = by_column ? quant::Scales::per_column : quant::Scales::global;
  quant::run(state, {.x = w, .q_t = {of_columns, q_t, backward_.begin(state, by_column ? k : 1)}});
  backward_.finish(state, q_t, scales, engine);
  return backward_;
}

void WeightCache::invalidate() noexcept {
  forward_.invalidate();
  backward_.invalidate();
}

}  // namespace switchback::linear
