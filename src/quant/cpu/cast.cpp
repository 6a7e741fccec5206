// SPDX-License-Identifier: Apache-2.0
// Engine zone: the cast to int8 without a scale.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/cast.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// Truncates v to an int8. Returns it in the form that store_codes expects: the integer plus
// integer_shift.
HWY_INLINE VU truncated(VF v) {
  const F32 d;
  const VF number = hn::IfThenElseZero(hn::Eq(v, v), v);
  const VF clamped = hn::Min(hn::Max(number, hn::Set(d, -128.0f)), hn::Set(d, 127.0f));
  const auto integer = hn::ConvertTo(I32(), clamped);
  return hn::BitCast(U32(), hn::Add(integer, hn::BitCast(I32(), hn::Set(d, integer_shift))));
}

template <bool stream, class T>
HWY_INLINE void cast_quad(const T* x, std::int8_t* q) {
  store_codes<stream>({truncated(widen(x)), truncated(widen(x + lanes)),
                       truncated(widen(x + 2 * lanes)), truncated(widen(x + 3 * lanes))},
                      q);
}

template <bool stream, class T>
HWY_INLINE void cast_run(const T* x, std::int64_t count, std::int8_t* q) {
  if (count < quad) {
    alignas(64) std::int8_t padded[quad];
    cast_quad<false>(Padded<T>(x, count).elements, padded);
    std::memcpy(q, padded, static_cast<std::size_t>(count));
    return;
  }
  std::int64_t i = 0;
  if constexpr (stream) {
    i = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(q) % quad);
    if (i > 0) cast_quad<false>(x, q);
  }
  for (; i + quad <= count; i += quad)
    cast_quad<stream>(x + i, q + i);
  if (i < count) cast_quad<false>(x + count - quad, q + count - quad);
}

void CastPiece(const Request& o, const cpu::Cut::Piece& piece, bool stream) {
  with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
    const std::int64_t cols = piece.col_end - piece.col_begin;
    for (std::int64_t r = piece.row_begin; r < piece.row_end; ++r) {
      if (stream)
        cast_run<true>(row<T>(o.x, r, piece.col_begin), cols, row(o.q.codes, r, piece.col_begin));
      else
        cast_run<false>(row<T>(o.x, r, piece.col_begin), cols, row(o.q.codes, r, piece.col_begin));
    }
    if (stream) hwy::FlushStream();
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(CastPiece);

namespace cpu {

void cast_to_int8(ContextState& state, const Config& config, const Request& o) {
  const Cut cut(o.x.rows, o.x.cols, task_elements(state, config, o.x.rows, o.x.cols));
  const auto kernel = HWY_DISPATCH_TABLE(CastPiece)[table_index(state.features)];
  state.threads.for_each(
      cut.tasks(), [&](std::int64_t task, int) { kernel(o, cut.piece(task), config.stream); });
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
