// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: causal attention of bf16 in blocks, for any CPU instruction that multiplies
// bf16. Included only by the kernels of each instruction set, which define a class Products with
//
//   begin(), end()                             before the first product of a task, after the last
//   multiply(left, right, steps, c, add, seen) c (+)= left[32, 32 · steps] · right[32 · steps, 32]
//
// Products are of bf16, with sums in f32. Attention weights and their gradients are rounded to bf16
// when they become factors. Sums, exponentials and everything between products are f32. The
// multiply instructions of AMX and AVX-512 BF16 treat subnormal operands as zero and turn subnormal
// sums into zero. That changes a sum by less than 2^-126, or by 2^-126 of the other factors.
//
// In forward, scores are [query, key]: rows of weights are rows of A, and the keys of a sequence
// are transposed once. In backward they are [key, query]. There the products of dK and dV use rows
// of A, and dQ uses pairs of rows of B; so only the keys of a head and the gradients of its queries
// are transposed. A product uses blocks of 32 · 32 elements, and skips blocks that no query sees.
// In the last block, keys that a query does not see have weight zero.
//
// Scores of the next block are multiplied while the exponentials of this one are computed: the
// tiles of AMX and the vectors are separate units of a core.
#pragma once

#include <immintrin.h>

#include "studies/models/cpu/attention_bf16_blocks.hpp"

namespace switchback::models::bf16 {

namespace {

// In forward, the weights of this number of keys are computed before they are multiplied by the
// values.
constexpr int64_t forward_keys = 256;
// The number of queries in a tile of backward.
constexpr int64_t tile_queries = 256;

constexpr float log2_of_e = 1.44269504f;
constexpr float ln_of_2 = 0.693147181f;

class Timer {
 public:
  explicit Timer(Times* times) : times_(times) {
    if (times_ != nullptr) last_ = times_->now();
  }
  SWITCHBACK_INLINE void products() {
    if (times_ != nullptr) times_->products_ns += lap();
  }
  SWITCHBACK_INLINE void softmax() {
    if (times_ != nullptr) times_->softmax_ns += lap();
  }

 private:
  int64_t lap() {
    const int64_t before = last_;
    last_ = times_->now();
    return last_ - before;
  }
  Times* times_;
  int64_t last_ = 0;
};

// Returns 2^x; 0 far below -126; NaN stays NaN. The relative error is 9e-5, of a minimax fit on [0,
// 1] whose constant term is 1. That is a fortieth of 2^-8, the most that rounding a weight to bf16
// costs.
SWITCHBACK_INLINE __m512 power_of_two(__m512 x) {
  constexpr int down = 1;
  const __m512 r = _mm512_reduce_ps(x, down);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0x1.3baaa6p-4f), r, _mm512_set1_ps(0x1.d2378ap-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.63e658p-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);  // scalef uses the integer below x
}

// Returns log(x) for x > 0; Inf and NaN are unchanged. Relative error 2e-7, plus that of the sum
// where x is near 1: x = 2^e · m, 3/4 <= m < 3/2, and log(m) = 2 · atanh(s), s = (m - 1) / (m + 1),
// |s| <= 1/5. The first omitted term of the series is 1e-8 of the sum.
SWITCHBACK_INLINE __m512 logarithm(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  const __m512 e = _mm512_sub_ps(_mm512_getexp_ps(x), _mm512_getexp_ps(m));
  const __m512 s = _mm512_div_ps(_mm512_sub_ps(m, one), _mm512_add_ps(m, one));
  const __m512 square = _mm512_mul_ps(s, s);
  __m512 p = _mm512_fmadd_ps(square, _mm512_set1_ps(2.0f / 9), _mm512_set1_ps(2.0f / 7));
  p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(2.0f / 5));
  p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(2.0f / 3));
  p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(2.0f));
  return _mm512_fmadd_ps(e, _mm512_set1_ps(ln_of_2), _mm512_mul_ps(p, s));
}

// ---- Forward.

// The state of the softmax for a block of queries. A weight is 2^(score - shift); `sum` is the sum
// of a query's weights, and `sums` has its partial sums by vector lane.
struct alignas(64) Queries {
  float shift[block];
  float sum[block];
  float sums[block][lanes];
};

