// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: CPU kernels for the embedding, rotary positions, SwiGLU, dropout and sums.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "studies/models/cpu/elementwise.cpp"
#include "hwy/foreach_target.h"
//
#include <type_traits>

#include "hwy/cache_control.h"
#include "quant/cpu/philox-inl.h"
#include "studies/models/cpu/engine.hpp"
#include "studies/models/cpu/streams-inl.h"
#include "studies/models/philox.hpp"

#ifndef SWITCHBACK_MODELS_ELEMENTWISE_ONCE
#define SWITCHBACK_MODELS_ELEMENTWISE_ONCE
namespace switchback::models {
// What a row of dy does in the embedding's backward, which sums rows with the same token within
// blocks of rows. `later`: an earlier row of its block has the same token and adds this row too.
// `increases`: the block's sum is added to the token's gradient. `first`: it is the first sum for
// the token and is stored. `alone`: no other row has the token, so the row is stored past the
// caches.
enum class Place : std::uint8_t { later, increases, first, alone };
}  // namespace switchback::models
#endif

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// The number of elements at the start of a table row to prefetch. Prefetchers that follow pages
// load the rest of the row themselves; there, prefetching whole rows took a sixth longer on Zen 4.
inline std::int64_t asked_of_row(std::int64_t cols) {
  constexpr std::int64_t first = 256;
  return follows_pages() ? std::min(cols, first) : cols;
}

// Embedding of one token: y = the token's row of the table, plus the row of the position if given.
// `next` is a table row that is needed soon and is prefetched: the table is larger than the caches,
// and its rows are read in any order.
void EmbedRow(const float* token, const float* position, const float* next, const AnyMatrix& y,
              std::int64_t r, Stores stores) {
  with_type(y.dtype, stores, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
    T* const to = static_cast<T*>(y.data) + r * y.stride;
    const std::int64_t asked = asked_of_row(y.cols);
    for_parts(y.cols, [&]<int count>(Count<count>, std::int64_t i, std::int64_t n) HWY_ATTR {
      if (i < asked) q::ask_for<count>(next + i);
      VF v[count];
      load_parts<count>(token + i, n, v);
      if (position != nullptr)
        for (int j = 0; j < count; ++j)
          v[j] = hn::Add(v[j], load_part<count>(position + i, j, n));
      put_parts<past, count>(v, to + i, n);
    });
  });
}

// Sums row r of dy and the rows with the same token that follow it in the list `same`, for `count`
// columns from `column` on. Stores the sum in `to`, or adds it, as `place` says. `next`, unless it
// is null, is a row that is increased soon and is prefetched: a table's gradient is larger than the
// caches, and its rows are accessed in any order.
void AddRows(const ConstAnyMatrix& dy, std::int64_t r, const std::int32_t* same, Place place,
             std::int64_t column, std::int64_t count, float* to, const float* next) {
  with_type(dy.dtype, [&]<class T>(T) HWY_ATTR {
    const T* const from = static_cast<const T*>(dy.data) + column;
    if (place == Place::alone) {
      for (std::int64_t i = 0; i < count; i += lanes) {
        const VF v = q::widen(from + r * dy.stride + i);
        hn::Stream(q::canonical_nan(hn::Add(hn::Zero(F32()), v)), F32(), to + i);
      }
      return;
    }
    const std::int64_t asked = next == nullptr ? 0 : asked_of_row(count);
    for_parts(count, [&]<int parts>(Count<parts>, std::int64_t i, std::int64_t n) HWY_ATTR {
      if (i < asked) q::ask_for<parts>(next + i);
      VF sums[parts];
      for (VF& sum : sums)
        sum = hn::Zero(F32());
      for (std::int64_t row = r; row >= 0; row = same == nullptr ? -1 : same[row])
        for (int j = 0; j < parts; ++j)
          sums[j] = hn::Add(sums[j], load_part<parts>(from + row * dy.stride + i, j, n));
      for (int j = 0; j < parts; ++j) {
        const VF before = place == Place::first ? hn::Zero(F32()) : load_part<parts>(to + i, j, n);
        store_part<parts>(hn::Add(before, sums[j]), to + i, j, n);
      }
    });
  });
}

