// SPDX-License-Identifier: Apache-2.0
// Engine zone: GELU and its derivative, alone and with the quantization of the result.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/activation.cpp"
#include "hwy/foreach_target.h"
//
#include <type_traits>

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

// The sequences of quant/gelu.hpp, for vectors side by side: each is two chains of twenty dependent
// operations, and a core that computed one vector after the other would wait half of the time.
// Floor: about 30 (tanh) and 50 (erf) operations and a division a vector, which is more time than
// memory takes for it where memory is fast.
inline constexpr int together = 4;
#define SWITCHBACK_EACH _Pragma("GCC unroll 4") for (int i = 0; i < count; ++i)

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

// z = exp(z + rest); no rest if there is no such array.
template <int count>
HWY_INLINE void exponentials(VF* z, const VF* rest) {
  VF shifted[count], p[count];
  SWITCHBACK_EACH shifted[i] = mul_add(z[i], set(gelu::log2_e), set(gelu::integer_shift));
  SWITCHBACK_EACH {
    const VF n = hn::Sub(shifted[i], set(gelu::integer_shift));
    // The first product is exact, so that a fused operation has the same bits.
    const VF high = hn::NegMulAdd(n, set(gelu::ln2_high), z[i]);
    z[i] = hn::Sub(high, hn::Mul(n, set(gelu::ln2_low)));
    if (rest != nullptr) z[i] = hn::Add(z[i], rest[i]);
  }
  SWITCHBACK_EACH p[i] = mul_add(set(gelu::exp6), z[i], set(gelu::exp5));
  SWITCHBACK_EACH p[i] = mul_add(p[i], z[i], set(gelu::exp4));
  SWITCHBACK_EACH p[i] = mul_add(p[i], z[i], set(gelu::exp3));
  SWITCHBACK_EACH p[i] = mul_add(p[i], z[i], set(gelu::exp2));
  SWITCHBACK_EACH p[i] = mul_add(p[i], z[i], set(1.0f));
  SWITCHBACK_EACH p[i] = mul_add(p[i], z[i], set(1.0f));
#if HWY_TARGET == HWY_AVX3
  // Times 2^n, rounded once: the same bits.
  SWITCHBACK_EACH {
    const VF n = hn::Sub(shifted[i], set(gelu::integer_shift));
    z[i] = VF{_mm512_scalef_ps(p[i].raw, n.raw)};
  }
#else
  SWITCHBACK_EACH {
    const U32 du;
    const VU whole = hn::Sub(hn::BitCast(du, shifted[i]), hn::Set(du, gelu::integer_shift_bits));
    const VU half = hn::BitCast(du, hn::ShiftRight<1>(hn::BitCast(I32(), whole)));
    z[i] = hn::Mul(hn::Mul(p[i], power_of_two(half)), power_of_two(hn::Sub(whole, half)));
  }
#endif
}

HWY_INLINE VF clamp(VF x, float end) {
  return hn::Min(hn::Max(x, set(-end)), set(end));
}

struct GeluTanh {
  // x = its value.
  template <int count>
  static HWY_INLINE void values(VF* x) {
    VF e[count];
    SWITCHBACK_EACH {
      const VF cubed = mul_add(set(gelu::cubic), hn::Mul(x[i], x[i]), set(1.0f));
      e[i] = hn::Neg(
          clamp(hn::Mul(hn::Mul(set(gelu::twice_sqrt_2_pi), x[i]), cubed), gelu::value_end));
    }
    exponentials<count>(e, nullptr);
    SWITCHBACK_EACH x[i] = hn::Div(x[i], hn::Add(set(1.0f), e[i]));
  }
  // x = its derivative.
  template <int count>
  static HWY_INLINE void derivatives(VF* x) {
    VF c[count], e[count];
    SWITCHBACK_EACH {
      c[i] = clamp(x[i], gelu::derivative_end);
      e[i] = hn::Neg(hn::Mul(hn::Mul(set(gelu::twice_sqrt_2_pi), c[i]),
                             mul_add(set(gelu::cubic), hn::Mul(c[i], c[i]), set(1.0f))));
    }
    exponentials<count>(e, nullptr);
    SWITCHBACK_EACH {
      const VF s = hn::Div(set(1.0f), hn::Add(set(1.0f), e[i]));
      const VF square = hn::Mul(c[i], c[i]);
      const VF slope =
          hn::Mul(set(gelu::twice_sqrt_2_pi), mul_add(set(gelu::three_cubic), square, set(1.0f)));
      x[i] = hn::Add(hn::Add(s, hn::Mul(hn::Mul(c[i], slope), hn::Mul(s, hn::Mul(e[i], s)))),
                     hn::Sub(x[i], x[i]));
    }
  }
};

