// SPDX-License-Identifier: Apache-2.0
// Engine zone: GELU and its derivative, alone and with the quantization of the result.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/activation.cpp"
#include "hwy/foreach_target.h"
//
#include <bit>
#include <type_traits>

#include "core/cpu/isa.hpp"
#include "core/dry_run.hpp"
#include "core/matrix_rows.hpp"
#include "core/per_worker.hpp"
#include "hwy/cache_control.h"
#include "quant/cpu/columns.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/gelu-inl.h"
#include "quant/cpu/narrow-inl.h"
#include "quant/cpu/pieces.hpp"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

#define SWITCHBACK_EACH _Pragma("GCC unroll 4") for (int i = 0; i < count; ++i)

// Operands and results are prefetched this number of elements before they are used. Otherwise
// stores wait for memory. Loads would then wait for stores to addresses that differ from theirs by
// a multiple of 4 KiB, as happens with operands that start on huge pages.
inline constexpr std::int64_t far_ahead = 512;

// y = activation(x), for `count` vectors.
template <class A, int count, class T>
HWY_INLINE void forward_vectors(const T* x, T* y) {
  VF v[count];
  widen_unordered<count>(x, v);
  A::template values<count>(v);
  narrow_any_unordered<count>(v, y);
}
// dx = g · activation'(x), for `count` vectors.
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

// forward_run: y = activation(x) for `size` elements; backward_run: dx = g · activation'(x). The
// last vector overlaps the previous one; a run shorter than a vector is padded with zeros.
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

// A bf16 has only 65536 values, so results of GELU are looked up in a table. This takes half of the
// time of the instructions that computed the table. For typical inputs the lines of a table that
// are read fit into a core's first-level cache.
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

// Returns a table of GELU's results, which is made by the first call that needs it.
template <class Table>
const Table& table() {
  static const Table made;
  return made;
}

// Loads the bits of four bf16; element() extracts one of them.
HWY_INLINE std::uint64_t four_at(const bfloat16* x) {
  std::uint64_t bits;
  std::memcpy(&bits, static_cast<const void*>(x), sizeof(bits));
  return bits;
}
HWY_INLINE std::size_t element(std::uint64_t four, int i) {
  return static_cast<std::size_t>(four >> (16 * i)) & 0xFFFFu;
}

#if HWY_TARGET == HWY_AVX3
HWY_INLINE const Avx512Bf16* of_avx512_bf16(const bfloat16* x) {
  return static_cast<const Avx512Bf16*>(static_cast<const void*>(x));
}
HWY_INLINE Avx512Bf16* of_avx512_bf16(bfloat16* x) {
  return static_cast<Avx512Bf16*>(static_cast<void*>(x));
}
// Whether results that fill whole cache lines are stored past the caches.
HWY_INLINE bool goes_past(cpu::Bf16Stores stores, const bfloat16* to) {
  return stores.past_caches && reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
}

// Returns the results y, with those of the elements in the mask `some` taken from the table.
HWY_INLINE __m512i looked_up(__m512i x, __m512i y, std::uint32_t some,
                             const std::uint16_t* bits_of) {
  std::uint16_t at[2 * lanes], of[2 * lanes];
  _mm512_storeu_si512(at, x);
  _mm512_storeu_si512(of, y);
  if (std::popcount(some) > 8) {
    for (int i = 0; i < 2 * lanes; ++i)
      of[i] = bits_of[at[i]];
  } else {
    for (; some != 0; some &= some - 1)
      of[std::countr_zero(some)] = bits_of[at[std::countr_zero(some)]];
  }
  return _mm512_loadu_si512(of);
}