// A softmax without a maximum: weights are 2^score as long as a query's sum of weights is in this
// range. Then nothing overflows, and weights that underflow are less than 2^-100 of the largest.
// Queries whose sum is outside of the range (or NaN) are computed again, relative to their largest
// score.
constexpr float least_sum = 0x1p-24f;
constexpr float most_sum = 0x1p24f;
SWITCHBACK_INLINE uint32_t beyond_range(const Queries& queries) {
  uint32_t within = 0;
  for (int half = 0; half < 2; ++half) {
    const __m512 sum = _mm512_load_ps(queries.sum + half * lanes);
    const uint32_t some = _mm512_cmp_ps_mask(sum, _mm512_set1_ps(least_sum), _CMP_GE_OQ) &
                          _mm512_cmp_ps_mask(sum, _mm512_set1_ps(most_sum), _CMP_LE_OQ);
    within |= some << (half * lanes);
  }
  return ~within;
}

// Updates the largest score of each query with a block of scores. `queries.sums` holds the maxima
// by vector lane, instead of sums.
void maxima_of_block(const float* scores, bool diagonal, Queries& queries) {
  for (int row = 0; row < block; ++row) {
    __m512 most = _mm512_load_ps(queries.sums[row]);
    for (int j = 0; j < 2; ++j) {
      const __mmask16 seen = diagonal ? first_of_16(row + 1 - j * lanes) : first_of_16(lanes);
      const float* const at =
          scores + (row / lanes * 2 + j) * register_floats + row % lanes * lanes;
      most = _mm512_mask_max_ps(most, seen, most, _mm512_load_ps(at));
    }
    _mm512_store_ps(queries.sums[row], most);
  }
}

// Converts a block of scores [query, key] into weights 2^(unit · score - shift) in bf16, as
// registers of A. `diagonal`: query i sees only the keys up to i.
template <bool diagonal>
SWITCHBACK_INLINE void weights_of_block(const float* scores, float unit, Queries& queries,
                                        uint16_t* weights, Asking& ahead) {
  const __m512 factor = _mm512_set1_ps(unit);
  for (int half = 0; half < 2; ++half) {
    const float* at = scores + half * (2 * register_floats);
    SWITCHBACK_EACH(i, lanes) {
      if (i % 2 == 0) ahead.some();
      const int row = half * lanes + i;
      const __m512 shift = _mm512_set1_ps(queries.shift[row]);
      __m512 e[2];
      SWITCHBACK_EACH(j, 2) {
        e[j] = power_of_two(
            _mm512_fmsub_ps(_mm512_load_ps(at + j * register_floats + i * lanes), factor, shift));
        if (diagonal) e[j] = _mm512_maskz_mov_ps(first_of_16(row + 1 - j * lanes), e[j]);
      }
      _mm512_store_ps(queries.sums[row],
                      _mm512_add_ps(_mm512_load_ps(queries.sums[row]), _mm512_add_ps(e[0], e[1])));
      _mm512_store_si512(weights + row * block, beside(rounded_factor(e[0]), rounded_factor(e[1])));
    }
  }
}

// Adds up the lanes of each of 16 vectors; lane i of the result is the sum of vector i.
SWITCHBACK_INLINE __m512 sums_of_rows(const float (*rows)[lanes]) {
  __m512i v[lanes];
  SWITCHBACK_EACH(i, lanes) {
    v[i] = _mm512_load_si512(rows[i]);
  }
  core::transpose16(v);
  __m512 sums[lanes];
  SWITCHBACK_EACH(i, lanes) {
    sums[i] = _mm512_castsi512_ps(v[i]);
  }
  for (int n = lanes / 2; n > 0; n /= 2)
    SWITCHBACK_EACH(i, n) {
      sums[i] = _mm512_add_ps(sums[i], sums[i + n]);
    }
  return sums[0];
}

// The scratch memory of a forward task with `count` keys and rows of `dim` elements.
struct ForwardMemory {
  uint16_t *keys, *values, *query, *weights;
  float *scores, *out, *sums;
  Queries* queries;
  ForwardMemory(Scratch& s, int64_t count, int64_t dim)
      : keys(s.take<uint16_t>(count * dim)),
        values(s.take<uint16_t>(count * dim)),
        query(s.take<uint16_t>(block * dim)),
        weights(s.take<uint16_t>(block * forward_keys)),
        scores(s.take<float>(2 * block_floats)),
        out(s.take<float>(block * dim)),
        sums(s.take<float>(block)),
        queries(s.take<Queries>(1)) {}
};