struct GeluErf {
  // min(|x|, tail_end)
  static HWY_INLINE VF magnitude(VF x) {
#if HWY_TARGET == HWY_AVX3
    constexpr int least_magnitude_without_sign = 0b1010;
    return VF{_mm512_range_ps(x.raw, set(gelu::tail_end).raw, least_magnitude_without_sign)};
#else
    return hn::Min(hn::Abs(x), set(gelu::tail_end));
#endif
  }
  // tail where x < 0, elsewhere 1 - tail.
  static HWY_INLINE VF distribution(VF x, VF tail) {
    const auto negative = hn::Lt(x, hn::Zero(F32()));
#if HWY_TARGET == HWY_AVX3
    return VF{_mm512_mask_sub_ps(tail.raw, static_cast<__mmask16>(~negative.raw), set(1.0f).raw,
                                 tail.raw)};
#else
    return hn::IfThenElse(negative, tail, hn::Sub(set(1.0f), tail));
#endif
  }
  // Distributions and bells of x.
  template <int count>
  static HWY_INLINE void normal(const VF* x, VF* distributions, VF* bell) {
    const U32 du;
    VF rest[count], t[count], p[count];
    SWITCHBACK_EACH {
      const VF a = magnitude(x[i]);
      t[i] = hn::Div(set(1.0f), mul_add(set(gelu::tail_slope), a, set(1.0f)));
      const VF upper =
          hn::BitCast(F32(), hn::And(hn::BitCast(du, a), hn::Set(du, gelu::upper_half)));
      // Halves are exact, so that they may be taken of factors.
      const VF half = hn::Mul(set(-0.5f), upper);
      bell[i] = hn::Mul(half, upper);
      rest[i] = hn::Mul(hn::Sub(a, upper), hn::NegMulAdd(set(0.5f), a, half));
    }
    exponentials<count>(bell, rest);
    SWITCHBACK_EACH p[i] = mul_add(set(gelu::tail8), t[i], set(gelu::tail7));
    SWITCHBACK_EACH p[i] = mul_add(p[i], t[i], set(gelu::tail6));
    SWITCHBACK_EACH p[i] = mul_add(p[i], t[i], set(gelu::tail5));
    SWITCHBACK_EACH p[i] = mul_add(p[i], t[i], set(gelu::tail4));
    SWITCHBACK_EACH p[i] = mul_add(p[i], t[i], set(gelu::tail3));
    SWITCHBACK_EACH p[i] = mul_add(p[i], t[i], set(gelu::tail2));
    SWITCHBACK_EACH p[i] = mul_add(p[i], t[i], set(gelu::tail1));
    SWITCHBACK_EACH p[i] = mul_add(p[i], t[i], set(gelu::tail0));
    SWITCHBACK_EACH distributions[i] = distribution(x[i], hn::Mul(hn::Mul(p[i], t[i]), bell[i]));
  }
  template <int count>
  static HWY_INLINE void values(VF* x) {
    VF distributions[count], bell[count];
    normal<count>(x, distributions, bell);
    SWITCHBACK_EACH x[i] = hn::Mul(x[i], distributions[i]);
  }
  template <int count>
  static HWY_INLINE void derivatives(VF* x) {
    VF distributions[count], bell[count];
    normal<count>(x, distributions, bell);
    SWITCHBACK_EACH x[i] =
        hn::Add(distributions[i], hn::Mul(x[i], hn::Mul(bell[i], set(gelu::density_at_zero))));
  }
};

