// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: causal attention in tiles of queries and keys (Dao et al. 2022, arXiv
// 2205.14135), with products of its own: those of one tile are too small for the engines, whose
// threads would share each of them. Here a task is a head.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/cpu/attention.cpp"
#include "hwy/foreach_target.h"
//
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "models/cpu/vectors-inl.h"
#include "models/kernels.hpp"

#ifndef SWITCHBACK_MODELS_ATTENTION_ONCE
#define SWITCHBACK_MODELS_ATTENTION_ONCE
namespace switchback::models {
// Rows and columns of a tile. Both are multiples of what the products take at a time.
inline constexpr std::int64_t tile_queries = 48;
inline constexpr std::int64_t tile_keys = 64;
// Widths are padded to this many floats, the longest vector.
inline constexpr std::int64_t pad = 16;
inline constexpr std::int64_t padded(std::int64_t n) {
  return (n + pad - 1) / pad * pad;
}
inline constexpr std::int64_t whole_tiles(std::int64_t keys) {
  return (keys + tile_keys - 1) / tile_keys * tile_keys;
}
// Queries of one task of a forward.
inline constexpr std::int64_t task_queries = 5 * tile_queries;

// Adds the time since the last call to one of two sums.
class SplitTimer {
 public:
  explicit SplitTimer(AttentionTimes* times) : times_(times) {
    if (times_ != nullptr) last_ = Profile::Clock::now();
  }
  void products() {
    if (times_ != nullptr) times_->products_ns += lap();
  }
  void softmax() {
    if (times_ != nullptr) times_->softmax_ns += lap();
  }

 private:
  std::int64_t lap() {
    const auto now = Profile::Clock::now();
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count();
    last_ = now;
    return time;
  }
  AttentionTimes* times_;
  Profile::Clock::time_point last_;
};

// A head of one sequence: columns of the rows [first_row, first_row + length) of qkv.
struct Head {
  std::int64_t first_row, column, length, dim, width;
  float scale;
};

// Floats of scratch memory for each worker.
inline std::int64_t forward_floats(const AttentionShape& s) {
  const std::int64_t dim = padded(s.head_dim);
  const std::int64_t keys = whole_tiles(s.length);
  return 2 * keys * dim + tile_queries * (2 * dim + tile_keys + 2);
}
inline std::int64_t backward_floats(const AttentionShape& s) {
  const std::int64_t dim = padded(s.head_dim);
  const std::int64_t keys = whole_tiles(s.length);
  return 6 * keys * dim + 2 * tile_queries * tile_keys + keys + 2 * tile_keys * dim;
}
}  // namespace switchback::models
#endif

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// Rows of C that a register tile takes, with two vectors each.
inline constexpr int most_rows = HWY_TARGET == HWY_AVX3 ? 12 : 6;

// A product of small matrices: c[m,n] (+)= a[m,k] · b[k,n]. n is a multiple of `pad`.
struct Product {
  const float* a;
  std::int64_t a_row, a_col;  // strides: a is read as it lies or transposed
  const float* b;
  std::int64_t ldb;
  float* c;
  std::int64_t ldc;
};

// What of a product is needed, where a query sees only the keys up to itself: query r of the tile
// sees the keys below r + 1 + offset. Of other elements of c nothing is known; those of a and b
// that are left out are zero.
enum class Seen {
  columns,      // c[query, key]: columns
  depth,        // a[query, key]
  depth_below,  // a[query, key] transposed: the first queries do not see the keys of the last rows
};
struct Mask {
  Seen seen;
  std::int64_t offset;
};

template <int rows, int vectors>
void register_tile(const Product& p, std::int64_t row, std::int64_t col, std::int64_t first,
                   std::int64_t depth, bool add) {
  const F32 d;
  VF sums[rows][vectors];
  float* const c = p.c + row * p.ldc + col;
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < vectors; ++j)
      sums[i][j] = add ? hn::LoadU(d, c + i * p.ldc + j * lanes) : hn::Zero(d);
  const float* a = p.a + row * p.a_row + first * p.a_col;
  const float* b = p.b + first * p.ldb + col;
  for (std::int64_t k = first; k < depth; ++k, a += p.a_col, b += p.ldb) {
    VF right[vectors];
    for (int j = 0; j < vectors; ++j)
      right[j] = hn::LoadU(d, b + j * lanes);
    for (int i = 0; i < rows; ++i) {
      const VF left = hn::Set(d, a[i * p.a_row]);
      for (int j = 0; j < vectors; ++j)
        sums[i][j] = hn::MulAdd(left, right[j], sums[i][j]);
    }
  }
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < vectors; ++j)
      hn::StoreU(sums[i][j], d, c + i * p.ldc + j * lanes);
}

