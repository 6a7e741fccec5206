// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: causal attention in tiles of queries and keys (Dao et al. 2022, arXiv
// 2205.14135). It multiplies matrices itself, because products of one tile are too small for the
// GEMM engines, whose threads would share each product. Here each thread works on another head, or
// on another part of a head's queries.
//
// The scores of a tile are stored as [key, query]: a vector holds scores of several queries for one
// key, so maxima and sums over keys need no sums over lanes. Weights that multiply rows of V are
// read as scalars, so their layout does not matter. Scores are in units of log2(e), so that an
// attention weight is a power of two.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "studies/models/cpu/attention.cpp"
#include "hwy/foreach_target.h"
//
#include <chrono>
#include <cmath>
#include <limits>
#include <type_traits>

#include "hwy/cache_control.h"
#include "studies/models/cpu/ahead.hpp"
#include "studies/models/cpu/attention_bf16.hpp"
#include "studies/models/cpu/engine.hpp"
#include "studies/models/cpu/vectors-inl.h"

#ifndef SWITCHBACK_MODELS_ATTENTION_ONCE
#define SWITCHBACK_MODELS_ATTENTION_ONCE
namespace switchback::models {
// The number of queries and of keys in a tile; a multiple of `pad`.
inline constexpr std::int64_t tile = 64;
// Head widths and numbers of queries are padded to `pad` floats, the longest vector. Numbers of
// keys are padded to `pad_keys`, a multiple of the rows that a product processes together.
inline constexpr std::int64_t pad = 16;
inline constexpr std::int64_t pad_keys = 8;
inline constexpr std::int64_t padded(std::int64_t n, std::int64_t to = pad) {
  return (n + to - 1) / to * to;
}
static_assert(task_queries % tile == 0);

inline constexpr float log2_of_e = 1.44269504f;
inline constexpr float ln_of_2 = 0.693147181f;

// A stopwatch for the two parts of attention: each call adds the time since the last call to the
// sum of products or to that of the softmax.
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

// The scratch memory of each thread, in floats.
inline std::int64_t forward_floats(const AttentionShape& s) {
  const std::int64_t dim = padded(s.head_dim);
  return 2 * padded(s.length, tile) * dim + tile * (3 * dim + tile + 3);
}
inline std::int64_t backward_floats(const AttentionShape& s) {
  const std::int64_t dim = padded(s.head_dim);
  return 4 * padded(s.length, tile) * dim + tile * (5 * dim + 2 * tile + 2);
}
}  // namespace switchback::models
#endif

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

// The register tile of a product: the largest number of vectors in its rows of C, and the number of
// rows for a given number of vectors.
inline constexpr int most_vectors = HWY_TARGET == HWY_AVX3 ? 4 : 2;
inline constexpr int most_rows(int vectors) {
  if (HWY_TARGET == HWY_AVX3) return vectors == 4 ? 6 : 8;
  return 6;
}

// What a product does with the old contents of its result C.
enum class Start {
  nothing,  // overwritten
  sums,     // the product is added to C
  scaled,   // rows of C are multiplied by `factor`; then the product is added
};

// A product of small matrices, c[m,n] = or += a[m,k] · b[k,n]. n is a multiple of `pad`.
struct Product {
  const float* a;
  std::int64_t lda;
  const float* b;
  std::int64_t ldb;
  float* c;
  std::int64_t ldc;
  Ahead* ahead;
  Start start = Start::nothing;
  const float* factor = nullptr;
};

// Which part of a product is needed, because attention is causal: query q of the tile sees the keys
// up to q + offset. Other elements of c are left undefined; elements of a that are skipped are
// zero.
enum class Seen {
  columns,    // c is [key, query]: its columns are limited
  depth,      // a is [query, key], stored as [key, query]: the depth is limited
  depth_from  // a is [key, query]: the depth begins later
};

#define SWITCHBACK_EACH(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); ++i)