// Sets to[0, count) to 0 with stores that bypass the caches, because a table's gradient is larger
// than they are.
void StreamZeros(float* to, std::int64_t count) {
  const F32 d;
  std::int64_t i = 0;
  for (; i < count && reinterpret_cast<std::uintptr_t>(to + i) % sizeof(VF) != 0; ++i)
    to[i] = 0;
  for (; i + lanes <= count; i += lanes)
    hn::Stream(hn::Zero(d), d, to + i);
  for (; i < count; ++i)
    to[i] = 0;
}
void EndOfStream() {
  hwy::FlushStream();
}

// Rotates `count` vectors of elements, 1 or 2, from each half of a head. A single vector may be
// short: it has n elements.
template <int count, class T>
HWY_INLINE void rope_part(T* a, T* b, const float* cosines, const float* sines, float sign,
                          std::int64_t n) {
  VF x[count], y[count];
  load_parts<count>(a, n, x);
  load_parts<count>(b, n, y);
  for (int j = 0; j < count; ++j) {
    const VF c = load_part<count>(cosines, j, n);
    const VF s = hn::Mul(load_part<count>(sines, j, n), set(sign));
    const VF turned = hn::NegMulAdd(y[j], s, hn::Mul(x[j], c));
    y[j] = hn::MulAdd(x[j], s, hn::Mul(y[j], c));
    x[j] = turned;
  }
  store_parts<count>(x, a, n);
  store_parts<count>(y, b, n);
}

// Applies rotary positions to the queries and keys of rows [begin, end). All lines of a row are
// prefetched in order, including those of the values, which are not changed: Zen 4's prefetchers
// stop at the gap in each row. Waiting for the first lines after it took 1.5 (f32) to 3 (bf16)
// times as long as reading half as much again.
void RopeRows(const Rope& o, const AnyMatrix& qkv, bool inverse, std::int64_t begin,
              std::int64_t end, bool avx512_bf16) {
  q::with_float_or_bf16(qkv.dtype, avx512_bf16, [&]<class T>(T) HWY_ATTR {
    const std::int64_t half_dim = o.head_dim / 2;
    const float sign = inverse ? -1.0f : 1.0f;
    constexpr std::int64_t line = 64 / std::int64_t{sizeof(T)}, far = 64 * line;
    for (std::int64_t r = begin; r < end; ++r) {
      T* const row = static_cast<T*>(qkv.data) + r * qkv.stride;
      const T* asked = row;
      const std::int64_t t = r % o.length;
      const float* const cosines = o.cosines.data() + t * half_dim;
      const float* const sines = o.sines.data() + t * half_dim;
      for (std::int64_t head = 0; head < 2 * o.heads; ++head) {
        T* const a = row + head * o.head_dim;
        T* const b = a + half_dim;
        for (; asked < row + (head + 1) * o.head_dim / 2 * 3; asked += line)
          hwy::Prefetch(asked + far);
        std::int64_t i = 0;
        for (; i + 2 * lanes <= half_dim; i += 2 * lanes)
          rope_part<2>(a + i, b + i, cosines + i, sines + i, sign, 0);
        for (; i < half_dim; i += lanes)
          rope_part<1>(a + i, b + i, cosines + i, sines + i, sign, half_dim - i);
      }
    }
  });
}

// Replaces x by 1 + exp(-x), with operations that GPUs have too, so that results have the same bits
// there. The result is f32; for bf16 its exponential has an error of 3e-6, as in powers_of_two,
// because every multiplication less helps: Zen 4 starts one per cycle.
template <int count, bool of_bf16>
HWY_INLINE void one_and_exponentials(VF* x) {
  for (int j = 0; j < count; ++j)  // exp(88) is finite
    x[j] = of_bf16 ? at_least(-88.0f, x[j]) : hn::Min(hn::Neg(x[j]), set(88.0f));
  if constexpr (of_bf16)
    exponentials_of_negated<count>(x);
  else
    exponentials<count>(x);
  for (int j = 0; j < count; ++j)
    x[j] = hn::Add(set(1.0f), x[j]);
}