template <int vectors, int rows = most_rows>
HWY_INLINE void column_of_tiles(const Product& p, std::int64_t m, std::int64_t col,
                                std::int64_t depth, bool add, const Mask& mask,
                                std::int64_t row = 0) {
  for (; row + rows <= m; row += rows) {
    std::int64_t first = 0;
    std::int64_t end = depth;
    const std::int64_t keys = row + rows + mask.offset;  // that the last query of these sees
    if (mask.seen == Seen::columns && col >= keys) continue;
    if (mask.seen == Seen::depth) end = std::clamp<std::int64_t>(keys, 0, depth);
    if (mask.seen == Seen::depth_below)
      first = std::clamp<std::int64_t>(row - mask.offset, 0, depth);
    register_tile<rows, vectors>(p, row, col, first, end, add);
  }
  if constexpr (rows > 1) column_of_tiles<vectors, rows / 2>(p, m, col, depth, add, mask, row);
}

void multiply(const Product& p, std::int64_t m, std::int64_t n, std::int64_t depth, bool add,
              const Mask& mask) {
  std::int64_t col = 0;
  for (; col + 2 * lanes <= n; col += 2 * lanes)
    column_of_tiles<2>(p, m, col, depth, add, mask);
  for (; col < n; col += lanes)
    column_of_tiles<1>(p, m, col, depth, add, mask);
}

// to[rows, dim padded with zeros] = scale · from
template <class T>
void take_rows(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t dim, float scale,
               float* to) {
  const std::int64_t width = padded(dim);
  for (std::int64_t r = 0; r < rows; ++r, from += stride, to += width)
    for (std::int64_t i = 0; i < width; i += lanes)
      hn::StoreU(i < dim ? hn::Mul(load(from + i, dim - i), set(scale)) : hn::Zero(F32()), F32(),
                 to + i);
}
// The transpose of from[rows, dim], tile by tile: to[tile][dim padded][tile_keys]. A product that
// reads a tile finds its lines one behind the other. Columns from rows on to a multiple of `pad`
// are zero.
template <class T>
void take_transposed(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t dim,
                     float* to) {
  const std::int64_t end = padded(rows);
  for (std::int64_t r = 0; r < end; r += 4) {
    float* const lines = to + r / tile_keys * tile_keys * padded(dim) + r % tile_keys;
    const T* const first = from + r * stride;
    std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (std::is_same_v<T, float>) {
      const hn::FixedTag<float, 4> d;
      for (; r + 4 <= rows && i + 4 <= dim; i += 4) {
        const auto v0 = hn::LoadU(d, first + i);
        const auto v1 = hn::LoadU(d, first + stride + i);
        const auto v2 = hn::LoadU(d, first + 2 * stride + i);
        const auto v3 = hn::LoadU(d, first + 3 * stride + i);
        const auto even_low = hn::InterleaveLower(d, v0, v2);
        const auto even_high = hn::InterleaveUpper(d, v0, v2);
        const auto odd_low = hn::InterleaveLower(d, v1, v3);
        const auto odd_high = hn::InterleaveUpper(d, v1, v3);
        float* const line = lines + i * tile_keys;
        hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, line);
        hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, line + tile_keys);
        hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, line + 2 * tile_keys);
        hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, line + 3 * tile_keys);
      }
    }
#endif
    for (; i < dim; ++i)
      for (std::int64_t j = 0; j < 4; ++j)
        lines[i * tile_keys + j] = r + j < rows ? static_cast<float>(first[j * stride + i]) : 0.0f;
  }
}
template <class T>
void put_rows(const float* from, std::int64_t rows, std::int64_t dim, float scale, T* to,
              std::int64_t stride) {
  const std::int64_t width = padded(dim);
  for (std::int64_t r = 0; r < rows; ++r, from += width, to += stride)
    for (std::int64_t i = 0; i < dim; i += lanes)
      store(hn::Mul(hn::LoadU(F32(), from + i), set(scale)), to + i, dim - i);
}