template <bool transposed, int rows, int vectors>
HWY_NOINLINE void register_tile(const Product& p, std::int64_t row, std::int64_t col,
                                std::int64_t begin, std::int64_t end) {
  const F32 d;
  VF sums[rows][vectors];
  SWITCHBACK_EACH(i, rows)
  SWITCHBACK_EACH(j, vectors) {
    sums[i][j] = hn::Zero(d);
  }
  const std::int64_t lda = p.lda;
  const std::int64_t ldb = p.ldb;
  const float* a = transposed ? p.a + begin * lda + row : p.a + row * lda + begin;
  const float* b = p.b + begin * ldb + col;
  const auto step = [&]() HWY_ATTR {
    VF right[vectors];
    SWITCHBACK_EACH(j, vectors) {
      right[j] = hn::LoadU(d, b + j * lanes);
    }
    SWITCHBACK_EACH(i, rows) {
      const VF left = set(transposed ? a[i] : a[i * lda]);
      SWITCHBACK_EACH(j, vectors) {
        sums[i][j] = hn::MulAdd(left, right[j], sums[i][j]);
      }
    }
    a += transposed ? lda : 1;
    b += ldb;
  };
  constexpr std::int64_t steps_of_line = 4;
  const std::byte* line = p.ahead->line();
  const std::int64_t stride_bytes = p.ahead->stride_bytes();
  std::int64_t k = begin;
  for (; k + steps_of_line <= end; k += steps_of_line) {
    __builtin_prefetch(line, 0, 2);
    line += stride_bytes;
    SWITCHBACK_EACH(i, steps_of_line) {
      step();
    }
  }
  p.ahead->asked((end - begin) / steps_of_line);
  for (; k < end; ++k)
    step();
  const std::int64_t ldc = p.ldc;
  float* c = p.c + row * ldc + col;
  if (p.start == Start::nothing) {
    SWITCHBACK_EACH(i, rows) {
      SWITCHBACK_EACH(j, vectors) {
        hn::StoreU(sums[i][j], d, c + j * lanes);
      }
      c += ldc;
    }
    return;
  }
  const float* const factor = p.start == Start::scaled ? p.factor + row : nullptr;
  SWITCHBACK_EACH(i, rows) {
    const VF times = set(factor == nullptr ? 1.0f : factor[i]);
    SWITCHBACK_EACH(j, vectors) {
      hn::StoreU(hn::MulAdd(hn::LoadU(d, c + j * lanes), times, sums[i][j]), d, c + j * lanes);
    }
    c += ldc;
  }
}
#undef SWITCHBACK_EACH

// Computes rows [row, m) of the product, for `vectors` vectors of columns from `col` on, one
// register tile after another.
template <Seen seen, int vectors, int rows = most_rows(vectors)>
HWY_INLINE void rows_of_tiles(const Product& p, std::int64_t row, std::int64_t m, std::int64_t col,
                              std::int64_t depth, std::int64_t offset) {
  for (; row + rows <= m; row += rows) {
    std::int64_t begin = 0;
    std::int64_t end = depth;
    if (seen == Seen::depth) end = std::clamp<std::int64_t>(row + rows + offset, 0, depth);
    if (seen == Seen::depth_from) begin = std::clamp<std::int64_t>(row - offset, 0, depth);
    register_tile<seen == Seen::depth, rows, vectors>(p, row, col, begin, end);
  }
  if constexpr (rows > 1)
    rows_of_tiles<seen, vectors, (rows > 4 ? 4 : rows / 2)>(p, row, m, col, depth, offset);
}

// Computes rows [row, m) of the product, for `vectors` vectors of columns, as far as queries see
// keys: the first vector of queries needs fewer rows (keys) than the last one.
template <Seen seen, int vectors>
HWY_INLINE void column_of_tiles(const Product& p, std::int64_t row, std::int64_t m,
                                std::int64_t col, std::int64_t depth, std::int64_t offset) {
  const std::int64_t end =
      seen == Seen::columns
          ? std::clamp<std::int64_t>(padded(col + lanes + offset, pad_keys), row, m)
          : m;
  rows_of_tiles<seen, vectors>(p, row, end, col, depth, offset);
  if constexpr (vectors > 1)
    if (end < m) column_of_tiles<seen, vectors - 1>(p, end, m, col + lanes, depth, offset);
}

template <Seen seen, int vectors = most_vectors>
HWY_INLINE void multiply(const Product& p, std::int64_t m, std::int64_t n, std::int64_t depth,
                         std::int64_t offset, std::int64_t col = 0) {
  for (; col + vectors * lanes <= n; col += vectors * lanes)
    column_of_tiles<seen, vectors>(p, 0, m, col, depth, offset);
  if constexpr (vectors > 1) multiply<seen, vectors / 2>(p, m, n, depth, offset, col);
}