template <bool past, int count, class T>
HWY_INLINE void swiglu_part(const T* a, const T* b, T* to, std::int64_t n) {
  constexpr bool of_bf16 = !std::is_same_v<T, float>;
  VF x[count], under[count], up[count];
  load_unordered<count>(a, n, x);
  for (int j = 0; j < count; ++j)
    under[j] = x[j];
  one_and_exponentials<count, of_bf16>(under);
  load_unordered<count>(b, n, up);
  for (int j = 0; j < count; ++j) {
    const VF silu = of_bf16 ? hn::Div(x[j], under[j]) : hn::Mul(x[j], hn::Div(set(1.0f), under[j]));
    x[j] = hn::Mul(silu, up[j]);
  }
  put_unordered<past, count>(x, to, n);
}

// Prefetches `count` vectors 4096 bytes ahead of element i in a row of `cols` elements; past the
// end of the row, those of the next row. Halves of rows are short, and prefetchers start again
// after each half: with one thread, bf16 took 1.2 to 1.3 times as long without this on Zen 4.
template <int count, class T>
HWY_INLINE void ask_in_rows(const T* row, std::int64_t i, std::int64_t cols, std::int64_t stride) {
  constexpr std::int64_t far = 4096 / std::int64_t{sizeof(T)};
  const std::int64_t at = i + far;
  q::ask_for<count>(row + (at < cols ? at : at - cols + stride));
}

void SwigluRow(const ConstAnyMatrix& gate_up, const AnyMatrix& h, std::int64_t r, Stores stores) {
  with_type(h.dtype, stores, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
    const bool asks = asks_ahead<T>();
    const T* const a = static_cast<const T*>(gate_up.data) + r * gate_up.stride;
    const T* const b = a + h.cols;
    T* const to = static_cast<T*>(h.data) + r * h.stride;
    std::int64_t i = 0;
    for (; i + together * lanes <= h.cols; i += together * lanes) {
      ask_in_rows<together>(a, i, h.cols, gate_up.stride);
      ask_in_rows<together>(b, i, h.cols, gate_up.stride);
      if constexpr (!past) ask_ahead<together>(to + i, asks);
      swiglu_part<past, together>(a + i, b + i, to + i, 0);
    }
    for (; i < h.cols; i += lanes)
      swiglu_part<past, 1>(a + i, b + i, to + i, h.cols - i);
  });
}

template <bool past, int count, class T>
HWY_INLINE void swiglu_backward_part(const T* a, const T* b, const T* g, T* da, T* db,
                                     std::int64_t n) {
  VF x[count], s[count], up[count], gradient[count];
  load_unordered<count>(a, n, x);
  for (int j = 0; j < count; ++j)
    s[j] = x[j];
  one_and_exponentials<count, !std::is_same_v<T, float>>(s);
  load_unordered<count>(b, n, up);
  load_unordered<count>(g, n, gradient);
  for (int j = 0; j < count; ++j) {
    s[j] = hn::Div(set(1.0f), s[j]);
    const VF silu = hn::Mul(x[j], s[j]);
    // the derivative of silu: s + x·s·(1 - s), with s = sigmoid(x)
    const VF slope = hn::MulAdd(silu, hn::Sub(set(1.0f), s[j]), s[j]);
    x[j] = hn::Mul(hn::Mul(gradient[j], up[j]), slope);
    s[j] = hn::Mul(gradient[j], silu);
  }
  put_unordered<past, count>(x, da, n);
  put_unordered<past, count>(s, db, n);
}