// The weights of a row of scores: p[j] = exp(scores[j] - shift) for j < count, then zeros up to n.
// Returns their sum.
HWY_INLINE float weights_of_row(float* scores, std::int64_t count, std::int64_t n, float shift) {
  const F32 d;
  VF sums = hn::Zero(d);
  std::int64_t j = 0;
  // Up to the end of the vector in which the last one is.
  for (; j + (together - 1) * lanes < count; j += together * lanes) {
    VF e[together];
    for (int i = 0; i < together; ++i)
      e[i] = hn::Sub(hn::LoadU(d, scores + j + i * lanes), set(shift));
    exponentials<together>(e);
    for (int i = 0; i < together; ++i) {
      if (const std::int64_t left = count - j - i * lanes; left < lanes)
        e[i] = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(left)), e[i]);
      hn::StoreU(e[i], d, scores + j + i * lanes);
      sums = hn::Add(sums, e[i]);
    }
  }
  for (; j < count; j += lanes) {
    VF e = hn::Sub(hn::LoadU(d, scores + j), set(shift));
    exponentials<1>(&e);
    if (count - j < lanes)
      e = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count - j)), e);
    hn::StoreU(e, d, scores + j);
    sums = hn::Add(sums, e);
  }
  for (; j < n; j += lanes)
    hn::StoreU(hn::Zero(d), d, scores + j);
  return sum_of_lanes(sums);
}

HWY_INLINE float max_of_row(const float* scores, std::int64_t count) {
  const F32 d;
  const VF lowest = set(-std::numeric_limits<float>::infinity());
  VF max = lowest;
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes)
    max = hn::Max(max, hn::LoadU(d, scores + j));
  if (j < count)
    max = hn::Max(max, hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(count - j)),
                                      hn::LoadU(d, scores + j), lowest));
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

// Queries [begin, end) of a head.
template <class T>
void forward_head(const Head& h, const ConstAnyMatrix& qkv, const AnyMatrix& out, float* logsumexp,
                  std::int64_t begin, std::int64_t end, float* scratch, AttentionTimes* times) {
  const F32 d;
  const std::int64_t dim = padded(h.dim);
  const std::int64_t keys = whole_tiles(end);
  const T* const rows = static_cast<const T*>(qkv.data) + h.first_row * qkv.stride + h.column;
  float* const kt = scratch;            // tiles of [dim, tile_keys]
  float* const v = kt + keys * dim;     // [keys, dim]
  float* const query = v + keys * dim;  // [tile_queries, dim]
  float* const o = query + tile_queries * dim;
  float* const scores = o + tile_queries * dim;
  float* const max = scores + tile_queries * tile_keys;
  float* const sum = max + tile_queries;
  SplitTimer timer(times);
  take_transposed(rows + h.width, qkv.stride, end, h.dim, kt);
  take_rows(rows + 2 * h.width, qkv.stride, end, h.dim, 1.0f, v);
  for (std::int64_t first = begin; first < end; first += tile_queries) {
    const std::int64_t m = std::min(tile_queries, end - first);
    take_rows(rows + first * qkv.stride, qkv.stride, m, h.dim, h.scale, query);
    std::fill(max, max + m, -std::numeric_limits<float>::infinity());
    std::fill(sum, sum + m, 0.0f);
    for (std::int64_t key = 0; key < first + m; key += tile_keys) {
      const std::int64_t visible = std::min(tile_keys, first + m - key);
      const std::int64_t n = padded(visible);
      const std::int64_t offset = first - key;
      multiply({query, dim, 1, kt + key * dim, tile_keys, scores, tile_keys}, m, n, h.dim, false,
               {Seen::columns, offset});
      timer.products();
      for (std::int64_t r = 0; r < m; ++r) {
        // A query sees itself and what is before it.
        const std::int64_t count = std::clamp<std::int64_t>(first + r + 1 - key, 0, visible);
        float* const row = scores + r * tile_keys;
        const float row_max = std::max(max[r], max_of_row(row, count));
        const float row_sum = weights_of_row(row, count, n, row_max);
        if (row_max != max[r]) {
          const float factor = std::exp(max[r] - row_max);
          sum[r] *= factor;
          if (key > 0)
            for (std::int64_t i = 0; i < dim; i += lanes)
              hn::StoreU(hn::Mul(hn::LoadU(d, o + r * dim + i), set(factor)), d, o + r * dim + i);
          max[r] = row_max;
        }
        sum[r] += row_sum;
      }
      timer.softmax();
      multiply({scores, tile_keys, 1, v + key * dim, dim, o, dim}, m, dim, visible, key > 0,
               {Seen::depth, offset});
    }
    for (std::int64_t r = 0; r < m; ++r) {
      logsumexp[first + r] = max[r] + std::log(sum[r]);
      T* const to = static_cast<T*>(out.data) + (h.first_row + first + r) * out.stride + h.column;
      put_rows(o + r * dim, 1, h.dim, 1.0f / sum[r], to, out.stride);
    }
    timer.products();
  }
}