// Converts a tile to f32: to[count, padded dim] = scale · from[rows, dim], padded with zeros to
// `count` rows and to a multiple of `pad` columns.
template <class T>
void take_rows(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t dim, float scale,
               std::int64_t count, float* to) {
  const std::int64_t width = padded(dim);
  for (std::int64_t r = 0; r < rows; ++r, from += stride, to += width)
    for (std::int64_t i = 0; i < width; i += lanes)
      hn::StoreU(i < dim ? hn::Mul(load(from + i, dim - i), set(scale)) : hn::Zero(F32()), F32(),
                 to + i);
  std::fill(to, to + (count - rows) * width, 0.0f);
}

#if HWY_TARGET != HWY_SCALAR
// Loads four floats from every fourth row, one group of four into each 128 bits of the vector.
template <class D>
HWY_INLINE hn::Vec<D> fours(D d, const float* from, std::int64_t stride) {
  constexpr std::int64_t size = static_cast<std::int64_t>(hn::MaxLanes(D()));
  if constexpr (size == 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, fours(half, from + size / 2 * stride, stride), fours(half, from, stride));
  }
}
#endif
// Transposes four columns of `lanes` rows into four rows of `to`.
HWY_INLINE void transpose_block(const float* from, std::int64_t stride, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t i = 0; i < 4; ++i)
    to[i * tile] = from[i];
  static_cast<void>(stride);
#else
  const F32 d;
  const VF v0 = fours(d, from, stride);
  const VF v1 = fours(d, from + stride, stride);
  const VF v2 = fours(d, from + 2 * stride, stride);
  const VF v3 = fours(d, from + 3 * stride, stride);
  const VF even_low = hn::InterleaveLower(d, v0, v2);
  const VF even_high = hn::InterleaveUpper(d, v0, v2);
  const VF odd_low = hn::InterleaveLower(d, v1, v3);
  const VF odd_high = hn::InterleaveUpper(d, v1, v3);
  hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, to);
  hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, to + tile);
  hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, to + 2 * tile);
  hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, to + 3 * tile);
#endif
}
// Transposes: to[dim, tile] = from[count, dim]ᵀ. `count` and `dim` are multiples of `pad`.
void transpose(const float* from, std::int64_t count, std::int64_t dim, float* to) {
  for (std::int64_t r = 0; r < count; r += lanes)
    for (std::int64_t i = 0; i < dim; i += 4)
      transpose_block(from + r * dim + i, dim, to + i * tile + r);
}

// A tile of keys or values [tile, dim] as the left factor of a product, which reads each element
// once. A full tile of f32 is read where it is; other tiles are converted or padded first.
struct Left {
  const float* data;
  std::int64_t stride;
};
template <class T>
HWY_INLINE bool is_left(std::int64_t first, std::int64_t length) {
  return std::is_same_v<T, float> && first + tile <= length;
}
template <class T>
HWY_INLINE Left left_of(const T* from, std::int64_t stride, bool as_it_lies, const float* taken,
                        std::int64_t dim) {
  if constexpr (std::is_same_v<T, float>)
    if (as_it_lies) return {from, stride};
  return {taken, dim};
}

// How rows of a result are stored. If the result is larger than a core's second-level cache, stores
// bypass the caches: its rows are not contiguous, so each line would otherwise be read first.
struct Results {
  std::int64_t stride;
  bool streams;
  explicit Results(const AnyMatrix& m)
      : stride(m.stride),
        streams(m.rows * m.cols * static_cast<std::int64_t>(dtype_size_bytes(m.dtype)) >
                l2_bytes()) {}
};
// Stores scale · from[rows, padded dim] in the rows of a result, without the padding.
template <class T>
void put_rows(const float* from, std::int64_t rows, std::int64_t dim, float scale, T* to,
              const Results& results) {
  const std::int64_t width = padded(dim);
  const auto value = [&](std::int64_t i)
                         HWY_ATTR { return hn::Mul(hn::LoadU(F32(), from + i), set(scale)); };
  for (std::int64_t r = 0; r < rows; ++r, from += width, to += results.stride) {
    std::int64_t i = 0;
    if constexpr (std::is_same_v<T, float>)
      if (results.streams && reinterpret_cast<std::uintptr_t>(to) % sizeof(VF) == 0)
        for (; i + lanes <= dim; i += lanes)
          hn::Stream(q::canonical_nan(value(i)), F32(), to + i);
    for (; i < dim; i += lanes)
      store(value(i), to + i, dim - i);
  }
}

