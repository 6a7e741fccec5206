// SPDX-License-Identifier: Apache-2.0
#include "linear/weight_cache.hpp"

#include <utility>

#include "core/check.hpp"
#include "core/context_state.hpp"
#include "gemm/int8/dispatch.hpp"
#include "linear/copy.hpp"
#include "linear/scratch.hpp"
#include "quant/blocks.hpp"
#include "quant/dispatch.hpp"

namespace switchback::linear {

namespace {
constexpr std::string_view pack_op = "pack_weight";
}

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
                                                     std::int64_t groups, std::int64_t rows,
                                                     std::int64_t cols, std::string_view engine) {
  MatrixView<std::int8_t> packed;
  if (groups == 1) packed = gemm_int8::begin_packed_rows(state, rows, cols, packed_, engine);
  in_place_ = packed.data != nullptr;
  if (in_place_) return packed;
  return {frame.take<std::int8_t>(groups * rows * cols), groups * rows, cols};
}

void QuantizedWeight::finish(ContextState& state, MatrixView<const std::int8_t> codes,
                             std::int64_t groups, WeightScales scales, std::string_view engine) {
  if (!in_place_) gemm_int8::pack(state, pack_op, codes, groups, packed_, engine);
  scales_ = scales;
  valid_ = true;
}

void QuantizedWeight::set(ContextState& state, MatrixView<const std::int8_t> codes,
                          std::span<const float> absmax, WeightScales scales,
                          std::string_view engine) {
  QuantizedWeight made;
  const std::span<float> own = made.begin(state, static_cast<std::int64_t>(absmax.size()));
  copy_dense(state, core::operand("absmax", absmax).matrix, own.data());
  gemm_int8::pack(state, pack_op, codes, 1, made.packed_, engine);
  made.scales_ = scales;
  made.valid_ = true;
  *this = std::move(made);
}

namespace {

// What belongs to one group, of codes below each other and their scales.
quant::CodesOut part_of(quant::Scales scales, MatrixView<std::int8_t> codes,
                        std::span<float> absmax, std::int64_t group, std::int64_t groups) {
  const std::int64_t rows = codes.rows / groups;
  const std::size_t count = absmax.size() / static_cast<std::size_t>(groups);
  return {scales,
          {codes.data + group * rows * codes.stride, rows, codes.cols, codes.stride},
          absmax.subspan(static_cast<std::size_t>(group) * count, count)};
}

ConstAnyMatrix part_of(ConstAnyMatrix w, std::int64_t group, std::int64_t groups) {
  w.rows /= groups;
  w.data = static_cast<const std::byte*>(w.data) +
           group * w.rows * w.stride * static_cast<std::int64_t>(dtype_size_bytes(w.dtype));
  return w;
}

}  // namespace

// Quantizes w straight into the packed layouts of an engine that takes codes block by block.
bool WeightCache::make_in_blocks(ContextState& state, ConstAnyMatrix w, WeightScales scales,
                                 std::string_view engine, bool forward, bool backward) {
  if (!quant::has_blocks(state)) return false;
  const std::int64_t n = w.rows / groups_;
  const std::int64_t k = w.cols;
  const bool rowwise = scales == WeightScales::per_row_and_column;
  using Blocks = gemm_int8::BlockPacker::Blocks;
  gemm_int8::BlockPacker rows(Blocks::of_b);
  gemm_int8::BlockPacker columns(Blocks::of_b_transposed);
  quant::BlocksRequest request{.x = w, .matrices = groups_};
  if (forward) {
    const std::span<float> absmax = forward_.begin(state, rowwise ? groups_ * n : groups_);
    if (!forward_.begin_blocks(state, rows, groups_, n, k, engine)) return false;
    request.q = {rowwise ? quant::Scales::per_row : quant::Scales::global, absmax, &rows};
  }
  if (backward) {
    const std::span<float> absmax = backward_.begin(state, rowwise ? groups_ * k : groups_);
    if (!backward_.begin_blocks(state, columns, groups_, k, n, engine)) return false;
    request.q_t = {rowwise ? quant::Scales::per_column : quant::Scales::global, absmax, &columns};
  }
  quant::quantize_blocks(state, request);
  if (forward) forward_.finish_blocks(scales);
  if (backward) backward_.finish_blocks(scales);
  return true;
}

