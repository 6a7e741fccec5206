// SPDX-License-Identifier: Apache-2.0
// Engine zone: GELU and its derivative, alone and with the quantization of the result.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/activation.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"

#include "core/matrix_rows.hpp"
#include "core/rehearsal.hpp"
#include "quant/cpu/columns.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/narrow-inl.h"
#include "quant/cpu/rotated_rows.hpp"
#include "quant/cpu/rows-inl.h"
#include "quant/gelu.hpp"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// The sequences of quant/gelu.hpp. Floor: about 30 (tanh) and 45 (erf) operations and a division a
// vector, which is more time than memory takes for it: two cores of Zen 5 reach about half a copy.

HWY_INLINE VF set(float value) {
  return hn::Set(F32(), value);
}
// a · b + c, rounded twice.
HWY_INLINE VF mul_add(VF a, VF b, VF c) {
  return hn::Add(hn::Mul(a, b), c);
}

[[maybe_unused]] HWY_INLINE VF power_of_two(VU n) {
  return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(U32(), 127u))));
}

template <bool has_rest>
HWY_INLINE VF exponential(VF z, VF rest) {
  const VF shifted = mul_add(z, set(gelu::log2_e), set(gelu::integer_shift));
  const VF n = hn::Sub(shifted, set(gelu::integer_shift));
  VF r = hn::Sub(hn::Sub(z, hn::Mul(n, set(gelu::ln2_high))), hn::Mul(n, set(gelu::ln2_low)));
  if constexpr (has_rest) r = hn::Add(r, rest);
  VF p = mul_add(set(gelu::exp6), r, set(gelu::exp5));
  p = mul_add(p, r, set(gelu::exp4));
  p = mul_add(p, r, set(gelu::exp3));
  p = mul_add(p, r, set(gelu::exp2));
  p = mul_add(p, r, set(1.0f));
  p = mul_add(p, r, set(1.0f));
#if HWY_TARGET == HWY_AVX3
  return VF{_mm512_scalef_ps(p.raw, n.raw)};  // times 2^n, rounded once: the same bits
#else
  const U32 du;
  const VU whole = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, gelu::integer_shift_bits));
  const VU half = hn::BitCast(du, hn::ShiftRight<1>(hn::BitCast(I32(), whole)));
  return hn::Mul(hn::Mul(p, power_of_two(half)), power_of_two(hn::Sub(whole, half)));
#endif
}

HWY_INLINE VF clamp(VF x, float end) {
  return hn::Min(hn::Max(x, set(-end)), set(end));
}

struct GeluTanh {
  static HWY_INLINE VF value(VF x) {
    const VF cubed = mul_add(set(gelu::cubic), hn::Mul(x, x), set(1.0f));
    const VF u = clamp(hn::Mul(hn::Mul(set(gelu::twice_sqrt_2_pi), x), cubed), gelu::value_end);
    return hn::Div(x, hn::Add(set(1.0f), exponential<false>(hn::Neg(u), u)));
  }
  static HWY_INLINE VF derivative(VF x) {
    const VF c = clamp(x, gelu::derivative_end);
    const VF square = hn::Mul(c, c);
    const VF u = hn::Mul(hn::Mul(set(gelu::twice_sqrt_2_pi), c),
                         mul_add(set(gelu::cubic), square, set(1.0f)));
    const VF e = exponential<false>(hn::Neg(u), u);
    const VF s = hn::Div(set(1.0f), hn::Add(set(1.0f), e));
    const VF slope =
        hn::Mul(set(gelu::twice_sqrt_2_pi), mul_add(set(gelu::three_cubic), square, set(1.0f)));
    return hn::Add(hn::Add(s, hn::Mul(hn::Mul(c, slope), hn::Mul(s, hn::Mul(e, s)))),
                   hn::Sub(x, x));
  }
};