// Which keys of a tile a vector of queries sees: all its queries see keys below `all`, and some see
// keys below `some`. Weights of keys from `some` to `end` become zero.
struct Sight {
  std::int64_t all, some, end, hidden_from;
  HWY_INLINE Sight(std::int64_t query, std::int64_t keys, std::int64_t offset)
      : all(std::clamp<std::int64_t>(query + offset + 1, 0, keys)),
        some(std::clamp<std::int64_t>(query + lanes + offset, 0, keys)),
        end(padded(keys, pad_keys)),
        hidden_from(query + offset) {}
  // Replaces v by `otherwise` in the lanes of queries that do not see the key.
  [[nodiscard]] HWY_INLINE VF of(std::int64_t key, VF v, VF otherwise) const {
    return hn::IfThenElse(hn::FirstN(F32(), static_cast<std::size_t>(key - hidden_from)), otherwise,
                          v);
  }
};

// Online softmax for a vector of queries: replaces the scores [key, query] of a tile by the weights
// 2^(score - max). `max` is the largest score so far, and `sum` the sum of all weights so far.
// Results of earlier tiles must be multiplied by `factor`, because `max` may have grown.
HWY_INLINE void weights_of_queries(float* scores, const Sight& seen, float* max, float* sum,
                                   float* factor) {
  const F32 d;
  const VF lowest = set(-std::numeric_limits<float>::infinity());
  const VF before = hn::LoadU(d, max);
  VF most[together] = {before, before, before, before};
  std::int64_t key = 0;
  for (; key + together <= seen.all; key += together)
    for (int i = 0; i < together; ++i)
      most[i] = hn::Max(most[i], hn::LoadU(d, scores + (key + i) * tile));
  for (; key < seen.all; ++key)
    most[0] = hn::Max(most[0], hn::LoadU(d, scores + key * tile));
  for (; key < seen.some; ++key) {
    const VF score = seen.of(key, hn::LoadU(d, scores + key * tile), lowest);
    hn::StoreU(score, d, scores + key * tile);
    most[0] = hn::Max(most[0], score);
  }
  const VF shift = hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]));
  VF sums[together] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (key = 0; key + together <= seen.some; key += together) {
    VF e[together];
    for (int i = 0; i < together; ++i)
      e[i] = hn::Sub(hn::LoadU(d, scores + (key + i) * tile), shift);
    powers_of_two<together>(e);
    for (int i = 0; i < together; ++i) {
      hn::StoreU(e[i], d, scores + (key + i) * tile);
      sums[i] = hn::Add(sums[i], e[i]);
    }
  }
  for (; key < seen.some; ++key) {
    VF e = hn::Sub(hn::LoadU(d, scores + key * tile), shift);
    powers_of_two<1>(&e);
    hn::StoreU(e, d, scores + key * tile);
    sums[0] = hn::Add(sums[0], e);
  }
  for (; key < seen.end; ++key)
    hn::StoreU(hn::Zero(d), d, scores + key * tile);
  VF change = hn::Sub(before, shift);
  powers_of_two<1>(&change);
  hn::StoreU(change, d, factor);
  hn::StoreU(shift, d, max);
  const VF more = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  hn::StoreU(hn::MulAdd(hn::LoadU(d, sum), change, more), d, sum);
}

