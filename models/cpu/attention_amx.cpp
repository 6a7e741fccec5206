// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: causal attention of bf16 on AMX tiles.
//
// tdpbf16ps multiplies 16 rows of A by 16 columns of B over 32 elements, and adds to f32. A tile
// register of A is rows as they lie; one of B is 16 pairs of rows, with both elements of a column
// side by side. Weights and their gradients are rounded to bf16 to be factors; sums, exponentials
// and everything between products are f32.
//
// Forward has scores as [query, key]: rows of weights are rows of A, and the keys of a sequence are
// transposed once. Backward has them as [key, query], where the products of dK and dV take rows of
// A and dQ takes pairs of rows of B; so a head's keys and gradients of queries alone are
// transposed. A product takes blocks of 32 · 32 elements, and leaves out those that no query sees.
// What a query does not see in its last block has weight zero.
#include "models/cpu/attention_amx.hpp"

#if defined(__AMX_BF16__) && defined(__AVX512BW__)
#include <immintrin.h>

#include "models/cpu/attention_amx_tiles.hpp"

namespace switchback::models::amx {

namespace {

// Keys of a tile of scores in forward.
constexpr int64_t forward_keys = 256;
// Keys of a tile in backward.
constexpr int64_t tile_keys = 128;

constexpr float log2_of_e = 1.44269504f;

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

// 2^x; 0 far below -126; NaN stays NaN. Relative error 3e-6, a minimax fit for |r| <= 1/2 that is
// 1 at 0: far below the 2^-9 by which weights are rounded.
SWITCHBACK_INLINE __m512 power_of_two(__m512 x) {
  constexpr int to_nearest = 0;
  const __m512 r = _mm512_reduce_ps(x, to_nearest);
  const __m512 n = _mm512_sub_ps(x, r);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0x1.3a02ccp-7f), r, _mm512_set1_ps(0x1.c9fc46p-5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ec0378p-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e12cp-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

// ---- Forward.

// Queries of a block: the largest score so far, the sum of weights relative to it, and what those
// before the last tile of keys are to be multiplied by.
struct alignas(64) Queries {
  float max[block];
  float sum[block];
  float change[block];
};

// Of each row, what the operation makes of its lanes; a lane for each row.
template <class Operation>
SWITCHBACK_INLINE __m512 folded_rows(__m512i (&rows)[lanes], const Operation& operation) {
  core::transpose16(rows);
  __m512 v[lanes];
  SWITCHBACK_EACH(i, lanes) {
    v[i] = _mm512_castsi512_ps(rows[i]);
  }
  for (int n = lanes / 2; n > 0; n /= 2)
    SWITCHBACK_EACH(i, n) {
      v[i] = operation(v[i], v[i + n]);
    }
  return v[0];
}
SWITCHBACK_INLINE __m512 sums_of_rows(__m512i (&rows)[lanes]) {
  return folded_rows(
      rows, [](__m512 a, __m512 b) __attribute__((always_inline)) { return _mm512_add_ps(a, b); });
}
SWITCHBACK_INLINE __m512 maxima_of_rows(__m512i (&rows)[lanes]) {
  return folded_rows(
      rows, [](__m512 a, __m512 b) __attribute__((always_inline)) { return _mm512_max_ps(a, b); });
}

// Scores of 16 rows, of which row i sees the keys up to `offset` + i of `keys`, become weights
// 2^(unit · (score - max)) in bf16, relative to the largest so far; those of other keys become 0.
// Rows begin together, since sums over lanes of single rows would take as long as exponentials.
void weights_of_rows(float* scores, int64_t offset, int64_t keys, float unit, Queries& queries,
                     int64_t first, Asking& ahead) {
  __m512i of_rows[lanes];
  // Vectors that every row sees whole.
  const int64_t whole = least(keys, offset + 1) / lanes * lanes;
  const int64_t some = least(keys, whole + 2 * lanes);
  for (int r = 0; r < lanes; ++r) {
    const float* const row = scores + r * forward_keys;
    __m512 most[2] = {_mm512_set1_ps(-__builtin_inff()), _mm512_set1_ps(-__builtin_inff())};
    for (int64_t k = 0; k < whole; k += lanes)
      most[k / lanes % 2] = _mm512_max_ps(most[k / lanes % 2], _mm512_load_ps(row + k));
    for (int64_t k = whole; k < some; k += lanes)
      most[0] = _mm512_mask_max_ps(most[0], first_of_16(offset + r + 1 - k), most[0],
                                   _mm512_load_ps(row + k));
    of_rows[r] = _mm512_castps_si512(_mm512_max_ps(most[0], most[1]));
  }
  const __m512 before = _mm512_load_ps(queries.max + first);
  const __m512 shift = _mm512_max_ps(before, maxima_of_rows(of_rows));
  const __m512 factor = _mm512_set1_ps(unit);
  const __m512 change = power_of_two(_mm512_mul_ps(_mm512_sub_ps(before, shift), factor));
  alignas(64) float offsets[lanes];
  _mm512_store_ps(offsets, _mm512_mul_ps(_mm512_sub_ps(_mm512_setzero_ps(), shift), factor));
  for (int r = 0; r < lanes; ++r) {
    const float* const row = scores + r * forward_keys;
    uint16_t* weights = reinterpret_cast<uint16_t*>(scores + r * forward_keys);
    const __m512 o = _mm512_set1_ps(offsets[r]);
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    int64_t k = 0;
    for (; k + block <= whole; k += block, weights += block) {
      __m512 e[2];
      SWITCHBACK_EACH(i, 2) {
        e[i] = power_of_two(_mm512_fmadd_ps(_mm512_load_ps(row + k + i * lanes), factor, o));
        sums[i] = _mm512_add_ps(sums[i], e[i]);
      }
      _mm512_store_si512(weights, upper_halves(rounded_factor(e[0]), rounded_factor(e[1])));
    }
    for (; k < some; k += block, weights += block) {
      __m512 e[2];
      SWITCHBACK_EACH(i, 2) {
        e[i] = _mm512_maskz_mov_ps(
            first_of_16(offset + r + 1 - k - i * lanes),
            power_of_two(_mm512_fmadd_ps(_mm512_load_ps(row + k + i * lanes), factor, o)));
        sums[i] = _mm512_add_ps(sums[i], e[i]);
      }
      _mm512_store_si512(weights, upper_halves(rounded_factor(e[0]), rounded_factor(e[1])));
    }
    for (; k < keys; k += block, weights += block)
      _mm512_store_si512(weights, _mm512_setzero_si512());
    of_rows[r] = _mm512_castps_si512(_mm512_add_ps(sums[0], sums[1]));
    ahead.some();
  }
  const __m512 sum = _mm512_load_ps(queries.sum + first);
  _mm512_store_ps(queries.sum + first, _mm512_fmadd_ps(sum, change, sums_of_rows(of_rows)));
  _mm512_store_ps(queries.max + first, shift);
  _mm512_store_ps(queries.change + first, change);
}

// Of a task with so many keys and elements of a row.
struct ForwardMemory {
  uint16_t *keys, *values, *query;
  float *scores, *out;
  Queries* queries;
  ForwardMemory(Scratch& s, int64_t count, int64_t dim)
      : keys(s.take<uint16_t>(count * dim)),
        values(s.take<uint16_t>(count * dim)),
        query(s.take<uint16_t>(block * dim)),
        scores(s.take<float>(block * forward_keys)),
        out(s.take<float>(block * dim)),
        queries(s.take<Queries>(1)) {}
};

// ---- Backward.

// Weights and their gradients of a block [key, query] of scores.
struct BlockOfGradients {
  const float* scores;    // [32, 32]
  const float* dweights;  // [32, 32]
  const float* shift;     // of the exponents of each query
  const float* dot;       // out · dout of each query
  float unit;
  bool diagonal;             // query i sees the keys up to i
  uint16_t* weights;         // [32, tile_queries]
  uint16_t* gradients;       // [32, tile_queries]
  uint16_t* gradient_pairs;  // two registers of B
};
SWITCHBACK_INLINE void gradients_of_block(const BlockOfGradients& b, Asking& ahead) {
  const __m512 unit = _mm512_set1_ps(b.unit);
  const __m512 shift[2] = {_mm512_load_ps(b.shift), _mm512_load_ps(b.shift + lanes)};
  const __m512 dot[2] = {_mm512_load_ps(b.dot), _mm512_load_ps(b.dot + lanes)};
  for (int key = 0; key < block; key += 2) {
    __m512i g[2][2];
    SWITCHBACK_EACH(i, 2) {
      const int at = (key + i) * block;
      __m512i w[2];
      const __mmask32 seen = b.diagonal ? 0xFFFFFFFFu << (key + i) : 0xFFFFFFFFu;
      SWITCHBACK_EACH(j, 2) {
        const auto mask = static_cast<__mmask16>(seen >> (j * lanes));
        const __m512 p = _mm512_maskz_mov_ps(
            mask, power_of_two(
                      _mm512_fmsub_ps(_mm512_load_ps(b.scores + at + j * lanes), unit, shift[j])));
        const __m512 d = _mm512_sub_ps(_mm512_load_ps(b.dweights + at + j * lanes), dot[j]);
        w[j] = rounded_factor(p);
        g[i][j] = rounded_factor(_mm512_maskz_mul_ps(mask, p, d));
      }
      _mm512_store_si512(b.weights + (key + i) * tile_queries, upper_halves(w[0], w[1]));
      _mm512_store_si512(b.gradients + (key + i) * tile_queries, upper_halves(g[i][0], g[i][1]));
    }
    SWITCHBACK_EACH(j, 2) {
      _mm512_store_si512(b.gradient_pairs + j * (lanes * block) + key / 2 * block,
                         upper_pairs(g[0][j], g[1][j]));
    }
    ahead.some();
  }
}

// Of a sequence of so many padded tokens and elements of a row.
struct BackwardMemory {
  uint16_t *keys, *values, *key_columns;  // of all tokens, as the rest of this line
  float *dkeys, *dvalues;
  uint16_t *query, *query_pairs, *gradient, *gradient_pairs;  // of a tile of queries, as the rest
  float *dquery, *shift, *dot;
  float *scores, *dweights;     // of a block
  uint16_t *weights, *dscores;  // of 32 keys
  uint16_t* dscore_pairs;       // of a tile of keys
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
        dquery(s.take<float>(tile_queries * dim)),
        shift(s.take<float>(tile_queries)),
        dot(s.take<float>(tile_queries)),
        scores(s.take<float>(block * block)),
        dweights(s.take<float>(block * block)),
        weights(s.take<uint16_t>(block * tile_queries)),
        dscores(s.take<uint16_t>(block * tile_queries)),
        dscore_pairs(s.take<uint16_t>(tile_keys * tile_queries)) {}
};

SWITCHBACK_INLINE __m512 upper_as_floats(__m512i v) {
  return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}
SWITCHBACK_INLINE __m512 lower_as_floats(__m512i v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}
template <bool whole>
void dots_of_rows(const Operand& a, const Operand& b, int64_t rows, int64_t chunks, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    for (int64_t c = 0; c < chunks; ++c) {
      const __m512i x = a.chunk_of<whole>(r, c);
      const __m512i y = b.chunk_of<whole>(r, c);
      even = _mm512_fmadd_ps(lower_as_floats(x), lower_as_floats(y), even);
      odd = _mm512_fmadd_ps(upper_as_floats(x), upper_as_floats(y), odd);
    }
    to[r] = _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
  }
}

}  // namespace

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

void forward(const Forward& task, void* scratch, Times* times) {
  const Head& h = task.head;
  const int64_t dim = padded(h.dim);
  const int64_t chunks = dim / block;
  const int64_t all_keys = padded(task.end);
  const float unit = h.scale * log2_of_e;
  Scratch all{reinterpret_cast<uintptr_t>(scratch)};
  const ForwardMemory memory(all, all_keys, dim);
  Timer timer(times);
  Asking ahead(task.ahead, h.dim, task.end - task.begin);
  begin_tiles();
  const Operand keys = {{h.qkv.data + h.width, h.qkv.stride}, task.end, h.dim};
  const Operand values = {{h.qkv.data + 2 * h.width, h.qkv.stride}, task.end, h.dim};
  SWITCHBACK_PACK(pack_transposed, keys, all_keys, chunks, memory.keys);
  SWITCHBACK_PACK(pack_pairs, values, all_keys, chunks, memory.values);
  const Left query = {memory.query, dim * 2, lanes * dim * 2, line_bytes};
  constexpr int64_t row_bytes = forward_keys * 4;
  const Left weights = {memory.scores, row_bytes, lanes * row_bytes, line_bytes};
  for (int64_t first = task.begin; first < task.end; first += block) {
    const int64_t count = least(block, task.end - first);
    const Operand queries_of = {{h.qkv.data + first * h.qkv.stride, h.qkv.stride}, count, h.dim};
    SWITCHBACK_PACK(pack_rows, queries_of, block, chunks, memory.query);
    Queries& queries = *memory.queries;
    for (int i = 0; i < block; ++i) {
      queries.max[i] = -__builtin_inff();
      queries.sum[i] = 0;
    }
    for (int64_t key = 0; key < first + count; key += forward_keys) {
      const int64_t visible = least(forward_keys, padded(first + count - key));
      for (int64_t k = 0; k < visible; k += block)
        multiply(query, {memory.keys + (key + k) * dim, chunks * register_bytes, register_bytes},
                 chunks, memory.scores + k, forward_keys, false);
      timer.products();
      for (int r = 0; r < block; r += lanes)
        weights_of_rows(memory.scores + r * forward_keys, first + r - key, visible, unit, queries,
                        r, ahead);
      for (int64_t i = 0; key > 0 && i < block * dim; i += lanes)
        _mm512_store_ps(memory.out + i, _mm512_mul_ps(_mm512_load_ps(memory.out + i),
                                                      _mm512_set1_ps(queries.change[i / dim])));
      timer.softmax();
      for (int64_t c = 0; c < chunks; ++c)
        multiply(weights,
                 {memory.values + (key / block * chunks + c) * 2 * (lanes * block), register_bytes,
                  2 * chunks * register_bytes},
                 visible / block, memory.out + c * block, dim, key > 0);
    }
    for (int64_t r = 0; r < count; ++r) {
      task.logsumexp[first + r] = h.scale * queries.max[r] + __builtin_logf(queries.sum[r]);
      put_rows(memory.out + r * dim, 1, h.dim, chunks, 1.0f / queries.sum[r],
               task.out.data + (first + r) * task.out.stride, task.out);
    }
    timer.products();
  }
  if (task.out.streams) _mm_sfence();
  _tile_release();
}

void backward(const Backward& task, void* scratch, Times* times) {
  const Head& h = task.head;
  const int64_t dim = padded(h.dim);
  const int64_t chunks = dim / block;
  const int64_t tokens = padded(h.length);
  const int64_t blocks = tokens / block;
  const float unit = h.scale * log2_of_e;
  Scratch all{reinterpret_cast<uintptr_t>(scratch)};
  const BackwardMemory memory(all, tokens, dim);
  Timer timer(times);
  Asking ahead(task.ahead, h.dim, blocks * (blocks + 1) / 2 * (block / 2));
  begin_tiles();
  const int64_t stride = h.qkv.stride;
  const Operand keys = {{h.qkv.data + h.width, stride}, h.length, h.dim};
  SWITCHBACK_PACK(pack_rows, keys, tokens, chunks, memory.keys);
  SWITCHBACK_PACK(pack_columns, keys, tokens, chunks, memory.key_columns);
  const Operand values = {{h.qkv.data + 2 * h.width, stride}, h.length, h.dim};
  SWITCHBACK_PACK(pack_rows, values, tokens, chunks, memory.values);
  const int64_t dim_bytes = dim * 2;
  constexpr int64_t row_bytes = tile_queries * 2;
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
    for (int64_t tile = 0; tile < first + queries; tile += tile_keys) {
      const int64_t tile_end = least(tile + tile_keys, first + queries);
      for (int64_t key = tile; key < tile_end; key += block) {
        // The first query of the tile that sees these keys.
        const int64_t begin = key > first ? key - first : 0;
        const Left key_rows = {memory.keys + key * dim, dim_bytes, lanes * dim_bytes, line_bytes};
        const Left value_rows = {memory.values + key * dim, dim_bytes, lanes * dim_bytes,
                                 line_bytes};
        uint16_t* const pairs_of_keys =
            memory.dscore_pairs + (key - tile) / block * (block * tile_queries);
        for (int64_t q = begin; q < queries; q += block) {
          multiply(key_rows, {memory.query + q * dim, chunks * register_bytes, register_bytes},
                   chunks, memory.scores, block, false);
          multiply(value_rows, {memory.gradient + q * dim, chunks * register_bytes, register_bytes},
                   chunks, memory.dweights, block, false);
          timer.products();
          gradients_of_block(
              {memory.scores, memory.dweights, memory.shift + q, memory.dot + q, unit,
               key == first + q, memory.weights + q, memory.dscores + q, pairs_of_keys + q * block},
              ahead);
          timer.softmax();
        }
        const int64_t steps = (queries - begin) / block;
        const bool add = key < first;
        for (int64_t c = 0; c < chunks; ++c) {
          const int64_t from = (begin / block * chunks + c) * 2 * (lanes * block);
          const int64_t to = key * dim + c * block;
          multiply({memory.weights + begin, row_bytes, lanes * row_bytes, line_bytes},
                   {memory.gradient_pairs + from, register_bytes, 2 * chunks * register_bytes},
                   steps, memory.dvalues + to, dim, add);
          multiply({memory.dscores + begin, row_bytes, lanes * row_bytes, line_bytes},
                   {memory.query_pairs + from, register_bytes, 2 * chunks * register_bytes}, steps,
                   memory.dkeys + to, dim, add);
        }
      }
      for (int64_t q = 0; q < queries; q += block) {
        const int64_t seen = least(tile_end, first + q + block) - tile;
        if (seen <= 0) continue;
        for (int64_t c = 0; c < chunks; ++c)
          multiply({memory.key_columns + (2 * c * blocks + tile / block) * (lanes * block),
                    line_bytes, blocks * register_bytes, register_bytes},
                   {memory.dscore_pairs + q * block, register_bytes,
                    tile_queries / lanes * register_bytes},
                   seen / block, memory.dquery + c * block * tile_queries + q, tile_queries,
                   tile > 0);
      }
    }
    put_transposed(memory.dquery, count, h.dim, chunks, h.scale,
                   task.dqkv.data + first * task.dqkv.stride, task.dqkv);
  }
  put_rows(memory.dkeys, h.length, h.dim, chunks, h.scale, task.dqkv.data + h.width, task.dqkv);
  put_rows(memory.dvalues, h.length, h.dim, chunks, 1.0f, task.dqkv.data + 2 * h.width, task.dqkv);
  if (task.dqkv.streams) _mm_sfence();
  _tile_release();
  timer.products();
}

bool is_built() {
  return true;
}

}  // namespace switchback::models::amx

#else

namespace switchback::models::amx {

int64_t forward_bytes(int64_t, int64_t) {
  return 0;
}
int64_t backward_bytes(int64_t, int64_t) {
  return 0;
}
void forward(const Forward&, void*, Times*) {}
void backward(const Backward&, void*, Times*) {}
bool is_built() {
  return false;
}

}  // namespace switchback::models::amx

#endif