struct GeluErf {
  struct Normal {
    VF distribution, bell;
  };
  static HWY_INLINE Normal normal(VF x) {
    const U32 du;
    const VF a = hn::Min(hn::Abs(x), set(gelu::tail_end));
    const VF upper = hn::BitCast(F32(), hn::And(hn::BitCast(du, a), hn::Set(du, gelu::upper_half)));
    const VF bell =
        exponential<true>(hn::Mul(set(-0.5f), hn::Mul(upper, upper)),
                          hn::Mul(set(-0.5f), hn::Mul(hn::Sub(a, upper), hn::Add(a, upper))));
    const VF t = hn::Div(set(1.0f), mul_add(set(gelu::tail_slope), a, set(1.0f)));
    VF p = mul_add(set(gelu::tail8), t, set(gelu::tail7));
    p = mul_add(p, t, set(gelu::tail6));
    p = mul_add(p, t, set(gelu::tail5));
    p = mul_add(p, t, set(gelu::tail4));
    p = mul_add(p, t, set(gelu::tail3));
    p = mul_add(p, t, set(gelu::tail2));
    p = mul_add(p, t, set(gelu::tail1));
    p = mul_add(p, t, set(gelu::tail0));
    const VF tail = hn::Mul(hn::Mul(p, t), bell);
    const VF distribution =
        hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), tail, hn::Sub(set(1.0f), tail));
    return {distribution, bell};
  }
  static HWY_INLINE VF value(VF x) { return hn::Mul(x, normal(x).distribution); }
  static HWY_INLINE VF derivative(VF x) {
    const Normal n = normal(x);
    return hn::Add(n.distribution, hn::Mul(x, hn::Mul(n.bell, set(gelu::density_at_zero))));
  }
};

// Operands and results are asked for so many elements before they are used. Otherwise stores wait
// for memory, and loads for stores to addresses that are theirs but for a multiple of 4 KiB, as
// those of operands that start on huge pages are.
inline constexpr std::int64_t far_ahead = 512;

// y[0, count) from x, and from g where there is one. The last vector overlaps the one before; a run
// shorter than a vector is padded with zeros.
template <class A, class T>
HWY_INLINE void forward_run(const T* x, std::int64_t count, T* y) {
  if (count < lanes) {
    alignas(64) T values[lanes];
    narrow_any(A::value(widen(Padded<T>(x, count).elements)), values);
    std::memcpy(static_cast<void*>(y), static_cast<const void*>(values),
                static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hwy::Prefetch(x + i + far_ahead);
    hwy::Prefetch(y + i + far_ahead);
    narrow_any(A::value(widen(x + i)), y + i);
  }
  if (i < count) narrow_any(A::value(widen(x + count - lanes)), y + count - lanes);
}

template <class A, class G, class T>
HWY_INLINE void backward_run(const G* g, const T* x, std::int64_t count, G* dx) {
  const auto gradient = [](const G* g_, const T* x_)
                            HWY_ATTR { return hn::Mul(widen(g_), A::derivative(widen(x_))); };
  if (count < lanes) {
    alignas(64) G values[lanes];
    narrow_any(gradient(Padded<G>(g, count).elements, Padded<T>(x, count).elements), values);
    std::memcpy(static_cast<void*>(dx), static_cast<const void*>(values),
                static_cast<std::size_t>(count) * sizeof(G));
    return;
  }
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hwy::Prefetch(g + i + far_ahead);
    hwy::Prefetch(x + i + far_ahead);
    hwy::Prefetch(dx + i + far_ahead);
    narrow_any(gradient(g + i, x + i), dx + i);
  }
  if (i < count) {
    i = count - lanes;
    narrow_any(gradient(g + i, x + i), dx + i);
  }
}

// f(A()) for the activation.
template <class F>
HWY_INLINE void with_activation(Activation activation, F&& f) {
  if (activation == Activation::gelu_tanh)
    f(GeluTanh());
  else
    f(GeluErf());
}

template <class T>
HWY_INLINE T* row_of(const AnyMatrix& m, std::int64_t r, std::int64_t c) {
  return static_cast<T*>(m.data) + r * m.stride + c;
}