// ---- Backward.

// The operands of gradients_of_block: a block [key, query] of scores and of gradients of weights,
// from which it computes the attention weights and the gradients of the scores.
struct BlockOfGradients {
  const float* scores;
  const float* dweights;
  const float* shift;  // logsumexp of each query, in units of log2(e)
  const float* dot;    // dot product of out and dout for each query
  float unit;
  uint16_t* weights;         // result, packed as a left factor of products
  uint16_t* gradients;       // result, packed as a left factor
  uint16_t* gradient_pairs;  // these gradients again, packed as a right factor
};
// `diagonal`: query i of the block sees only the keys up to i.
template <bool diagonal>
SWITCHBACK_INLINE void gradients_of_block(const BlockOfGradients& b, Asking& ahead) {
  const __m512 unit = _mm512_set1_ps(b.unit);
  const __m512 shift[2] = {_mm512_load_ps(b.shift), _mm512_load_ps(b.shift + lanes)};
  const __m512 dot[2] = {_mm512_load_ps(b.dot), _mm512_load_ps(b.dot + lanes)};
  SWITCHBACK_EACH(i, lanes) {
    ahead.some();
    __m512i w[2][2];
    __m512i g[2][2];
    SWITCHBACK_EACH(upper, 2) {
      const __mmask32 seen = 0xFFFFFFFFu << (i + upper * lanes);
      SWITCHBACK_EACH(j, 2) {
        const int at = (2 * upper + j) * register_floats + i * lanes;
        const auto mask = static_cast<__mmask16>(seen >> (j * lanes));
        __m512 p = power_of_two(_mm512_fmsub_ps(_mm512_load_ps(b.scores + at), unit, shift[j]));
        __m512 d = _mm512_mul_ps(p, _mm512_sub_ps(_mm512_load_ps(b.dweights + at), dot[j]));
        if (diagonal) {
          p = _mm512_maskz_mov_ps(mask, p);
          d = _mm512_maskz_mov_ps(mask, d);
        }
        w[upper][j] = rounded_factor(p);
        g[upper][j] = rounded_factor(d);
      }
      const int row = (i + upper * lanes) * block;
      _mm512_store_si512(b.weights + row, beside(w[upper][0], w[upper][1]));
      _mm512_store_si512(b.gradients + row, beside(g[upper][0], g[upper][1]));
    }
    SWITCHBACK_EACH(j, 2) {
      _mm512_store_si512(b.gradient_pairs + (j * lanes + i) * block, beside(g[0][j], g[1][j]));
    }
  }
}

// The scratch memory of backward for one head, with `count` tokens and rows of `dim` elements, both
// padded to multiples of 32.
struct BackwardMemory {
  uint16_t *keys, *values, *key_columns;  // for all tokens, like dkeys and dvalues
  float *dkeys, *dvalues;
  uint16_t *query, *query_pairs, *gradient, *gradient_pairs;  // a tile, like shift and dot
  float *shift, *dot;
  uint16_t *weights, *dscores;  // scores of 32 keys
  uint16_t* dscore_pairs;       // scores of all keys
  float *scores, *dweights;     // two blocks of scores
  float* dquery;                // a block of dQ
  BackwardMemory(Scratch& s, int64_t count, int64_t dim)
      : keys(s.take<uint16_t>(count * dim)),
        values(s.take<uint16_t>(count * dim)),
        key_columns(s.take<uint16_t>(count * dim)),
        dkeys(s.take<float>(count * dim)),
        dvalues(s.take<float>(count * dim)),
        query(s.take<uint16_t>(tile_queries * dim)),
        query_pairs(s.take<uint16_t>(tile_queries * dim)),
        gradient(s.take<uint16_t>(tile_queries * dim)),
        gradient_pairs(s.take<uint16_t>(tile_queries * dim)),
        shift(s.take<float>(tile_queries)),
        dot(s.take<float>(tile_queries)),
        weights(s.take<uint16_t>(block * tile_queries)),
        dscores(s.take<uint16_t>(block * tile_queries)),
        dscore_pairs(s.take<uint16_t>(count * tile_queries)),
        scores(s.take<float>(2 * block_floats)),
        dweights(s.take<float>(2 * block_floats)),
        dquery(s.take<float>(block_floats)) {}
};