void ForwardHead(const Head& h, const ConstAnyMatrix& qkv, const AnyMatrix& out, float* logsumexp,
                 std::int64_t begin, std::int64_t end, float* scratch, AttentionTimes* times) {
  with_type(qkv.dtype, [&]<class T>(T) HWY_ATTR {
    forward_head<T>(h, qkv, out, logsumexp, begin, end, scratch, times);
  });
}

template <class T>
void backward_head(const Head& h, const ConstAnyMatrix& qkv, const ConstAnyMatrix& out,
                   const float* logsumexp, const ConstAnyMatrix& dout, const AnyMatrix& dqkv,
                   float* scratch, AttentionTimes* times) {
  const F32 d;
  const std::int64_t dim = padded(h.dim);
  const std::int64_t keys = whole_tiles(h.length);
  const T* const rows = static_cast<const T*>(qkv.data) + h.first_row * qkv.stride + h.column;
  const T* const o = static_cast<const T*>(out.data) + h.first_row * out.stride + h.column;
  const T* const g = static_cast<const T*>(dout.data) + h.first_row * dout.stride + h.column;
  T* const d_rows = static_cast<T*>(dqkv.data) + h.first_row * dqkv.stride + h.column;
  float* const query = scratch;  // scaled
  float* const k = query + keys * dim;
  float* const kt = k + keys * dim;
  float* const vt = kt + keys * dim;
  float* const gradient = vt + keys * dim;
  float* const dq = gradient + keys * dim;
  float* const dot = dq + keys * dim;  // out · dout of each row
  float* const weights = dot + keys;
  float* const dweights = weights + tile_queries * tile_keys;
  float* const dk = dweights + tile_queries * tile_keys;
  float* const dv = dk + tile_keys * dim;
  SplitTimer timer(times);
  take_rows(rows, qkv.stride, h.length, h.dim, h.scale, query);
  take_rows(rows + h.width, qkv.stride, h.length, h.dim, 1.0f, k);
  take_transposed(rows + h.width, qkv.stride, h.length, h.dim, kt);
  take_transposed(rows + 2 * h.width, qkv.stride, h.length, h.dim, vt);
  take_rows(g, dout.stride, h.length, h.dim, 1.0f, gradient);
  std::fill(dq, dq + h.length * dim, 0.0f);
  for (std::int64_t r = 0; r < h.length; ++r) {
    VF sums = hn::Zero(d);
    for (std::int64_t i = 0; i < h.dim; i += lanes)
      sums = hn::MulAdd(load(o + r * out.stride + i, h.dim - i),
                        load(g + r * dout.stride + i, h.dim - i), sums);
    dot[r] = sum_of_lanes(sums);
  }
  for (std::int64_t key = 0; key < h.length; key += tile_keys) {
    const std::int64_t tile = std::min(tile_keys, h.length - key);
    std::fill(dk, dk + tile_keys * dim, 0.0f);
    std::fill(dv, dv + tile_keys * dim, 0.0f);
    for (std::int64_t first = key; first < h.length; first += tile_queries) {
      const std::int64_t m = std::min(tile_queries, h.length - first);
      const std::int64_t visible = std::min(tile, first + m - key);
      const std::int64_t n = padded(visible);
      const std::int64_t offset = first - key;
      multiply({query + first * dim, dim, 1, kt + key * dim, tile_keys, weights, tile_keys}, m, n,
               h.dim, false, {Seen::columns, offset});
      multiply({gradient + first * dim, dim, 1, vt + key * dim, tile_keys, dweights, tile_keys}, m,
               n, h.dim, false, {Seen::columns, offset});
      timer.products();
      for (std::int64_t r = 0; r < m; ++r) {
        const std::int64_t count = std::clamp<std::int64_t>(first + r + 1 - key, 0, visible);
        float* const p = weights + r * tile_keys;
        float* const dp = dweights + r * tile_keys;
        weights_of_row(p, count, n, logsumexp[first + r]);
        const VF shift = set(dot[first + r]);
        std::int64_t j = 0;
        for (; j < count; j += lanes)
          hn::StoreU(hn::Mul(hn::LoadU(d, p + j), hn::Sub(hn::LoadU(d, dp + j), shift)), d, dp + j);
        for (; j < n; j += lanes)
          hn::StoreU(hn::Zero(d), d, dp + j);
      }
      timer.softmax();
      multiply({weights, 1, tile_keys, gradient + first * dim, dim, dv, dim}, visible, dim, m, true,
               {Seen::depth_below, offset});
      multiply({dweights, 1, tile_keys, query + first * dim, dim, dk, dim}, visible, dim, m, true,
               {Seen::depth_below, offset});
      multiply({dweights, tile_keys, 1, k + key * dim, dim, dq + first * dim, dim}, m, dim, visible,
               true, {Seen::depth, offset});
    }
    // Queries were scaled, so dk has its scale.
    put_rows(dk, tile, h.dim, 1.0f, d_rows + key * dqkv.stride + h.width, dqkv.stride);
    put_rows(dv, tile, h.dim, 1.0f, d_rows + key * dqkv.stride + 2 * h.width, dqkv.stride);
  }
  put_rows(dq, h.length, h.dim, h.scale, d_rows, dqkv.stride);
  timer.products();
}