// o.value = activation(o.x), or o.g · activation'(o.x) if there is g.
void ActivatePiece(const Request& o, const cpu::Cut::Piece& piece) {
  const std::int64_t cols = piece.col_end - piece.col_begin;
  const auto for_rows = [&](auto&& f) HWY_ATTR {
    for (std::int64_t r = piece.row_begin; r < piece.row_end; ++r)
      f(r, piece.col_begin);
  };
  with_activation(o.activation, [&]<class A>(A) HWY_ATTR {
    with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
      if (o.g.data == nullptr)
        return for_rows([&](std::int64_t r, std::int64_t c) HWY_ATTR {
          forward_run<A>(row<T>(o.x, r, c), cols, row_of<T>(o.value, r, c));
        });
      if (o.g.dtype == o.x.dtype)
        return for_rows([&](std::int64_t r, std::int64_t c) HWY_ATTR {
          backward_run<A>(row<T>(o.g, r, c), row<T>(o.x, r, c), cols, row_of<T>(o.value, r, c));
        });
      for_rows([&](std::int64_t r, std::int64_t c) HWY_ATTR {
        backward_run<A>(row<float>(o.g, r, c), row<T>(o.x, r, c), cols,
                        row_of<float>(o.value, r, c));
      });
    });
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(ActivatePiece);

namespace cpu {

namespace {

using ActivateKernel = void (*)(const Request& o, const Cut::Piece& piece);

ActivateKernel activate_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(ActivatePiece)[table_index(features)];
}

// The quantization of the result, o.value, as an operation of its own.
Request of_result(const Request& o) {
  Request result = o;
  result.x = o.value;
  result.g = {};
  result.activation = Activation::none;
  result.value = {};
  return result;
}

}  // namespace

void activation(ContextState& state, const Config& config, const Request& o) {
  const Cut cut(o.x.rows, o.x.cols, task_elements(state, config, o.x.rows, o.x.cols));
  const auto kernel = activate_kernel(state.features);
  state.threads.for_each(cut.tasks(), [&](std::int64_t task, int) { kernel(o, cut.piece(task)); });
}

// A few rows at a time: activated, quantized and summed while they are in a cache. Where y is not
// wanted they stay there.
void activation_quantize(ContextState& state, const Config& config, const Request& o) {
  constexpr std::int64_t bytes_in_cache = 128 << 10;
  const std::int64_t rows = o.x.rows;
  const std::int64_t threads = state.threads.count();
  const std::int64_t blocks = o.column_sums.empty() ? 0 : sum_blocks(rows);
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(o.x.dtype));
  const std::int64_t row_bytes = (o.x.cols * element + 63) / 64 * 64;
  core::Workspace::Frame frame(state.workspace);
  Request whole = o;
  // Too few rows or blocks to go round: operations one after the other, each over all threads.
  const bool few = threads > 1 && (blocks > 0 ? blocks < 2 * threads : rows < threads);
  if (few && o.value.data == nullptr)
    whole.value = AnyMatrix(frame.take<std::byte>(rows * row_bytes), o.x.dtype, rows, o.x.cols,
                            row_bytes / element);
  if (few)
    return core::all_or_nothing(state, [&] {
      activation(state, config, whole);
      if (blocks > 0)
        rowwise_column_sums(state, config, of_result(whole));
      else if (o.rotation != Rotation::none)
        rotate_quantize(state, config, of_result(whole));
      else
        rowwise(state, config, of_result(whole));
    });
  const std::int64_t at_once = std::clamp<std::int64_t>(bytes_in_cache / row_bytes, 1, 8);
  const std::int64_t grain =
      blocks > 0
          ? column_sum_block_rows
          : std::max<std::int64_t>(1, task_elements(state, config, rows, o.x.cols) / o.x.cols);
  std::byte* const kept =
      o.value.data == nullptr ? frame.take<std::byte>(threads * at_once * row_bytes) : nullptr;
  float* const sums = blocks > 0 ? frame.take<float>(blocks * o.x.cols) : nullptr;
  const auto activate = activate_kernel(state.features);
  const auto quantize = rowwise_kernel(state.features);
  const auto rotate_rows = rotated_rows_kernel(state.features);
  const std::int64_t row_scratch =
      o.rotation != Rotation::none ? rotated_rows_scratch(o.x.cols) : 0;
  float* const scratch = row_scratch > 0 ? frame.take<float>(threads * row_scratch) : nullptr;
  const auto add = add_kernel(state.features);
  state.threads.for_ranges(rows, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* const block =
        sums != nullptr ? sums + begin / column_sum_block_rows * o.x.cols : nullptr;
    if (block != nullptr) std::fill_n(block, o.x.cols, 0.0f);
    for (std::int64_t r = begin; r < end; r += at_once) {
      const std::int64_t to = std::min(r + at_once, end);
      Request part = o;
      part.x = core::rows_of(o.x, r, to - r);
      part.g = core::rows_of(o.g, r, to - r);
      part.q.codes.data = o.q.codes.data + r * o.q.codes.stride;
      part.q.codes.rows = to - r;
      part.q.absmax = {reinterpret_cast<float*>(reinterpret_cast<std::byte*>(o.q.absmax.data()) +
                                                r * static_cast<std::int64_t>(sizeof(float))),
                       static_cast<std::size_t>(to - r)};
      part.value = kept == nullptr ? core::rows_of(o.value, r, to - r)
                                   : AnyMatrix(kept + worker * at_once * row_bytes, o.x.dtype,
                                               to - r, o.x.cols, row_bytes / element);
      activate(part, {0, to - r, 0, o.x.cols});
      if (scratch != nullptr)
        rotate_rows(of_result(part), 0, to - r, config.stream, scratch + worker * row_scratch);
      else
        quantize(of_result(part), 0, to - r, config.stream);
      if (block != nullptr) add(part.value, {0, to - r, 0, o.x.cols}, block);
    }
  });
  if (blocks > 0) finish_column_sums(state, sums, blocks, o);
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