// Operands and results are asked for so many elements before they are used. Otherwise stores wait
// for memory, and loads for stores to addresses that are theirs but for a multiple of 4 KiB, as
// those of operands that start on huge pages are.
inline constexpr std::int64_t far_ahead = 512;

// y = the values of `count` vectors at x.
template <class A, int count, class T>
HWY_INLINE void forward_vectors(const T* x, T* y) {
  VF v[count];
  widen_unordered<count>(x, v);
  A::template values<count>(v);
  narrow_any_unordered<count>(v, y);
}
// dx = g times the derivatives at x.
template <class A, int count, class G, class T>
HWY_INLINE void backward_vectors(const G* g, const T* x, G* dx) {
  VF v[count];
  if constexpr (std::is_same_v<G, T>) {
    widen_unordered<count>(x, v);
    A::template derivatives<count>(v);
    VF gradients[count];
    widen_unordered<count>(g, gradients);
    SWITCHBACK_EACH v[i] = hn::Mul(gradients[i], v[i]);
    narrow_any_unordered<count>(v, dx);
  } else {
    SWITCHBACK_EACH v[i] = widen(x + i * lanes);
    A::template derivatives<count>(v);
    SWITCHBACK_EACH narrow_any(hn::Mul(widen(g + i * lanes), v[i]), dx + i * lanes);
  }
}
#undef SWITCHBACK_EACH

// y[0, size) from x, and from g where there is one. The last vector overlaps the one before; a run
// shorter than a vector is padded with zeros.
template <class A, class T>
HWY_INLINE void forward_run(const T* x, std::int64_t size, T* y) {
  if (size < lanes) {
    alignas(64) T values[lanes];
    forward_vectors<A, 1>(Padded<T>(x, size).elements, values);
    std::memcpy(static_cast<void*>(y), static_cast<const void*>(values),
                static_cast<std::size_t>(size) * sizeof(T));
    return;
  }
  std::int64_t i = 0;
  for (; i + together * lanes <= size; i += together * lanes) {
    ask_for<together>(x + i + far_ahead);
    ask_for<together>(y + i + far_ahead);
    forward_vectors<A, together>(x + i, y + i);
  }
  for (; i < size; i += lanes) {
    const std::int64_t at = std::min(i, size - lanes);
    forward_vectors<A, 1>(x + at, y + at);
  }
}

template <class A, class G, class T>
HWY_INLINE void backward_run(const G* g, const T* x, std::int64_t size, G* dx) {
  if (size < lanes) {
    alignas(64) G values[lanes];
    backward_vectors<A, 1>(Padded<G>(g, size).elements, Padded<T>(x, size).elements, values);
    std::memcpy(static_cast<void*>(dx), static_cast<const void*>(values),
                static_cast<std::size_t>(size) * sizeof(G));
    return;
  }
  std::int64_t i = 0;
  for (; i + together * lanes <= size; i += together * lanes) {
    ask_for<together>(g + i + far_ahead);
    ask_for<together>(x + i + far_ahead);
    ask_for<together>(dx + i + far_ahead);
    backward_vectors<A, together>(g + i, x + i, dx + i);
  }
  for (; i < size; i += lanes) {
    const std::int64_t at = std::min(i, size - lanes);
    backward_vectors<A, 1>(g + at, x + at, dx + at);
  }
}

// A bf16 has 65536 values: each result is looked up in a table, which takes half of the time of the
// sequence that made it. Of usual inputs a table's lines that are read fit in a core's first cache.
inline constexpr std::int64_t all_bf16 = 65536;

template <int count>
HWY_INLINE void bf16_from(std::int64_t first, bfloat16* x) {
  for (std::int64_t i = 0; i < count * lanes; ++i) {
    const auto bits = static_cast<std::uint16_t>(first + i);
    std::memcpy(static_cast<void*>(x + i), &bits, sizeof(bits));
  }
}

