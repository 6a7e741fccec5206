// SPDX-License-Identifier: Apache-2.0
// Engine zone: codes back to floats, row by row.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/dequantize.cpp"
#include "hwy/foreach_target.h"
//
#include "quant/cpu/engine.hpp"
#include "quant/cpu/narrow-inl.h"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// Computes absmax · (q / 127). With a fused multiply-add, the quotient is q·high + q·low, where
// high + low is 1/127 to 2^-53. It rounds to q / 127 for each of the 256 codes (tested). Without a
// fused multiply-add, this divides.
HWY_INLINE VF dequantized(const std::int8_t* q, VF absmax) {
  const hn::Rebind<std::int8_t, F32> d8;
  const F32 d;
  const VF code = hn::ConvertTo(d, hn::PromoteTo(I32(), hn::LoadU(d8, q)));
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  constexpr float high = 1.0f / 127.0f;
  constexpr float low = static_cast<float>(1.0 / 127.0 - static_cast<double>(high));
  const VF quotient = hn::MulAdd(code, hn::Set(d, high), hn::Mul(code, hn::Set(d, low)));
#else
  const VF quotient = hn::Div(code, hn::Set(d, 127.0f));
#endif
  return hn::Mul(absmax, quotient);
}

template <class T>
HWY_INLINE void dequantize_run(const std::int8_t* q, std::int64_t count, float absmax, T* x) {
  if (!std::isfinite(absmax)) {
    for (std::int64_t i = 0; i < count; ++i)
      core::store(x, i, T(std::bit_cast<float>(nan_bits)));
    return;
  }
  const VF scale = hn::Set(F32(), absmax);
  if (count < lanes) {
    std::int8_t codes[lanes] = {};
    alignas(64) T values[lanes];
    std::memcpy(codes, q, static_cast<std::size_t>(count));
    narrow(dequantized(codes, scale), values);
    std::memcpy(static_cast<void*>(x), static_cast<const void*>(values),
                static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    narrow(dequantized(q + i, scale), x + i);
  if (i < count) narrow(dequantized(q + count - lanes, scale), x + count - lanes);
}

void DequantizePiece(const Request& o, const cpu::Cut::Piece& piece) {
  with_type(o.value.dtype, [&]<class T>(T) HWY_ATTR {
    for (std::int64_t r = piece.row_begin; r < piece.row_end; ++r)
      dequantize_run(row<std::int8_t>(o.x, r, piece.col_begin), piece.col_end - piece.col_begin,
                     core::load(o.absmax_x.data(), r),
                     static_cast<T*>(o.value.data) + r * o.value.stride + piece.col_begin);
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(DequantizePiece);

namespace cpu {

void dequantize_rowwise(ContextState& state, const Config& config, const Request& o) {
  const Cut cut(o.x.rows, o.x.cols, task_elements(state, config, o.x.rows, o.x.cols));
  const auto kernel = HWY_DISPATCH_TABLE(DequantizePiece)[table_index(state.features)];
  state.threads.for_each(cut.tasks(), [&](std::int64_t task, int) { kernel(o, cut.piece(task)); });
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