void SwigluBackwardRow(const ConstAnyMatrix& gate_up, const ConstAnyMatrix& dh,
                       const AnyMatrix& dgate_up, std::int64_t r, Stores stores) {
  with_type(dh.dtype, stores, [&]<class T, bool past>(T, std::bool_constant<past>) HWY_ATTR {
    const T* const a = static_cast<const T*>(gate_up.data) + r * gate_up.stride;
    const T* const b = a + dh.cols;
    const T* const g = static_cast<const T*>(dh.data) + r * dh.stride;
    T* const da = static_cast<T*>(dgate_up.data) + r * dgate_up.stride;
    T* const db = da + dh.cols;
    std::int64_t i = 0;
    for (; i + together * lanes <= dh.cols; i += together * lanes) {
      ask_in_rows<together>(a, i, dh.cols, gate_up.stride);
      ask_in_rows<together>(b, i, dh.cols, gate_up.stride);
      ask_in_rows<together>(g, i, dh.cols, dh.stride);
      swiglu_backward_part<past, together>(a + i, b + i, g + i, da + i, db + i, 0);
    }
    for (; i < dh.cols; i += lanes)
      swiglu_backward_part<past, 1>(a + i, b + i, g + i, da + i, db + i, dh.cols - i);
  });
}

// The constants of dropout for a range of elements. Passed by value: otherwise the compiler would
// read them again after each store to x.
struct DropoutValues {
  std::uint64_t key, stream;
  std::int64_t first;  // number of the first element
  q::VU threshold;
  VF scale;

  explicit DropoutValues(const Dropout& o)
      : key(o.key),
        stream(o.stream),
        first(o.first),
        threshold(
            hn::Set(q::U32(), static_cast<std::uint32_t>(static_cast<double>(o.p) * 4294967296.0))),
        scale(set(1.0f / (1.0f - o.p))) {}
  // The Philox counters of a vector: counters c, c + 1, ... of the block that contains element i.
  HWY_INLINE void counters(std::int64_t i, std::int64_t c, q::VU* words) const {
    const q::U32 d;
    // The block's first counter is a multiple of 16, so adding to its lower half cannot overflow.
    const auto of_block =
        static_cast<std::uint64_t>((first + i) / philox::block_elements * philox::block_counters);
    words[0] = hn::Add(hn::Set(d, static_cast<std::uint32_t>(of_block)),
                       hn::Iota(d, static_cast<std::uint32_t>(c)));
    words[1] = hn::Set(d, static_cast<std::uint32_t>(of_block >> 32));
    words[2] = hn::Set(d, static_cast<std::uint32_t>(stream));
    words[3] = hn::Set(d, static_cast<std::uint32_t>(stream >> 32));
  }
  [[nodiscard]] HWY_INLINE VF kept(VF x, q::VU bits) const {
    const auto dropped = hn::RebindMask(F32(), hn::Lt(bits, threshold));
    return hn::IfThenZeroElse(dropped, hn::Mul(x, scale));
  }
};

// Prefetches the elements of dropout that come eight blocks later.
template <class T>
HWY_INLINE void ask_for_dropout(const T* x) {
  q::ask_for<philox::block_elements / lanes>(x + 8 * philox::block_elements);
}

