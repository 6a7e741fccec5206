// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: embedding, rotary positions, SwiGLU, dropout and sums.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/elementwise.cpp"
#include "hwy/foreach_target.h"
//
#include "models/cpu/vectors-inl.h"
#include "models/kernels.hpp"
#include "models/philox.hpp"
#include "quant/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// y = table row (+ position row)
void EmbedRow(const float* token, const float* position, const AnyMatrix& y, std::int64_t r) {
  with_type(y.dtype, [&]<class T>(T) HWY_ATTR {
    T* const to = static_cast<T*>(y.data) + r * y.stride;
    for (std::int64_t i = 0; i < y.cols; i += lanes) {
      const std::int64_t n = y.cols - i;
      VF v = load(token + i, n);
      if (position != nullptr) v = hn::Add(v, load(position + i, n));
      store(v, to + i, n);
    }
  });
}

// to[0, count) += row r of dy, from a column on.
void AddRow(const ConstAnyMatrix& dy, std::int64_t r, std::int64_t column, std::int64_t count,
            float* to) {
  with_type(dy.dtype, [&]<class T>(T) HWY_ATTR {
    const T* const from = static_cast<const T*>(dy.data) + r * dy.stride + column;
    for (std::int64_t i = 0; i < count; i += lanes) {
      const std::int64_t n = count - i;
      store(hn::Add(load(to + i, n), load(from + i, n)), to + i, n);
    }
  });
}

// The queries and keys of a row.
void RopeRow(const Rope& o, const AnyMatrix& qkv, std::int64_t r, bool inverse) {
  with_type(qkv.dtype, [&]<class T>(T) HWY_ATTR {
    T* const row = static_cast<T*>(qkv.data) + r * qkv.stride;
    const std::int64_t half_dim = o.head_dim / 2;
    const std::int64_t t = r % o.length;
    const float* const cosines = o.cosines.data() + t * half_dim;
    const float* const sines = o.sines.data() + t * half_dim;
    for (std::int64_t head = 0; head < 2 * o.heads; ++head) {
      T* const a = row + head * o.head_dim;
      T* const b = a + half_dim;
      for (std::int64_t i = 0; i < half_dim; i += lanes) {
        const std::int64_t n = half_dim - i;
        const VF c = load(cosines + i, n);
        VF s = load(sines + i, n);
        if (inverse) s = hn::Neg(s);
        const VF x = load(a + i, n);
        const VF y = load(b + i, n);
        store(hn::NegMulAdd(y, s, hn::Mul(x, c)), a + i, n);
        store(hn::MulAdd(x, s, hn::Mul(y, c)), b + i, n);
      }
    }
  });
}

HWY_INLINE VF sigmoid(VF x) {
  // exp(88) is finite
  const VF e = exponential(hn::Min(hn::Neg(x), set(88.0f)));
  return hn::Div(set(1.0f), hn::Add(set(1.0f), e));
}

void SwigluRow(const ConstAnyMatrix& gate_up, const AnyMatrix& h, std::int64_t r) {
  with_type(h.dtype, [&]<class T>(T) HWY_ATTR {
    const T* const a = static_cast<const T*>(gate_up.data) + r * gate_up.stride;
    const T* const b = a + h.cols;
    T* const to = static_cast<T*>(h.data) + r * h.stride;
    for (std::int64_t i = 0; i < h.cols; i += lanes) {
      const std::int64_t n = h.cols - i;
      const VF x = load(a + i, n);
      store(hn::Mul(hn::Mul(x, sigmoid(x)), load(b + i, n)), to + i, n);
    }
  });
}