// Computes GELU of whole cache lines of bf16 by quadratics, for a core with AVX-512 BF16. On Zen 4
// this takes 0.4 of the time of the table. An element is looked up in the table if it is far below
// 0, NaN, or so small that the rounding instruction would treat its value as zero. Returns how many
// elements were done.
template <class A, bool past_caches>
HWY_INLINE std::int64_t quadratics_run(const bfloat16* x, std::int64_t size,
                                       const std::uint16_t* bits_of, bfloat16* y) {
  constexpr int count = 2;
  constexpr const cpu::GeluQuadratics& of = A::of_bf16;
  const auto chosen = [](const float* c, __m512i n) HWY_ATTR {
    return VF{_mm512_permutex2var_ps(_mm512_load_ps(c), n, _mm512_load_ps(c + lanes))};
  };
  constexpr int negated_smaller = 0b1110;  // _mm512_range_ps: -min(|x|, |y|)
  const __m512i last = _mm512_set1_epi16(static_cast<short>(0xC07B));  // -end
  // One comparison finds NaN and values up to 2^-125. It is made of twice the bits, which have no
  // sign, minus `small`: NaN are above Inf, and small values wrap around to more than `most`.
  const __m512i small = _mm512_set1_epi16(0x0202);
  const __m512i most = _mm512_set1_epi16(static_cast<short>(0xFF00 - 0x0202));
  std::int64_t done = 0;
  for (; done + count * lanes <= size; done += count * lanes) {
    ask_for<count>(x + done + far_ahead);
    if constexpr (!past_caches) ask_for<count>(y + done + far_ahead);
    const __m512i line = _mm512_loadu_si512(x + done);
    VF v[count], b[count], p[count];
    __m512i n[count];
    widen_pair(of_avx512_bf16(x + done), v);
    SWITCHBACK_EACH b[i] = VF{_mm512_range_ps(v[i].raw, set(of.end).raw, negated_smaller)};
    SWITCHBACK_EACH n[i] = bits(hn::Add(b[i], set(of.shift))).raw;
    SWITCHBACK_EACH p[i] = hn::MulAdd(chosen(of.c2, n[i]), b[i], chosen(of.c1, n[i]));
    SWITCHBACK_EACH p[i] = hn::MulAdd(p[i], b[i], chosen(of.c0, n[i]));
    SWITCHBACK_EACH v[i] = hn::MulAdd(p[i], b[i], without_negative(v[i]));
    __m512i values = rounded_pair(v[0], v[1]);
    const __m512i twice = _mm512_add_epi16(line, line);
    const __mmask32 odd = _mm512_cmpgt_epu16_mask(_mm512_sub_epi16(twice, small), most);
    const __mmask32 far = _mm512_cmpgt_epu16_mask(line, last);
    // Zeros need no table: their results are right.
    if (HWY_UNLIKELY(!_kortestz_mask32_u8(odd, far)))
      values = looked_up(line, values, (odd & _mm512_test_epi16_mask(twice, twice)) | far, bits_of);
    if constexpr (past_caches)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(y + done), values);
    else
      _mm512_storeu_si512(static_cast<void*>(y + done), values);
  }
  return done;
}
#endif

template <class A>
HWY_INLINE void look_up_run(const bfloat16* x, std::int64_t size, bfloat16* y,
                            cpu::Bf16Stores stores) {
  constexpr std::int64_t step = together * lanes;
  const std::uint16_t* const bits_of = table<Bf16Values<A>>().bits_of;
  std::int64_t i = 0;
#if HWY_TARGET == HWY_AVX3
  if (stores.avx512_bf16)
    i = goes_past(stores, y) ? quadratics_run<A, true>(x, size, bits_of, y)
                             : quadratics_run<A, false>(x, size, bits_of, y);
#else
  static_cast<void>(stores);
#endif
  for (; i + step <= size; i += step) {
    ask_for<together>(x + i + far_ahead);
    ask_for<together>(y + i + far_ahead);
    for (std::int64_t j = i; j < i + step; j += 4) {
      const std::uint64_t four = four_at(x + j);
      std::uint64_t results = 0;  // stored by memcpy, because y may be at any address
      for (int e = 0; e < 4; ++e)
        results |= std::uint64_t{bits_of[element(four, e)]} << (16 * e);
      std::memcpy(static_cast<void*>(y + j), &results, sizeof(results));
    }
  }
  forward_run<A>(x + i, size - i, y + i);
}

#if HWY_TARGET == HWY_AVX3
// Load a table's elements for four bf16 (four_of) and for a vector of bf16 (vector_of). Assembling
// a vector in registers takes two thirds of the time of storing it element by element and loading
// it at once.
HWY_INLINE __m128 four_of(const float* of, const bfloat16* x) {
  const std::uint64_t four = four_at(x);
  __m128 v = _mm_load_ss(of + element(four, 0));
  v = _mm_insert_ps(v, _mm_load_ss(of + element(four, 1)), 0x10);
  v = _mm_insert_ps(v, _mm_load_ss(of + element(four, 2)), 0x20);
  return _mm_insert_ps(v, _mm_load_ss(of + element(four, 3)), 0x30);
}
HWY_INLINE VF vector_of(const float* of, const bfloat16* x) {
  const __m256 low = _mm256_set_m128(four_of(of, x + 4), four_of(of, x));
  const __m256 high = _mm256_set_m128(four_of(of, x + 12), four_of(of, x + 8));
  return VF{_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1)};
}

// dx = g · activation'(x) for whole cache lines of bf16, with the derivatives from a table, on a
// core with AVX-512 BF16. Returns how many elements were done.
template <bool past_caches>
HWY_INLINE std::int64_t look_up_lines(const bfloat16* g, const bfloat16* x, std::int64_t size,
                                      const float* of, bfloat16* dx) {
  constexpr int count = 2;
  std::int64_t i = 0;
  for (; i + count * lanes <= size; i += count * lanes) {
    ask_for<count>(g + i + far_ahead);
    ask_for<count>(x + i + far_ahead);
    if constexpr (!past_caches) ask_for<count>(dx + i + far_ahead);
    VF gradients[count];
    widen_pair(of_avx512_bf16(g + i), gradients);
    narrow_any_pair<past_caches>(hn::Mul(gradients[0], vector_of(of, x + i)),
                                 hn::Mul(gradients[1], vector_of(of, x + i + lanes)),
                                 of_avx512_bf16(dx + i));
  }
  return i;
}
#endif