// Attention of the queries of one task. `next` is the task that this thread probably runs
// afterwards, whose operands are prefetched.
template <class T>
void forward_task(const Task& task, const Task& next, const ConstAnyMatrix& qkv,
                  const AnyMatrix& out, float* logsumexp, float* scratch, AttentionTimes* times) {
  const auto& [h, begin, end] = task;
  const std::int64_t dim = padded(h.dim);
  const std::int64_t keys = padded(end, tile);
  const T* const rows = static_cast<const T*>(qkv.data) + h.first_row * qkv.stride + h.column;
  float* const k = scratch;                 // [keys, dim]
  float* const v = k + keys * dim;          // [keys, dim]
  float* const taken = v + keys * dim;      // [tile, dim]
  float* const query = taken + tile * dim;  // [dim, tile]
  float* const o = query + tile * dim;      // [tile, dim]
  float* const scores = o + tile * dim;     // [tile, tile]
  float* const max = scores + tile * tile;
  float* const sum = max + tile;
  float* const factor = sum + tile;
  const Results results(out);
  SplitTimer timer(times);
  Ahead ahead(h.dim * static_cast<std::int64_t>(sizeof(T)));
  for (const std::int64_t part : {1, 2, 0})
    ahead.add(qkv, next.head.first_row + (part == 0 ? next.begin : 0),
              next.head.first_row + next.end, next.head.column + part * h.width);
  std::int64_t taken_keys = 0;
  for (std::int64_t first = begin; first < end; first += tile) {
    const std::int64_t m = std::min(tile, end - first);
    const std::int64_t n = padded(m);
    take_rows(rows + first * qkv.stride, qkv.stride, m, h.dim, h.scale * log2_of_e, n, taken);
    transpose(taken, n, dim, query);
    for (; taken_keys < first + m; taken_keys += tile) {
      const T* const from = rows + taken_keys * qkv.stride + h.width;
      const std::int64_t count = std::min(tile, end - taken_keys);
      if (!is_left<T>(taken_keys, h.length))
        take_rows(from, qkv.stride, count, h.dim, 1.0f, tile, k + taken_keys * dim);
      take_rows(from + h.width, qkv.stride, count, h.dim, 1.0f, tile, v + taken_keys * dim);
    }
    std::fill(max, max + n, -std::numeric_limits<float>::infinity());
    std::fill(sum, sum + n, 0.0f);
    for (std::int64_t key = 0; key < first + m; key += tile) {
      const std::int64_t visible = std::min(tile, first + m - key);
      const std::int64_t offset = first - key;
      const Left left = left_of(rows + key * qkv.stride + h.width, qkv.stride,
                                is_left<T>(key, h.length), k + key * dim, dim);
      multiply<Seen::columns>({left.data, left.stride, query, tile, scores, tile, &ahead},
                              padded(visible, pad_keys), n, h.dim, offset);
      timer.products();
      for (std::int64_t q = 0; q < n; q += lanes)
        weights_of_queries(scores + q, {q, visible, offset}, max + q, sum + q, factor + q);
      timer.softmax();
      multiply<Seen::depth>({scores, tile, v + key * dim, dim, o, dim, &ahead,
                             key > 0 ? Start::scaled : Start::nothing, factor},
                            padded(m, pad_keys), dim, visible, offset);
    }
    for (std::int64_t r = 0; r < m; ++r) {
      logsumexp[first + r] = ln_of_2 * max[r] + std::log(sum[r]);
      T* const to = static_cast<T*>(out.data) + (h.first_row + first + r) * out.stride + h.column;
      put_rows(o + r * dim, 1, h.dim, 1.0f / sum[r], to, results);
    }
    timer.products();
  }
  if (results.streams) hwy::FlushStream();
}

void ForwardTask(const Task& task, const Task& next, const ConstAnyMatrix& qkv,
                 const AnyMatrix& out, float* logsumexp, float* scratch, AttentionTimes* times) {
  with_type(qkv.dtype, [&]<class T>(T) HWY_ATTR {
    forward_task<T>(task, next, qkv, out, logsumexp, scratch, times);
  });
}

// For `count` keys and a vector of queries: replaces scores [key, query] by the weights 2^(score -
// shift), and gradients of weights by gradients of scores, weight · (gradient - dot).
template <int count>
HWY_INLINE void gradients_of_keys(float* scores, float* gradients, VF shift, VF dot) {
  const F32 d;
  VF p[count];
  for (int i = 0; i < count; ++i)
    p[i] = hn::Sub(hn::LoadU(d, scores + i * tile), shift);
  powers_of_two<count>(p);
  for (int i = 0; i < count; ++i) {
    const VF g = hn::Sub(hn::LoadU(d, gradients + i * tile), dot);
    hn::StoreU(p[i], d, scores + i * tile);
    hn::StoreU(hn::Mul(p[i], g), d, gradients + i * tile);
  }
}
HWY_INLINE void gradients_of_queries(float* scores, float* gradients, const Sight& seen,
                                     const float* shifts, const float* dots) {
  const F32 d;
  const VF shift = hn::LoadU(d, shifts);
  const VF dot = hn::LoadU(d, dots);
  std::int64_t key = 0;
  for (; key + together <= seen.all; key += together)
    gradients_of_keys<together>(scores + key * tile, gradients + key * tile, shift, dot);
  for (; key < seen.some; ++key) {
    float* const score = scores + key * tile;
    float* const gradient = gradients + key * tile;
    gradients_of_keys<1>(score, gradient, shift, dot);
    if (key < seen.all) continue;
    hn::StoreU(seen.of(key, hn::LoadU(d, score), hn::Zero(d)), d, score);
    hn::StoreU(seen.of(key, hn::LoadU(d, gradient), hn::Zero(d)), d, gradient);
  }
  for (; key < seen.end; ++key) {
    hn::StoreU(hn::Zero(d), d, scores + key * tile);
    hn::StoreU(hn::Zero(d), d, gradients + key * tile);
  }
}