void SwigluBackwardRow(const ConstAnyMatrix& gate_up, const ConstAnyMatrix& dh,
                       const AnyMatrix& dgate_up, std::int64_t r) {
  with_type(dh.dtype, [&]<class T>(T) HWY_ATTR {
    const T* const a = static_cast<const T*>(gate_up.data) + r * gate_up.stride;
    const T* const b = a + dh.cols;
    const T* const g = static_cast<const T*>(dh.data) + r * dh.stride;
    T* const da = static_cast<T*>(dgate_up.data) + r * dgate_up.stride;
    T* const db = da + dh.cols;
    for (std::int64_t i = 0; i < dh.cols; i += lanes) {
      const std::int64_t n = dh.cols - i;
      const VF x = load(a + i, n);
      const VF gradient = load(g + i, n);
      const VF s = sigmoid(x);
      const VF silu = hn::Mul(x, s);
      // silu' = s + x·s·(1 - s)
      const VF slope = hn::MulAdd(silu, hn::Sub(set(1.0f), s), s);
      store(hn::Mul(hn::Mul(gradient, load(b + i, n)), slope), da + i, n);
      store(hn::Mul(gradient, silu), db + i, n);
    }
  });
}

// The 64 words of a block, in the order of its elements.
HWY_INLINE void dropout_block(std::uint64_t key, std::uint64_t stream, std::uint64_t block,
                              std::uint32_t* bits) {
  const q::U32 d;
  using VU = q::VU;
  alignas(64) std::uint32_t low[philox::block_counters];
  alignas(64) std::uint32_t high[philox::block_counters];
  for (std::size_t i = 0; i < philox::block_counters; ++i) {
    const std::uint64_t counter = block * philox::block_counters + i;
    low[i] = static_cast<std::uint32_t>(counter);
    high[i] = static_cast<std::uint32_t>(counter >> 32);
  }
  for (std::int64_t c = 0; c < philox::block_counters; c += lanes) {
    VU c0 = hn::LoadU(d, low + c);
    VU c1 = hn::LoadU(d, high + c);
    VU c2 = hn::Set(d, static_cast<std::uint32_t>(stream));
    VU c3 = hn::Set(d, static_cast<std::uint32_t>(stream >> 32));
    q::philox_words(key, c0, c1, c2, c3);
    hn::StoreU(c0, d, bits + c);
    hn::StoreU(c1, d, bits + philox::block_counters + c);
    hn::StoreU(c2, d, bits + 2 * philox::block_counters + c);
    hn::StoreU(c3, d, bits + 3 * philox::block_counters + c);
  }
}