SWITCHBACK_INLINE __m512 upper_as_floats(__m512i v) {
  return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}
SWITCHBACK_INLINE __m512 lower_as_floats(__m512i v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}
template <bool whole>
void dots_of_rows(const Operand& a, const Operand& b, int64_t rows, int64_t chunks, float* to) {
  alignas(line_bytes) float sums[lanes][lanes];
  for (int64_t r = 0; r < rows; r += lanes) {
    SWITCHBACK_EACH(i, lanes) {
      __m512 even = _mm512_setzero_ps();
      __m512 odd = _mm512_setzero_ps();
      for (int64_t c = 0; c < chunks; ++c) {
        const __m512i x = a.chunk_of<whole>(r + i, c);
        const __m512i y = b.chunk_of<whole>(r + i, c);
        even = _mm512_fmadd_ps(lower_as_floats(x), lower_as_floats(y), even);
        odd = _mm512_fmadd_ps(upper_as_floats(x), upper_as_floats(y), odd);
      }
      _mm512_store_ps(sums[i], _mm512_add_ps(even, odd));
    }
    _mm512_store_ps(to + r, sums_of_rows(sums));
  }
}

int64_t forward_bytes(int64_t length, int64_t dim) {
  Scratch s{0};
  ForwardMemory(s, padded(length), padded(dim));
  return s.taken();
}
int64_t backward_bytes(int64_t length, int64_t dim) {
  Scratch s{0};
  BackwardMemory(s, padded(length), padded(dim));
  return s.taken();
}

template <class Products>
void forward(const Forward& task, void* scratch, Times* times) {
  const Head& h = task.head;
  const int64_t dim = padded(h.dim);
  const int64_t chunks = dim / block;
  const int64_t all_keys = padded(task.end);
  const float unit = h.scale * log2_of_e;
  Scratch all{reinterpret_cast<uintptr_t>(scratch)};
  const ForwardMemory memory(all, all_keys, dim);
  Timer timer(times);
  const int64_t first_block = task.begin / block;
  const int64_t end_block = all_keys / block;
  Asking ahead(task.ahead, h.dim,
               (end_block * (end_block + 1) - first_block * (first_block + 1)) / 2 * lanes);
  Products::begin();
  const Operand keys = {{h.qkv.data + h.width, h.qkv.stride}, task.end, h.dim};
  const Operand values = {{h.qkv.data + 2 * h.width, h.qkv.stride}, task.end, h.dim};
  SWITCHBACK_PACK(pack_transposed, keys, all_keys, chunks, memory.keys);
  SWITCHBACK_PACK(pack_pairs, values, all_keys, chunks, memory.values);
  constexpr int64_t block_bytes = 2 * register_bytes;
  const Factor query = {memory.query, register_bytes, block_bytes};
  const Factor weights = {memory.weights, register_bytes, block_bytes};
  Queries& queries = *memory.queries;
  for (int64_t first = task.begin; first < task.end; first += block) {
    const int64_t count = least(block, task.end - first);
    const Operand queries_of = {{h.qkv.data + first * h.qkv.stride, h.qkv.stride}, count, h.dim};
    SWITCHBACK_PACK(pack_rows, queries_of, block, chunks, memory.query);
    const auto scores_of = [&](int64_t key) __attribute__((always_inline)) {
      Products::multiply(query, {memory.keys + key * dim, register_bytes, block_bytes}, chunks,
                         memory.scores + key / block % 2 * block_floats, false,
                         key == first ? Seen::columns_to : Seen::all);
    };
    for (int i = 0; i < block; ++i)
      queries.shift[i] = 0;
    const auto weigh = [&] {
      for (int i = 0; i < block; ++i)
        _mm512_store_ps(queries.sums[i], _mm512_setzero_ps());
      scores_of(0);
      for (int64_t tile = 0; tile <= first; tile += forward_keys) {
        const int64_t end = least(tile + forward_keys, first + block);
        for (int64_t key = tile; key < end; key += block) {
          const float* const scores = memory.scores + key / block % 2 * block_floats;
          uint16_t* const to = memory.weights + (key - tile) * block;
          if (key == first) {
            weights_of_block<true>(scores, unit, queries, to, ahead);
          } else {
            scores_of(key + block);
            weights_of_block<false>(scores, unit, queries, to, ahead);
          }
        }
        timer.softmax();
        for (int64_t c = 0; c < chunks; ++c)
          Products::multiply(weights,
                             {memory.values + (tile / block * chunks + c) * block_elements,
                              register_bytes, chunks * block_bytes},
                             (end - tile) / block, memory.out + c * block_floats, tile > 0,
                             end > first ? Seen::depth_to : Seen::all);
        timer.products();
      }
      for (int half = 0; half < block; half += lanes)
        _mm512_store_ps(queries.sum + half, sums_of_rows(queries.sums + half));
    };
    weigh();
    const uint32_t beyond = beyond_range(queries) & first_of_32(count);
    if (beyond != 0) {
      for (int i = 0; i < block; ++i)
        _mm512_store_ps(queries.sums[i], _mm512_set1_ps(-__builtin_inff()));
      for (int64_t key = 0; key <= first; key += block) {
        scores_of(key);
        maxima_of_block(memory.scores + key / block % 2 * block_floats, key == first, queries);
      }
      for (int i = 0; i < block; ++i)
        if ((beyond >> i & 1) != 0)
          queries.shift[i] = unit * _mm512_reduce_max_ps(_mm512_load_ps(queries.sums[i]));
      weigh();
    }
    alignas(line_bytes) float factors[block];
    for (int half = 0; half < block; half += lanes) {
      const __m512 sums = _mm512_load_ps(queries.sum + half);
      _mm512_store_ps(factors + half, _mm512_div_ps(_mm512_set1_ps(1.0f), sums));
      _mm512_mask_storeu_ps(task.logsumexp + first + half, first_of_16(count - half),
                            _mm512_fmadd_ps(_mm512_load_ps(queries.shift + half),
                                            _mm512_set1_ps(ln_of_2), logarithm(sums)));
    }
    put_rows(
        memory.out, count, h.dim, chunks, [&](int64_t r) { return factors[r]; },
        task.out.data + first * task.out.stride, task.out);
    timer.products();
  }
  if (task.out.streams) _mm_sfence();
  Products::end();
}