template <class T>
void backward_head(const Head& h, const Head& next, const ConstAnyMatrix& qkv,
                   const ConstAnyMatrix& out, const float* logsumexp, const ConstAnyMatrix& dout,
                   const AnyMatrix& dqkv, float* scratch, AttentionTimes* times) {
  const F32 d;
  const std::int64_t dim = padded(h.dim);
  const std::int64_t keys = padded(h.length, tile);
  const T* const rows = static_cast<const T*>(qkv.data) + h.first_row * qkv.stride + h.column;
  const T* const o = static_cast<const T*>(out.data) + h.first_row * out.stride + h.column;
  const T* const g = static_cast<const T*>(dout.data) + h.first_row * dout.stride + h.column;
  T* const d_rows = static_cast<T*>(dqkv.data) + h.first_row * dqkv.stride + h.column;
  float* const k = scratch;  // [keys, dim]
  float* const v = k + keys * dim;
  float* const dk = v + keys * dim;
  float* const dv = dk + keys * dim;
  float* const query = dv + keys * dim;       // queries times scale and log2(e), [tile, dim]
  float* const query_t = query + tile * dim;  // [dim, tile]
  float* const gradient = query_t + tile * dim;
  float* const gradient_t = gradient + tile * dim;
  float* const dq = gradient_t + tile * dim;
  float* const weights = dq + tile * dim;  // [tile, tile]
  float* const dweights = weights + tile * tile;
  float* const shift = dweights + tile * tile;  // logsumexp of each query, in units of log2(e)
  float* const dot = shift + tile;              // dot product of out and dout for each query
  const Results results(dqkv);
  SplitTimer timer(times);
  Ahead ahead(h.dim * static_cast<std::int64_t>(sizeof(T)));
  for (const std::int64_t part : {0, 1, 2})
    ahead.add(qkv, next.first_row, next.first_row + h.length, next.column + part * h.width);
  for (const ConstAnyMatrix& m : {dout, out})
    ahead.add(m, next.first_row, next.first_row + h.length, next.column);
  for (std::int64_t first = 0; first < h.length; first += tile) {
    const std::int64_t m = std::min(tile, h.length - first);
    const std::int64_t n = padded(m);
    const T* const from = rows + first * qkv.stride;
    take_rows(from, qkv.stride, m, h.dim, h.scale * log2_of_e, n, query);
    take_rows(from + h.width, qkv.stride, m, h.dim, 1.0f, tile, k + first * dim);
    if (!is_left<T>(first, h.length))
      take_rows(from + 2 * h.width, qkv.stride, m, h.dim, 1.0f, tile, v + first * dim);
    take_rows(g + first * dout.stride, dout.stride, m, h.dim, 1.0f, n, gradient);
    transpose(query, n, dim, query_t);
    transpose(gradient, n, dim, gradient_t);
    for (std::int64_t r = 0; r < n; ++r) {
      VF sums = hn::Zero(d);
      for (std::int64_t i = 0; r < m && i < h.dim; i += lanes)
        sums = hn::MulAdd(load(o + (first + r) * out.stride + i, h.dim - i),
                          hn::LoadU(d, gradient + r * dim + i), sums);
      dot[r] = sum_of_lanes(sums);
      shift[r] = r < m ? logsumexp[first + r] * log2_of_e : 0.0f;
    }
    for (std::int64_t key = 0; key <= first; key += tile) {
      const std::int64_t count = std::min(tile, h.length - key);
      const std::int64_t seen_rows = padded(count, pad_keys);
      const std::int64_t offset = first - key;
      const Left values = left_of(rows + key * qkv.stride + 2 * h.width, qkv.stride,
                                  is_left<T>(key, h.length), v + key * dim, dim);
      multiply<Seen::columns>({k + key * dim, dim, query_t, tile, weights, tile, &ahead}, seen_rows,
                              n, h.dim, offset);
      multiply<Seen::columns>(
          {values.data, values.stride, gradient_t, tile, dweights, tile, &ahead}, seen_rows, n,
          h.dim, offset);
      timer.products();
      for (std::int64_t q = 0; q < n; q += lanes)
        gradients_of_queries(weights + q, dweights + q, {q, count, offset}, shift + q, dot + q);
      timer.softmax();
      const Start start = first > key ? Start::sums : Start::nothing;
      multiply<Seen::depth_from>({weights, tile, gradient, dim, dv + key * dim, dim, &ahead, start},
                                 seen_rows, dim, m, offset);
      multiply<Seen::depth_from>({dweights, tile, query, dim, dk + key * dim, dim, &ahead, start},
                                 seen_rows, dim, m, offset);
      multiply<Seen::depth>({dweights, tile, k + key * dim, dim, dq, dim, &ahead,
                             key > 0 ? Start::sums : Start::nothing},
                            padded(m, pad_keys), dim, count, offset);
    }
    put_rows(dq, m, h.dim, h.scale, d_rows + first * dqkv.stride, results);
  }
  // dk was computed from queries that were multiplied by the scale and by log2(e). The scale
  // belongs to dk, so only log2(e) must be divided out.
  put_rows(dk, h.length, h.dim, ln_of_2, d_rows + h.width, results);
  put_rows(dv, h.length, h.dim, 1.0f, d_rows + 2 * h.width, results);
  if (results.streams) hwy::FlushStream();
  timer.products();
}