// Elements [begin, end) of x; begin is a multiple of 64.
void DropoutRange(const Dropout& o, const AnyMatrix& x, std::int64_t begin, std::int64_t end) {
  with_type(x.dtype, [&]<class T>(T) HWY_ATTR {
    T* const elements = static_cast<T*>(x.data);
    const auto threshold = static_cast<std::uint32_t>(static_cast<double>(o.p) * 4294967296.0);
    const VF scale = set(1.0f / (1.0f - o.p));
    alignas(64) std::uint32_t bits[philox::block_elements];
    for (std::int64_t i = begin; i < end; i += philox::block_elements) {
      dropout_block(o.key, o.stream,
                    static_cast<std::uint64_t>((o.first + i) / philox::block_elements), bits);
      const std::int64_t count = std::min(philox::block_elements, end - i);
      for (std::int64_t j = 0; j < count; j += lanes) {
        const q::U32 d;
        const auto kept = hn::Not(hn::Lt(hn::LoadU(d, bits + j), hn::Set(d, threshold)));
        const VF v = hn::Mul(load(elements + i + j, count - j), scale);
        const VF masked = hn::IfThenElse(hn::RebindMask(F32(), kept), v, hn::Zero(F32()));
        store(masked, elements + i + j, count - j);
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
HWY_EXPORT(AddRow);
HWY_EXPORT(RopeRow);
HWY_EXPORT(SwigluRow);
HWY_EXPORT(SwigluBackwardRow);
HWY_EXPORT(DropoutRange);
HWY_EXPORT(AddRange);

namespace {

constexpr std::int64_t elements_of_task = 16384;

std::size_t elementwise_table(const ContextState& state) {
  return quant::cpu::table_index(state.features);
}

// f(row) for all rows, some thousand elements a task.
template <class F>
void for_rows(ContextState& state, std::int64_t rows, std::int64_t cols, F&& f) {
  const std::int64_t grain =
      std::max<std::int64_t>(1, elements_of_task / std::max<std::int64_t>(1, cols));
  state.threads.for_ranges(rows, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r)
      f(r);
  });
}

}  // namespace

void embed(ContextState& state, Tokens tokens, MatrixView<const float> table,
           MatrixView<const float> positions, AnyMatrix y) {
  const auto kernel = HWY_DISPATCH_TABLE(EmbedRow)[elementwise_table(state)];
  for_rows(state, y.rows, y.cols, [&](std::int64_t r) {
    const std::int64_t token = tokens[static_cast<std::size_t>(r)];
    kernel(table.data + token * table.stride,
           positions.data == nullptr ? nullptr
                                     : positions.data + r % positions.rows * positions.stride,
           y, r);
  });
}

void embed_backward(ContextState& state, Tokens tokens, ConstAnyMatrix dy, MatrixView<float> dtable,
                    MatrixView<float> dpositions, bool accumulate) {
  const auto kernel = HWY_DISPATCH_TABLE(AddRow)[elementwise_table(state)];
  if (!accumulate)
    for (const MatrixView<float>& m : {dtable, dpositions})
      state.threads.for_ranges(m.rows * m.cols, elements_of_task * 4,
                               [&](std::int64_t begin, std::int64_t end, int) {
                                 std::fill(m.data + begin, m.data + end, 0.0f);
                               });
  // Tokens repeat, so tasks are columns: each adds all rows in order.
  constexpr std::int64_t columns = 64;
  state.threads.for_ranges(dy.cols, columns, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = 0; r < dy.rows; ++r) {
      const std::int64_t token = tokens[static_cast<std::size_t>(r)];
      kernel(dy, r, begin, end - begin, dtable.data + token * dtable.stride + begin);
      if (dpositions.data != nullptr)
        kernel(dy, r, begin, end - begin,
               dpositions.data + r % dpositions.rows * dpositions.stride + begin);
    }
  });
}

void rope(ContextState& state, const Rope& args, AnyMatrix qkv, bool inverse) {
  const auto kernel = HWY_DISPATCH_TABLE(RopeRow)[elementwise_table(state)];
  for_rows(state, qkv.rows, qkv.cols, [&](std::int64_t r) { kernel(args, qkv, r, inverse); });
}

void swiglu(ContextState& state, ConstAnyMatrix gate_up, AnyMatrix h) {
  const auto kernel = HWY_DISPATCH_TABLE(SwigluRow)[elementwise_table(state)];
  for_rows(state, h.rows, h.cols, [&](std::int64_t r) { kernel(gate_up, h, r); });
}

void swiglu_backward(ContextState& state, ConstAnyMatrix gate_up, ConstAnyMatrix dh,
                     AnyMatrix dgate_up) {
  const auto kernel = HWY_DISPATCH_TABLE(SwigluBackwardRow)[elementwise_table(state)];
  for_rows(state, dh.rows, dh.cols, [&](std::int64_t r) { kernel(gate_up, dh, dgate_up, r); });
}

void dropout(ContextState& state, const Dropout& args, AnyMatrix x) {
  if (args.p <= 0) return;
  const auto kernel = HWY_DISPATCH_TABLE(DropoutRange)[elementwise_table(state)];
  state.threads.for_ranges(
      x.rows * x.cols, elements_of_task,
      [&](std::int64_t begin, std::int64_t end, int) { kernel(args, x, begin, end); });
}

void zero(ContextState& state, AnyMatrix x) {
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(x.dtype));
  state.threads.for_ranges(x.rows * x.cols * element, elements_of_task * 16,
                           [&](std::int64_t begin, std::int64_t end, int) {
                             std::memset(static_cast<std::byte*>(x.data) + begin, 0,
                                         static_cast<std::size_t>(end - begin));
                           });
}

void add(ContextState& state, ConstAnyMatrix x, AnyMatrix y) {
  const auto kernel = HWY_DISPATCH_TABLE(AddRange)[elementwise_table(state)];
  state.threads.for_ranges(
      x.rows * x.cols, elements_of_task,
      [&](std::int64_t begin, std::int64_t end, int) { kernel(x, y, begin, end); });
}

}  // namespace switchback::models
#endif