// Applies dropout to elements [begin, end) of x; begin is a multiple of 64.
void DropoutRange(const Dropout& o, const AnyMatrix& x, std::int64_t begin, std::int64_t end,
                  bool avx512_bf16) {
  q::with_float_or_bf16(x.dtype, avx512_bf16, [&]<class T>(T) HWY_ATTR {
    T* const elements = static_cast<T*>(x.data);
    const DropoutValues values(o);
    std::int64_t i = begin;
#if HWY_TARGET == HWY_AVX3
    // A vector of 16 counters covers one block of 64 elements. Two blocks are computed together,
    // because each Philox round waits for the one before; that took 0.74 of the time. The lower
    // bound for a vector of elements on Zen 4, which starts two operations per cycle: 30 for the
    // rounds and 5 others, that is, 17 cycles (measured 20).
    static_assert(lanes == philox::block_counters);
    constexpr int blocks = 2;
    for (; i + blocks * philox::block_elements <= end; i += blocks * philox::block_elements) {
      q::VU words[blocks][4];
      for (int j = 0; j < blocks; ++j) {
        ask_for_dropout(elements + i + j * philox::block_elements);
        values.counters(i + j * philox::block_elements, 0, words[j]);
      }
      q::philox_words<blocks>(values.key, words);
      for (int j = 0; j < blocks; ++j) {
        T* const at = elements + i + j * philox::block_elements;
        VF v[4];
        load_parts<4>(at, 0, v);
        for (int w = 0; w < 4; ++w)
          v[w] = values.kept(v[w], words[j][w]);
        store_parts<4>(v, at, 0);
      }
    }
#endif
    for (; i < end; i += philox::block_elements) {
      const std::int64_t count = end - i;
      ask_for_dropout(elements + i);
      for (std::int64_t c = 0; c < std::min(philox::block_counters, count); c += lanes) {
        q::VU words[1][4];
        values.counters(i, c, words[0]);
        q::philox_words<1>(values.key, words);
        for (std::int64_t w = 0; w < 4; ++w) {
          const std::int64_t at = w * philox::block_counters + c;
          if (at >= count) break;
          T* const to = elements + i + at;
          store(values.kept(load(to, count - at), words[0][w]), to, count - at);
        }
      }
    }
  });
}

void AddRange(const ConstAnyMatrix& x, const AnyMatrix& y, std::int64_t begin, std::int64_t end) {
  with_type(x.dtype, [&]<class T>(T) HWY_ATTR {
    const T* const from = static_cast<const T*>(x.data);
    T* const to = static_cast<T*>(y.data);
    for (std::int64_t i = begin; i < end; i += lanes) {
      const std::int64_t n = end - i;
      store(hn::Add(load(to + i, n), load(from + i, n)), to + i, n);
    }
  });
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::models {

HWY_EXPORT(EmbedRow);
HWY_EXPORT(AddRows);
HWY_EXPORT(StreamZeros);
HWY_EXPORT(EndOfStream);
HWY_EXPORT(RopeRows);
HWY_EXPORT(SwigluRow);
HWY_EXPORT(SwigluBackwardRow);
HWY_EXPORT(DropoutRange);
HWY_EXPORT(AddRange);

namespace {

constexpr std::int64_t least_elements = 16384, most_elements = 65536;  // of a task
constexpr std::int64_t line_floats = 16;
// Embedding backward: rows with one token are summed within blocks of 64 rows.
constexpr std::int64_t rows_of_sum = 64;

std::size_t elementwise_table(const ContextState& state) {
  return quant::cpu::table_index(state.features);
}

std::int64_t elements_of_task(const ContextState& state, std::int64_t elements) {
  return size_of_task(state, elements, least_elements, most_elements) / least_elements *
         least_elements;
}
std::int64_t rows_of_task(const ContextState& state, std::int64_t rows, std::int64_t cols) {
  const std::int64_t width = std::max<std::int64_t>(1, cols);
  return size_of_task(state, rows, std::max<std::int64_t>(1, least_elements / width),
                      std::max<std::int64_t>(1, most_elements / width));
}

// Calls f(row) for all rows in parallel, with some thousand elements per task. When it returns,
// stores that bypassed the caches have reached memory.
template <class F>
void for_rows(ContextState& state, std::int64_t rows, std::int64_t cols, F&& f) {
  const auto end_of_stream = HWY_DISPATCH_TABLE(EndOfStream)[elementwise_table(state)];
  state.threads.for_ranges(rows, rows_of_task(state, rows, cols),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t r = begin; r < end; ++r)
                               f(r);
                             end_of_stream();
                           });
}

}  // namespace