template <class Products>
void backward(const Backward& task, void* scratch, Times* times) {
  const Head& h = task.head;
  const int64_t dim = padded(h.dim);
  const int64_t chunks = dim / block;
  const int64_t tokens = padded(h.length);
  const int64_t blocks = tokens / block;
  const float scale = h.scale;
  const float unit = scale * log2_of_e;
  Scratch all{reinterpret_cast<uintptr_t>(scratch)};
  const BackwardMemory memory(all, tokens, dim);
  Timer timer(times);
  Asking ahead(task.ahead, h.dim, blocks * (blocks + 1) / 2 * lanes);
  Products::begin();
  constexpr int64_t block_bytes = 2 * register_bytes;
  const int64_t stride = h.qkv.stride;
  const Operand keys = {{h.qkv.data + h.width, stride}, h.length, h.dim};
  SWITCHBACK_PACK(pack_rows, keys, tokens, chunks, memory.keys);
  SWITCHBACK_PACK(pack_columns, keys, tokens, chunks, memory.key_columns);
  const Operand values = {{h.qkv.data + 2 * h.width, stride}, h.length, h.dim};
  SWITCHBACK_PACK(pack_rows, values, tokens, chunks, memory.values);
  for (int64_t first = 0; first < h.length; first += tile_queries) {
    const int64_t count = least(tile_queries, h.length - first);
    const int64_t queries = padded(count);
    const Operand query = {{h.qkv.data + first * stride, stride}, count, h.dim};
    const Operand gradient = {
        {task.dout.data + first * task.dout.stride, task.dout.stride}, count, h.dim};
    const Operand out = {{task.out.data + first * task.out.stride, task.out.stride}, count, h.dim};
    SWITCHBACK_PACK(pack_transposed, query, queries, chunks, memory.query);
    SWITCHBACK_PACK(pack_pairs, query, queries, chunks, memory.query_pairs);
    SWITCHBACK_PACK(pack_transposed, gradient, queries, chunks, memory.gradient);
    SWITCHBACK_PACK(pack_pairs, gradient, queries, chunks, memory.gradient_pairs);
    if (gradient.is_whole(queries))
      dots_of_rows<true>(out, gradient, queries, chunks, memory.dot);
    else
      dots_of_rows<false>(out, gradient, queries, chunks, memory.dot);
    for (int64_t q = 0; q < queries; ++q)
      memory.shift[q] = q < count ? task.logsumexp[first + q] * log2_of_e : 0.0f;
    const int64_t end = first + queries;
    // Gradients of the scores of one block of queries with all keys are contiguous.
    const int64_t pairs_of_queries = end * block;
    for (int64_t key = 0; key < end; key += block) {
      // The first query of the tile that sees these keys.
      const int64_t begin = key > first ? key - first : 0;
      const Factor key_rows = {memory.keys + key * dim, register_bytes, block_bytes};
      const Factor value_rows = {memory.values + key * dim, register_bytes, block_bytes};
      const auto products_of = [&](int64_t q) __attribute__((always_inline)) {
        const int64_t at = q / block % 2 * block_floats;
        const Seen seen = key == first + q ? Seen::columns_from : Seen::all;
        Products::multiply(key_rows, {memory.query + q * dim, register_bytes, block_bytes}, chunks,
                           memory.scores + at, false, seen);
        Products::multiply(value_rows, {memory.gradient + q * dim, register_bytes, block_bytes},
                           chunks, memory.dweights + at, false, seen);
      };
      products_of(begin);
      for (int64_t q = begin; q < queries; q += block) {
        if (q + block < queries) products_of(q + block);
        const int64_t at = q / block % 2 * block_floats;
        const BlockOfGradients b = {
            memory.scores + at,
            memory.dweights + at,
            memory.shift + q,
            memory.dot + q,
            unit,
            memory.weights + q * block,
            memory.dscores + q * block,
            memory.dscore_pairs + q / block * pairs_of_queries + key * block};
        if (key == first + q)
          gradients_of_block<true>(b, ahead);
        else
          gradients_of_block<false>(b, ahead);
      }
      timer.softmax();
      const int64_t steps = (queries - begin) / block;
      const bool add = key < first;
      const Seen seen = key < first ? Seen::all : Seen::depth_from;
      for (int64_t c = 0; c < chunks; ++c) {
        const int64_t from = (begin / block * chunks + c) * block_elements;
        const int64_t to = key * dim + c * block_floats;
        Products::multiply({memory.weights + begin * block, register_bytes, block_bytes},
                           {memory.gradient_pairs + from, register_bytes, chunks * block_bytes},
                           steps, memory.dvalues + to, add, seen);
        Products::multiply({memory.dscores + begin * block, register_bytes, block_bytes},
                           {memory.query_pairs + from, register_bytes, chunks * block_bytes}, steps,
                           memory.dkeys + to, add, seen);
      }
      if (end >= h.length) {
        const int64_t keys_here = least(block, h.length - key);
        uint16_t* const to = task.dqkv.data + key * task.dqkv.stride;
        put_rows(
            memory.dkeys + key * dim, keys_here, h.dim, chunks, [&](int64_t) { return scale; },
            to + h.width, task.dqkv);
        put_rows(
            memory.dvalues + key * dim, keys_here, h.dim, chunks, [](int64_t) { return 1.0f; },
            to + 2 * h.width, task.dqkv);
      }
      timer.products();
    }
    for (int64_t q = 0; q < queries; q += block)
      for (int64_t c = 0; c < chunks; ++c) {
        Products::multiply(
            {memory.key_columns + c * blocks * block_elements, register_bytes, block_bytes},
            {memory.dscore_pairs + q / block * pairs_of_queries, register_bytes, block_bytes},
            (first + q) / block + 1, memory.dquery, false, Seen::all);
        put_transposed(memory.dquery, least(block, count - q), h.dim - c * block, scale,
                       task.dqkv.data + (first + q) * task.dqkv.stride + c * block, task.dqkv);
      }
  }
  if (task.dqkv.streams) _mm_sfence();
  Products::end();
  timer.products();
}

template <class Products>
constexpr Kernels kernels_with = {forward_bytes, backward_bytes, forward<Products>,
                                  backward<Products>};

}  // namespace

}  // namespace switchback::models::bf16