void WeightCache::make(ContextState& state, ConstAnyMatrix w, WeightScales scales,
                       std::string_view engine, bool forward, bool backward) {
  if (rotation_ == Rotation::none) return make_of(state, w, scales, engine, forward, backward);
  core::Workspace::Frame frame(state.workspace);
  const AnyMatrix rotated = take_matrix(frame, DType::f32, w.rows, w.cols);
  quant::run(state, {.x = w, .rotation = rotation_, .rotated = rotated});
  make_of(state, rotated, scales, engine, forward, backward);
}

void WeightCache::make_of(ContextState& state, ConstAnyMatrix w, WeightScales scales,
                          std::string_view engine, bool forward, bool backward) {
  if (make_in_blocks(state, w, scales, engine, forward, backward)) return;
  const std::int64_t n = w.rows / groups_;
  const std::int64_t k = w.cols;
  const bool rowwise = scales == WeightScales::per_row_and_column;
  core::Workspace::Frame frame(state.workspace);
  MatrixView<std::int8_t> q;
  MatrixView<std::int8_t> q_t;
  if (forward) q = forward_.begin_codes(state, frame, groups_, n, k, engine);
  if (backward) q_t = backward_.begin_codes(state, frame, groups_, k, n, engine);
  std::span<float> absmax;
  std::span<float> absmax_t;
  if (forward) absmax = forward_.begin(state, rowwise ? groups_ * n : groups_);
  if (backward) absmax_t = backward_.begin(state, rowwise ? groups_ * k : groups_);
  using enum quant::Scales;
  if (rowwise && !backward) {
    // Rows do not know of groups.
    quant::run(state, {.x = w, .q = {per_row, q, absmax}});
  } else {
    // Both layouts share a global scale.
    const std::span<float> global_absmax = forward ? absmax : absmax_t;
    for (std::int64_t g = 0; g < groups_; ++g) {
      quant::Request request{.x = part_of(w, g, groups_)};
      if (forward) request.q = part_of(rowwise ? per_row : global, q, absmax, g, groups_);
      if (backward)
        request.q_t = part_of(rowwise ? per_column : global, q_t,
                              rowwise ? absmax_t : global_absmax, g, groups_);
      quant::run(state, request);
    }
    if (forward && backward && !rowwise)
      copy_dense(state, core::operand("absmax", absmax).matrix, absmax_t.data());
  }
  if (forward) forward_.finish(state, q, groups_, scales, engine);
  if (backward) backward_.finish(state, q_t, groups_, scales, engine);
}

const QuantizedWeight& WeightCache::forward(ContextState& state, ConstAnyMatrix w,
                                            WeightScales scales, std::string_view engine,
                                            bool and_backward) {
  if (!forward_.valid(scales))
    make(state, w, scales, engine, true, and_backward && !backward_.valid(scales));
  return forward_;
}

const QuantizedWeight& WeightCache::forward_of_columns(ContextState& state, ConstAnyMatrix w,
                                                       WeightScales scales,
                                                       std::string_view engine) {
  if (forward_.valid(scales)) return forward_;
  const std::int64_t n = w.rows;
  const std::int64_t k = w.cols / groups_;
  const bool rowwise = scales == WeightScales::per_row_and_column;
  core::Workspace::Frame frame(state.workspace);
  const MatrixView<std::int8_t> q = forward_.begin_codes(state, frame, groups_, n, k, engine);
  const std::span<float> absmax = forward_.begin(state, rowwise ? groups_ * n : groups_);
  const quant::Scales of_rows = rowwise ? quant::Scales::per_row : quant::Scales::global;
  for (std::int64_t g = 0; g < groups_; ++g) {
    ConstAnyMatrix part = w;
    part.cols = k;
    part.data = static_cast<const std::byte*>(w.data) +
                g * k * static_cast<std::int64_t>(dtype_size_bytes(w.dtype));
    quant::run(state, {.x = part, .q = part_of(of_rows, q, absmax, g, groups_)});
  }
  forward_.finish(state, q, groups_, scales, engine);
  return forward_;
}

const QuantizedWeight& WeightCache::backward(ContextState& state, ConstAnyMatrix w,
                                             WeightScales scales, std::string_view engine) {
  if (!backward_.valid(scales)) make(state, w, scales, engine, false, true);
  return backward_;
}

void WeightCache::invalidate() noexcept {
  forward_.invalidate();
  backward_.invalidate();
}

}  // namespace switchback::linear