namespace cpu {

void embed(ContextState& state, Tokens tokens, MatrixView<const float> table,
           MatrixView<const float> positions, AnyMatrix y) {
  const auto kernel = HWY_DISPATCH_TABLE(EmbedRow)[elementwise_table(state)];
  const Stores stores = {goes_past_caches(state.features, y), state.features.avx512_bf16};
  const auto row_of = [&](std::int64_t at) {
    return table.data + tokens[static_cast<std::size_t>(at)] * table.stride;
  };
  state.threads.for_ranges(
      y.rows, rows_of_task(state, y.rows, y.cols), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t r = begin; r < end; ++r)
          kernel(row_of(r),
                 positions.data == nullptr ? nullptr
                                           : positions.data + r % positions.rows * positions.stride,
                 row_of(std::min(r + 2, y.rows - 1)), y, r, stores);
        if (stores.past_caches) hwy::FlushStream();
      });
}

void embed_backward(ContextState& state, Tokens tokens, ConstAnyMatrix dy, MatrixView<float> dtable,
                    MatrixView<float> dpositions, bool accumulate) {
  const auto add_rows = HWY_DISPATCH_TABLE(AddRows)[elementwise_table(state)];
  const auto zeros = HWY_DISPATCH_TABLE(StreamZeros)[elementwise_table(state)];
  const auto end_of_stream = HWY_DISPATCH_TABLE(EndOfStream)[elementwise_table(state)];
  core::Workspace::Frame frame(state.workspace);
  // `last`: the last row with each token so far, or -1. `same`: for each row, the next row of its
  // block with the same token, or -1.
  auto* const last = frame.take<std::int32_t>(dtable.rows);
  auto* const same = frame.take<std::int32_t>(dy.rows);
  auto* const places = frame.take<Place>(dy.rows);
  std::fill(last, last + dtable.rows, -1);
  for (std::int64_t r = 0; r < dy.rows; ++r) {
    std::int32_t& before = last[tokens[static_cast<std::size_t>(r)]];
    const bool is_later = before >= 0 && before / rows_of_sum == r / rows_of_sum;
    if (is_later) same[before] = static_cast<std::int32_t>(r);
    places[r] = is_later                    ? Place::later
                : before >= 0 || accumulate ? Place::increases
                                            : Place::first;
    same[r] = -1;
    before = static_cast<std::int32_t>(r);
  }
  if (goes_past_caches(state.features, dtable) && dtable.cols % line_floats == 0)
    for (std::int64_t r = 0; r < dy.rows; ++r)
      if (places[r] == Place::first && last[tokens[static_cast<std::size_t>(r)]] == r)
        places[r] = Place::alone;
  if (!accumulate) {
    // Zeroes the gradients of tokens that do not occur. The others are written by their first row,
    // so they need not be zeroed and read.
    state.threads.for_ranges(dtable.rows, rows_of_task(state, dtable.rows, dtable.cols),
                             [&](std::int64_t begin, std::int64_t end, int) {
                               for (std::int64_t r = begin; r < end; ++r)
                                 if (last[r] < 0)
                                   zeros(dtable.data + r * dtable.stride, dtable.cols);
                               end_of_stream();
                             });
    // Positions that no row of dy has get zero gradients.
    const std::int64_t unused = std::max<std::int64_t>(0, dpositions.rows - dy.rows);
    state.threads.for_ranges(unused, rows_of_task(state, unused, dtable.cols),
                             [&](std::int64_t begin, std::int64_t end, int) {
                               for (std::int64_t r = dy.rows + begin; r < dy.rows + end; ++r)
                                 zeros(dpositions.data + r * dpositions.stride, dpositions.cols);
                               end_of_stream();
                             });
  }
  // Tokens repeat, so each task has a range of columns and adds all rows in order. With few columns
  // per task, it would access short pieces of rows at random addresses; with many, threads would be
  // idle.
  constexpr std::int64_t least = 64;
  const std::int64_t columns = (dy.cols / state.threads.count() + least - 1) / least * least;
  state.threads.for_ranges(
      dy.cols, std::max(columns, least), [&](std::int64_t begin, std::int64_t end, int) {
        const auto row_of = [&](std::int64_t r) {
          return dtable.data + tokens[static_cast<std::size_t>(r)] * dtable.stride + begin;
        };
        constexpr std::int64_t ahead = 2;
        for (std::int64_t r = 0; r < dy.rows; ++r) {
          const bool asks = r + ahead < dy.rows && places[r + ahead] == Place::increases;
          if (places[r] != Place::later)
            add_rows(dy, r, same, places[r], begin, end - begin, row_of(r),
                     asks ? row_of(r + ahead) : nullptr);
          if (dpositions.data == nullptr) continue;
          const Place place = !accumulate && r < dpositions.rows ? Place::first : Place::increases;
          add_rows(dy, r, nullptr, place, begin, end - begin,
                   dpositions.data + r % dpositions.rows * dpositions.stride + begin, nullptr);
        }
        end_of_stream();
      });
}