void BackwardHead(const Head& h, const ConstAnyMatrix& qkv, const ConstAnyMatrix& out,
                  const float* logsumexp, const ConstAnyMatrix& dout, const AnyMatrix& dqkv,
                  float* scratch, AttentionTimes* times) {
  with_type(qkv.dtype, [&]<class T>(T) HWY_ATTR {
    backward_head<T>(h, qkv, out, logsumexp, dout, dqkv, scratch, times);
  });
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::models {

HWY_EXPORT(ForwardHead);
HWY_EXPORT(BackwardHead);

namespace {

Head head_of(const AttentionShape& s, std::int64_t index) {
  return {.first_row = index / s.heads * s.length,
          .column = index % s.heads * s.head_dim,
          .length = s.length,
          .dim = s.head_dim,
          .width = s.width(),
          .scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim))};
}

// Scratch memory of each worker, apart by a cache line or more.
struct WorkerScratch {
  float* data;
  std::int64_t floats;
  WorkerScratch(core::Workspace::Frame& frame, const ContextState& state, std::int64_t floats_)
      : floats(padded(floats_)) {
    data = frame.take<float>(floats * state.threads.count());
  }
  [[nodiscard]] float* of(int worker) const { return data + worker * floats; }
};

}  // namespace

void attention(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv, AnyMatrix out,
               std::span<float> logsumexp, AttentionTimes* times) {
  const auto kernel = HWY_DISPATCH_TABLE(ForwardHead)[quant::cpu::table_index(state.features)];
  core::Workspace::Frame frame(state.workspace);
  const WorkerScratch scratch(frame, state, forward_floats(shape));
  const std::int64_t parts = (shape.length + task_queries - 1) / task_queries;
  // The last queries of a sequence, which see most, first.
  state.threads.for_each(shape.batch * shape.heads * parts, [&](std::int64_t task, int worker) {
    const std::int64_t head = task % (shape.batch * shape.heads);
    const std::int64_t begin = (parts - 1 - task / (shape.batch * shape.heads)) * task_queries;
    kernel(head_of(shape, head), qkv, out, logsumexp.data() + head * shape.length, begin,
           std::min(shape.length, begin + task_queries), scratch.of(worker), times);
  });
}

void attention_backward(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv,
                        ConstAnyMatrix out, std::span<const float> logsumexp, ConstAnyMatrix dout,
                        AnyMatrix dqkv, AttentionTimes* times) {
  const auto kernel = HWY_DISPATCH_TABLE(BackwardHead)[quant::cpu::table_index(state.features)];
  core::Workspace::Frame frame(state.workspace);
  const WorkerScratch scratch(frame, state, backward_floats(shape));
  state.threads.for_each(shape.batch * shape.heads, [&](std::int64_t head, int worker) {
    kernel(head_of(shape, head), qkv, out, logsumexp.data() + head * shape.length, dout, dqkv,
           scratch.of(worker), times);
  });
}

}  // namespace switchback::models
#endif