template <class A>
struct Bf16Values {
  std::uint16_t bits_of[all_bf16];
  Bf16Values() {
    for (std::int64_t i = 0; i < all_bf16; i += together * lanes) {
      bfloat16 values[together * lanes];
      bf16_from<together>(i, values);
      forward_vectors<A, together>(values, values);
      std::memcpy(bits_of + i, static_cast<const void*>(values), sizeof(values));
    }
  }
};

template <class A>
struct Bf16Slopes {
  float of[all_bf16];
  Bf16Slopes() {
    for (std::int64_t i = 0; i < all_bf16; i += lanes) {
      bfloat16 x[lanes];
      bf16_from<1>(i, x);
      VF v[1] = {widen(x)};
      A::template derivatives<1>(v);
      hn::StoreU(v[0], F32(), of + i);
    }
  }
};

template <class T>
inline constexpr bool looks_up = (lanes >= 4) && std::is_same_v<T, bfloat16>;

// Made by the first call that needs it.
template <class Table>
const Table& table() {
  static const Table made;
  return made;
}

// The bits of four bf16.
HWY_INLINE std::uint64_t four_at(const bfloat16* x) {
  std::uint64_t bits;
  std::memcpy(&bits, static_cast<const void*>(x), sizeof(bits));
  return bits;
}
HWY_INLINE std::size_t element(std::uint64_t four, int i) {
  return static_cast<std::size_t>(four >> (16 * i)) & 0xFFFFu;
}

template <class A>
HWY_INLINE void look_up_run(const bfloat16* x, std::int64_t size, bfloat16* y) {
  constexpr std::int64_t step = together * lanes;
  const std::uint16_t* const bits_of = table<Bf16Values<A>>().bits_of;
  std::int64_t i = 0;
  for (; i + step <= size; i += step) {
    ask_for<together>(x + i + far_ahead);
    ask_for<together>(y + i + far_ahead);
    for (std::int64_t j = i; j < i + step; j += 4) {
      const std::uint64_t four = four_at(x + j);
      std::uint64_t results = 0;  // y may have any address
      for (int e = 0; e < 4; ++e)
        results |= std::uint64_t{bits_of[element(four, e)]} << (16 * e);
      std::memcpy(static_cast<void*>(y + j), &results, sizeof(results));
    }
  }
  forward_run<A>(x + i, size - i, y + i);
}

// g has x's type.
template <class A>
HWY_INLINE void look_up_run(const bfloat16* g, const bfloat16* x, std::int64_t size, bfloat16* dx) {
  constexpr std::int64_t step = together * lanes;
  const float* const of = table<Bf16Slopes<A>>().of;
  std::int64_t i = 0;
  for (; i + step <= size; i += step) {
    ask_for<together>(g + i + far_ahead);
    ask_for<together>(x + i + far_ahead);
    ask_for<together>(dx + i + far_ahead);
    // In the order of widen_unordered.
    alignas(64) float slopes[step];
    for (std::int64_t pair = 0; pair < step; pair += 2 * lanes)
      for (std::int64_t j = 0; j < lanes; j += 2) {
        const std::uint64_t four = four_at(x + i + pair + 2 * j);
        for (int e = 0; e < 4; ++e)
          slopes[pair + (e & 1) * lanes + j + e / 2] = of[element(four, e)];
      }
    VF gradients[together];
    widen_unordered<together>(g + i, gradients);
    for (int v = 0; v < together; ++v)
      gradients[v] = hn::Mul(gradients[v], hn::Load(F32(), slopes + v * lanes));
    narrow_any_unordered<together>(gradients, dx + i);
  }
  backward_run<A>(g + i, x + i, size - i, dx + i);
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
          if constexpr (looks_up<T>)
            look_up_run<A>(row<T>(o.x, r, c), cols, row_of<T>(o.value, r, c));
          else
            forward_run<A>(row<T>(o.x, r, c), cols, row_of<T>(o.value, r, c));
        });
      if (o.g.dtype == o.x.dtype)
        return for_rows([&](std::int64_t r, std::int64_t c) HWY_ATTR {
          if constexpr (looks_up<T>)
            look_up_run<A>(row<T>(o.g, r, c), row<T>(o.x, r, c), cols, row_of<T>(o.value, r, c));
          else
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