void BackwardHead(const Head& h, const Head& next, const ConstAnyMatrix& qkv,
                  const ConstAnyMatrix& out, const float* logsumexp, const ConstAnyMatrix& dout,
                  const AnyMatrix& dqkv, float* scratch, AttentionTimes* times) {
  with_type(qkv.dtype, [&]<class T>(T) HWY_ATTR {
    backward_head<T>(h, next, qkv, out, logsumexp, dout, dqkv, scratch, times);
  });
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::models {

HWY_EXPORT(ForwardTask);
HWY_EXPORT(BackwardHead);

namespace cpu {

void attention(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv, AnyMatrix out,
               std::span<float> logsumexp, AttentionTimes* times) {
  if (const bf16::Kernels* const kernels = bf16::kernels_for(state, qkv.dtype))
    return bf16::attention(state, *kernels, shape, qkv, out, logsumexp.data(), times);
  const auto kernel = HWY_DISPATCH_TABLE(ForwardTask)[quant::cpu::table_index(state.features)];
  core::Workspace::Frame frame(state.workspace);
  const core::PerWorker<float> scratch(frame, state.threads.count(), forward_floats(shape));
  const std::int64_t heads = shape.batch * shape.heads;
  const std::int64_t tasks = heads * tasks_of_head(shape);
  state.threads.for_each(tasks, [&](std::int64_t task, int worker) {
    kernel(task_of(shape, task), task_of(shape, std::min(task + 1, tasks - 1)), qkv, out,
           logsumexp.data() + task % heads * shape.length, scratch.of(worker), times);
  });
}

void attention_backward(ContextState& state, const AttentionShape& shape, ConstAnyMatrix qkv,
                        ConstAnyMatrix out, std::span<const float> logsumexp, ConstAnyMatrix dout,
                        AnyMatrix dqkv, AttentionTimes* times) {
  if (const bf16::Kernels* const kernels = bf16::kernels_for(state, qkv.dtype))
    return bf16::attention_backward(state, *kernels, shape,
                                    {qkv, out, logsumexp.data(), dout, dqkv}, times);
  const auto kernel = HWY_DISPATCH_TABLE(BackwardHead)[quant::cpu::table_index(state.features)];
  core::Workspace::Frame frame(state.workspace);
  const core::PerWorker<float> scratch(frame, state.threads.count(), backward_floats(shape));
  const std::int64_t heads = shape.batch * shape.heads;
  state.threads.for_each(heads, [&](std::int64_t head, int worker) {
    kernel(head_of(shape, head), head_of(shape, std::min(head + 1, heads - 1)), qkv, out,
           logsumexp.data() + head * shape.length, dout, dqkv, scratch.of(worker), times);
  });
}

}  // namespace cpu

}  // namespace switchback::models
#endif
