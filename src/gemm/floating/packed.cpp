// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/packed.hpp"

#include "core/assert.hpp"
#include "core/context_state.hpp"
#include "gemm/floating/cpu/convert.hpp"
#include "gemm/floating/cpu/f32.hpp"
#include "gemm/floating/cpu/onednn.hpp"

namespace switchback::floating {

#if defined(SWITCHBACK_HAVE_ONEDNN)

namespace {

// GFLOP/s of products with a packed weight, and of the fastest way without one, measured as in
// config.cpp, for M / 4096 / 4096 (1408 / 6144 at 4096 rows):
//   M              1      4     16     64    128   1024   2048   4096
//   f32       20, 17 123,64 238,171 404,350 445,412 465,457 422,436 431,452
//   bf16      44, 31        559,376 764,609         946,890 896,851 860,833
constexpr std::int64_t f32_gains_below_rows = 2048;

bool is_dense(ConstAnyMatrix m) {
  return m.stride == m.cols || m.rows <= 1;
}

}  // namespace

void PackedStandardWeight::pack(ContextState& state, ConstAnyMatrix w, std::string_view engine) {
  rows_ = 0;
  const Engine* forced = find_engine(state.device.kind, engine);
  if (!state.on_cpu() || (forced != nullptr && !forced->packs_b)) return release();
  const bool bf16 = w.dtype == DType::bf16 && onednn_multiplies_bf16(w.cols);
  packed_as_ = bf16 ? DType::bf16 : DType::f32;
  const std::size_t needed = packed_bytes(w.cols, w.rows, packed_as_);
  if (needed == 0) return release();
  buffer_.reserve(needed);
  if (w.dtype == packed_as_) {
    pack_transposed(state, w.data, w.rows, w.cols, is_dense(w) ? w.cols : w.stride, w.dtype,
                    buffer_.as<void>());
  } else {
    core::Workspace::Frame frame(state.workspace);
    auto* wide = frame.take<float>(w.rows * w.cols);
    widen(state, w, wide, w.cols);
    pack_transposed(state, wide, w.rows, w.cols, w.cols, DType::f32, buffer_.as<void>());
  }
  rows_ = w.rows;
  cols_ = w.cols;
}

bool PackedStandardWeight::takes(ConstAnyMatrix x, AnyMatrix y) const noexcept {
  if (rows_ == 0 || x.rows == 0) return false;
  if (packed_as_ == DType::f32 && x.rows >= f32_gains_below_rows) return false;
  // oneDNN reads packed weights only with dense operands. Operands that are widened first are
  // always dense.
  return x.dtype != packed_as_ || (is_dense(x) && is_dense(y));
}

void PackedStandardWeight::multiply(ContextState& state, ConstAnyMatrix x, ConstAnyMatrix bias,
                                    AnyMatrix y) const {
  SWITCHBACK_ASSERT(takes(x, y) && x.cols == cols_ && y.cols == rows_ && x.rows == y.rows);
  core::Workspace::Frame frame(state.workspace);
  Problem p;
  p.m = x.rows;
  p.n = rows_;
  p.k = cols_;
  p.lda = p.k;
  p.ldd = p.n;
  p.input = packed_as_;
  p.output = y.dtype;
  p.bias = bias.data != nullptr;
  p.threads = state.threads.count();
  Operands operands;
  operands.bias = bias;
  const float* wide_bias = bias_as_f32(state, frame, p, operands);
  if (x.dtype == packed_as_) {
    floating::multiply(state, p, LayoutB::packed, x.data, buffer_.as<void>(), y.data, wide_bias);
    return;
  }
  auto* wide_x = frame.take<float>(p.m * p.k);
  auto* sum = frame.take<float>(p.m * p.n);
  widen(state, x, wide_x, p.k);
  p.output = DType::f32;
  p.bias = false;
  floating::multiply(state, p, LayoutB::packed, wide_x, buffer_.as<void>(), sum, nullptr);
  finish(state, sum, p.n, wide_bias, false, y);
}

#else

void PackedStandardWeight::pack(ContextState&, ConstAnyMatrix, std::string_view) {}
bool PackedStandardWeight::takes(ConstAnyMatrix, AnyMatrix) const noexcept {
  return false;
}
void PackedStandardWeight::multiply(ContextState&, ConstAnyMatrix, ConstAnyMatrix,
                                    AnyMatrix) const {}

#endif

void PackedStandardWeight::release() noexcept {
  buffer_.release();
  rows_ = 0;
}

}  // namespace switchback::floating