// dx = g · activation'(x) for g and x in bf16, with the derivatives from a table.
template <class A>
HWY_INLINE void look_up_run(const bfloat16* g, const bfloat16* x, std::int64_t size, bfloat16* dx,
                            cpu::Bf16Stores stores) {
  constexpr std::int64_t step = together * lanes;
  const float* const of = table<Bf16Slopes<A>>().of;
  std::int64_t i = 0;
#if HWY_TARGET == HWY_AVX3
  if (stores.avx512_bf16)
    i = goes_past(stores, dx) ? look_up_lines<true>(g, x, size, of, dx)
                              : look_up_lines<false>(g, x, size, of, dx);
#else
  static_cast<void>(stores);
#endif
  for (; i + step <= size; i += step) {
    ask_for<together>(g + i + far_ahead);
    ask_for<together>(x + i + far_ahead);
    ask_for<together>(dx + i + far_ahead);
    // The derivatives, in the order in which widen_unordered() returns the elements of g.
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

#undef SWITCHBACK_EACH

// Calls f(A()), where A is the class that computes the activation.
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

// For one piece of the matrix: o.value = activation(o.x), or o.g · activation'(o.x) if g is given.
void ActivatePiece(const Request& o, const cpu::Cut::Piece& piece, cpu::Bf16Stores stores) {
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
            look_up_run<A>(row<T>(o.x, r, c), cols, row_of<T>(o.value, r, c), stores);
          else
            forward_run<A>(row<T>(o.x, r, c), cols, row_of<T>(o.value, r, c));
        });
      if (o.g.dtype == o.x.dtype)
        return for_rows([&](std::int64_t r, std::int64_t c) HWY_ATTR {
          if constexpr (looks_up<T>)
            look_up_run<A>(row<T>(o.g, r, c), row<T>(o.x, r, c), cols, row_of<T>(o.value, r, c),
                           stores);
          else
            backward_run<A>(row<T>(o.g, r, c), row<T>(o.x, r, c), cols, row_of<T>(o.value, r, c));
        });
      for_rows([&](std::int64_t r, std::int64_t c) HWY_ATTR {
        backward_run<A>(row<float>(o.g, r, c), row<T>(o.x, r, c), cols,
                        row_of<float>(o.value, r, c));
      });
    });
  });
  if (stores.past_caches) hwy::FlushStream();
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(ActivatePiece);

namespace cpu {

namespace {

using ActivateKernel = void (*)(const Request& o, const Cut::Piece& piece, Bf16Stores stores);

ActivateKernel activate_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(ActivatePiece)[table_index(features)];
}

// Whether the result is stored past the caches: it is larger than a core's caches, and lines that
// are stored whole need not be read first. A result that replaces x or g in place is in the cache
// already.
bool goes_past_caches(const Request& o) {
  const auto l2 = static_cast<std::int64_t>(core::cpu_caches().l2_bytes);
  return l2 > 0 && o.value.data != o.x.data && o.value.data != o.g.data &&
         o.x.rows * o.x.cols * static_cast<std::int64_t>(dtype_size_bytes(o.value.dtype)) > l2;
}

// A request that quantizes the activated matrix, o.value, as a separate operation.
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
  const Bf16Stores stores = {state.features.avx512_bf16, goes_past_caches(o)};
  state.threads.for_each(cut.tasks(),
                         [&](std::int64_t task, int) { kernel(o, cut.piece(task), stores); });
}

// Activates, quantizes and sums a few rows at a time, while they are in a cache. If the caller does
// not want the activated rows, they are stored only there.
void activation_quantize(ContextState& state, const Config& config, const Request& o) {
  constexpr std::int64_t bytes_in_cache = 128 << 10;
  const std::int64_t rows = o.x.rows;
  const std::int64_t threads = state.threads.count();
  const std::int64_t blocks = o.column_sums.empty() ? 0 : sum_blocks(rows);
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(o.x.dtype));
  const std::int64_t row_bytes = (o.x.cols * element + 63) / 64 * 64;
  core::Workspace::Frame frame(state.workspace);
  Request whole = o;
  // If there are too few rows, or too few blocks of column sums, for all threads, the operations
  // run one after another, each on all threads.
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
  const core::PerWorker<std::byte> kept(frame, state.threads.count(),
                                        o.value.data == nullptr ? at_once * row_bytes : 0);
  float* const sums = blocks > 0 ? frame.take<float>(blocks * o.x.cols) : nullptr;
  const auto activate = activate_kernel(state.features);
  const auto quantize = rowwise_kernel(state.features);
  const auto rotate_rows = rotated_rows_kernel(state.features);
  const core::PerWorker<float> scratch(frame, state.threads.count(),
                                       o.rotation != Rotation::none ? o.x.cols : 0);
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
      part.value =
          kept ? AnyMatrix(kept.of(worker), o.x.dtype, to - r, o.x.cols, row_bytes / element)
               : core::rows_of(o.value, r, to - r);
      activate(part, {0, to - r, 0, o.x.cols}, {state.features.avx512_bf16, false});
      if (scratch)
        rotate_rows(of_result(part), 0, to - r, config.stream, scratch.of(worker));
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