void rope(ContextState& state, const Rope& args, AnyMatrix qkv, bool inverse) {
  const auto kernel = HWY_DISPATCH_TABLE(RopeRows)[elementwise_table(state)];
  const std::int64_t rows = size_of_task(state, qkv.rows, 8, 32);
  state.threads.for_ranges(qkv.rows, rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel(args, qkv, inverse, begin, end, state.features.avx512_bf16);
  });
}

void swiglu(ContextState& state, ConstAnyMatrix gate_up, AnyMatrix h) {
  const auto kernel = HWY_DISPATCH_TABLE(SwigluRow)[elementwise_table(state)];
  const Stores stores = {goes_past_caches(state.features, h), state.features.avx512_bf16};
  for_rows(state, h.rows, h.cols, [&](std::int64_t r) { kernel(gate_up, h, r, stores); });
}

void swiglu_backward(ContextState& state, ConstAnyMatrix gate_up, ConstAnyMatrix dh,
                     AnyMatrix dgate_up) {
  const auto kernel = HWY_DISPATCH_TABLE(SwigluBackwardRow)[elementwise_table(state)];
  // In place, the lines are in the cache already, so stores do not bypass it. They do so only if
  // the second half of each row begins at a line.
  const auto line = 64 / static_cast<std::int64_t>(dtype_size_bytes(dgate_up.dtype));
  const Stores stores = {goes_past_caches(state.features, dgate_up) && dh.cols % line == 0 &&
                             dgate_up.data != gate_up.data,
                         state.features.avx512_bf16};
  for_rows(state, dh.rows, dh.cols,
           [&](std::int64_t r) { kernel(gate_up, dh, dgate_up, r, stores); });
}

void dropout(ContextState& state, const Dropout& args, AnyMatrix x) {
  const auto kernel = HWY_DISPATCH_TABLE(DropoutRange)[elementwise_table(state)];
  state.threads.for_ranges(x.rows * x.cols, elements_of_task(state, x.rows * x.cols),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             kernel(args, x, begin, end, state.features.avx512_bf16);
                           });
}

void zero(ContextState& state, AnyMatrix x) {
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(x.dtype));
  state.threads.for_ranges(x.rows * x.cols * element, 16 * least_elements,
                           [&](std::int64_t begin, std::int64_t end, int) {
                             std::memset(static_cast<std::byte*>(x.data) + begin, 0,
                                         static_cast<std::size_t>(end - begin));
                           });
}

void add(ContextState& state, ConstAnyMatrix x, AnyMatrix y) {
  const auto kernel = HWY_DISPATCH_TABLE(AddRange)[elementwise_table(state)];
  state.threads.for_ranges(
      x.rows * x.cols, elements_of_task(state, x.rows * x.cols),
      [&](std::int64_t begin, std::int64_t end, int) { kernel(x, y, begin, end); });
}

}  // namespace cpu

}  // namespace switchback::models
#endif
