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
#include <cpuid.h>
#include <immintrin.h>

#define SWITCHBACK_INLINE inline __attribute__((always_inline))
#define SWITCHBACK_EACH(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); ++i)

namespace switchback::models::amx {

namespace {

constexpr int lanes = 16;       // f32 of a vector; rows and columns of a tile register
constexpr int block = 32;       // rows and columns of a product; elements of a step
constexpr int line_bytes = 64;  // a row of a tile register
constexpr int register_bytes = 1024;
// Keys of a tile of scores in forward.
constexpr int64_t forward_keys = 256;
// Queries and keys of a tile in backward.
constexpr int64_t tile_queries = 128;
constexpr int64_t tile_keys = 128;

constexpr float log2_of_e = 1.44269504f;
constexpr float ln_of_2 = 0.693147181f;

constexpr int64_t padded(int64_t n) {
  return (n + block - 1) / block * block;
}
constexpr int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// What ldtilecfg reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The compiler does not know what memory tile loads read. (Of their stores it does.)
SWITCHBACK_INLINE void finish_stores() {
  asm volatile("" ::: "memory");
}

void begin_tiles() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = line_bytes;
    config.rows[i] = lanes;
  }
  finish_stores();
  _tile_loadconfig(&config);
}

// Hands out parts of the scratch memory.
struct Scratch {
  char* at;
  template <class T>
  T* take(int64_t count) {
    char* const taken = at;
    at += (count * static_cast<int64_t>(sizeof(T)) + line_bytes - 1) / line_bytes * line_bytes;
    return reinterpret_cast<T*>(taken);
  }
  int64_t taken() const { return reinterpret_cast<intptr_t>(at); }
};

// Some of the rows ahead at each call.
class Asking {
 public:
  Asking(const Ahead& ahead, int64_t dim, int64_t calls)
      : ahead_(ahead), lines_((dim * 2 + line_bytes - 1) / line_bytes) {
    int64_t rows = 0;
    for (int i = 0; i < ahead.count; ++i)
      rows += ahead.parts[i].rows;
    share_ = (rows + calls - 1) / calls;
  }
  SWITCHBACK_INLINE void some() {
    for (int64_t i = 0; i < share_ && part_ < ahead_.count; ++i) {
      const AheadPart& part = ahead_.parts[part_];
      const char* const row = reinterpret_cast<const char*>(part.data + row_ * part.stride);
      for (int64_t line = 0; line < lines_; ++line)
        _mm_prefetch(row + line * line_bytes, _MM_HINT_T1);
      if (++row_ < part.rows) continue;
      row_ = 0;
      ++part_;
    }
  }

 private:
  const Ahead& ahead_;
  int64_t lines_, share_ = 0, row_ = 0;
  int part_ = 0;
};

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

// ---- Products. Distances are in bytes: of rows, of the next 16 rows or columns, and of the next
// 32 elements of depth.

struct Left {
  const void* data;
  int64_t row, half, step;
};
struct Right {
  const void* data;
  int64_t half, step;
};

// c[32, 32] (+)= left[32, 32 · steps] · right
SWITCHBACK_INLINE void multiply(const Left& left, const Right& right, int64_t steps, float* c,
                                int64_t stride, bool add) {
  finish_stores();
  const int64_t row = stride * static_cast<int64_t>(sizeof(float));
  float* const lower = c + lanes * stride;
  if (add) {
    _tile_loadd(0, c, row);
    _tile_loadd(1, c + lanes, row);
    _tile_loadd(2, lower, row);
    _tile_loadd(3, lower + lanes, row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const char* a = static_cast<const char*>(left.data);
  const char* b = static_cast<const char*>(right.data);
  for (int64_t i = 0; i < steps; ++i, a += left.step, b += right.step) {
    _tile_loadd(4, a, left.row);
    _tile_loadd(6, b, line_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, a + left.half, left.row);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, b + right.half, line_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, row);
  _tile_stored(1, c + lanes, row);
  _tile_stored(2, lower, row);
  _tile_stored(3, lower + lanes, row);
}

// ---- Operands.

SWITCHBACK_INLINE __mmask32 first_of_32(int64_t count) {
  return count >= block ? 0xFFFFFFFFu : count <= 0 ? 0u : (1u << count) - 1;
}
SWITCHBACK_INLINE __mmask16 first_of_16(int64_t count) {
  return static_cast<__mmask16>(first_of_32(count));
}

// Rows of a head, with zeros around them.
struct Operand {
  Rows rows;
  int64_t count, dim;

  // Elements [32 · chunk, 32 · chunk + 32) of a row.
  SWITCHBACK_INLINE __m512i chunk_of(int64_t row, int64_t chunk) const {
    if (row >= count) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(first_of_32(dim - chunk * block),
                                    rows.data + row * rows.stride + chunk * block);
  }
};

// Row i becomes column i.
SWITCHBACK_INLINE void transpose(__m512i* v) {
  __m512i t[16];
  SWITCHBACK_EACH(i, 8) {
    t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  }
  SWITCHBACK_EACH(i, 4) {
    v[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    v[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    v[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    v[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  // v[4 g + j] holds column 4 l + j of rows 4 g to 4 g + 3 in quarter l.
  SWITCHBACK_EACH(j, 4) {
    t[j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xDD);
    t[8 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
    t[12 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xDD);
  }
  SWITCHBACK_EACH(j, 4) {
    v[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
    v[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
    v[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xDD);
    v[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xDD);
  }
}

// Which elements of two vectors of 32 lie side by side: the lower halves of both, or the upper.
SWITCHBACK_INLINE __m512i pairs(bool upper) {
  alignas(64) static constexpr uint16_t index[2][32] = {
      {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  return _mm512_load_si512(index[upper ? 1 : 0]);
}

// Registers of A, row by row: to[rows, 32 · chunks].
void pack_rows(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < chunks; ++c, to += block)
      _mm512_store_si512(to, from.chunk_of(r, c));
}

// Registers of B whose columns are rows of `from`: to[rows / 16][chunks].
void pack_transposed(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; r += lanes)
    for (int64_t c = 0; c < chunks; ++c) {
      __m512i v[lanes];
      SWITCHBACK_EACH(i, lanes) {
        v[i] = from.chunk_of(r + i, c);
      }
      transpose(v);
      SWITCHBACK_EACH(i, lanes) {
        _mm512_store_si512(to, v[i]);
        to += block;
      }
    }
}

// Registers of B whose depth are rows of `from`: to[rows / 32][2 · chunks].
void pack_pairs(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  const __m512i low = pairs(false);
  const __m512i high = pairs(true);
  for (int64_t r = 0; r < rows; r += block)
    for (int64_t c = 0; c < chunks; ++c)
      for (int i = 0; i < lanes; ++i) {
        const __m512i even = from.chunk_of(r + 2 * i, c);
        const __m512i odd = from.chunk_of(r + 2 * i + 1, c);
        uint16_t* const line = to + (r / block * chunks + c) * 2 * (lanes * block) + i * block;
        _mm512_store_si512(line, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_store_si512(line + lanes * block, _mm512_permutex2var_epi16(even, high, odd));
      }
}

// Registers of A whose rows are columns of `from`: to[2 · chunks][rows / 32]. They are the pairs of
// rows, transposed.
void pack_columns(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; r += block)
    for (int64_t c = 0; c < chunks; ++c)
      for (int upper = 0; upper < 2; ++upper) {
        const __m512i index = pairs(upper != 0);
        __m512i v[lanes];
        SWITCHBACK_EACH(i, lanes) {
          v[i] = _mm512_permutex2var_epi16(from.chunk_of(r + 2 * i, c), index,
                                           from.chunk_of(r + 2 * i + 1, c));
        }
        transpose(v);
        uint16_t* const tile =
            to + ((2 * c + upper) * (rows / block) + r / block) * (lanes * block);
        SWITCHBACK_EACH(i, lanes) {
          _mm512_store_si512(tile + i * block, v[i]);
        }
      }
}

// ---- f32 and bf16.

// A factor of a product in the upper half, rounded to nearest, halves away from zero. No carry
// leaves a NaN that was a bf16, or that an operation made.
SWITCHBACK_INLINE __m512i rounded_factor(__m512 v) {
  return _mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x8000));
}
// The upper halves of two vectors.
SWITCHBACK_INLINE __m512i upper_halves(__m512i first, __m512i second) {
  alignas(64) static constexpr uint16_t index[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                     23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                     45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(first, _mm512_load_si512(index), second);
}
// The upper halves of two vectors, side by side.
SWITCHBACK_INLINE __m512i upper_pairs(__m512i even, __m512i odd) {
  return _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(even, 16), odd);
}

// A result: halves to even, and one NaN, as all operations round (quant/cpu/narrow-inl.h).
SWITCHBACK_INLINE __m512i rounded_result(__m512 v) {
  const __m512i kinds = _mm512_set1_epi32(0x11111100);
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000));
  const __m512i bits = _mm512_castps_si512(_mm512_fixupimm_ps(nan, v, kinds, 0));
  const __m512i below = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  return _mm512_mask_add_epi32(below, odd, bits, _mm512_set1_epi32(0x8000));
}
SWITCHBACK_INLINE void put(__m512 first, __m512 second, int64_t count, bool streams, uint16_t* to) {
  const __m512i v = upper_halves(rounded_result(first), rounded_result(second));
  if (count < block)
    _mm512_mask_storeu_epi16(to, first_of_32(count), v);
  else if (streams && reinterpret_cast<uintptr_t>(to) % line_bytes == 0)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), v);
  else
    _mm512_storeu_si512(to, v);
}

// to = scale · from[rows, 32 · chunks]
void put_rows(const float* from, int64_t rows, int64_t dim, int64_t chunks, float scale,
              uint16_t* to, const Results& results) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t r = 0; r < rows; ++r, to += results.stride)
    for (int64_t c = 0; c < chunks; ++c, from += block)
      put(_mm512_mul_ps(_mm512_load_ps(from), factor),
          _mm512_mul_ps(_mm512_load_ps(from + lanes), factor), dim - c * block, results.streams,
          to + c * block);
}
// to = scale · the transpose of from[32 · chunks, tile_queries]
void put_transposed(const float* from, int64_t rows, int64_t dim, int64_t chunks, float scale,
                    uint16_t* to, const Results& results) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t r = 0; r < rows; r += lanes)
    for (int64_t c = 0; c < chunks; ++c) {
      __m512i v[2][lanes];
      SWITCHBACK_EACH(upper, 2) {
        const float* const tile = from + (c * block + upper * lanes) * tile_queries + r;
        SWITCHBACK_EACH(i, lanes) {
          v[upper][i] =
              _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(tile + i * tile_queries), factor));
        }
        transpose(v[upper]);
      }
      const int64_t count = least(lanes, rows - r);
      for (int64_t i = 0; i < count; ++i)
        put(_mm512_castsi512_ps(v[0][i]), _mm512_castsi512_ps(v[1][i]), dim - c * block,
            results.streams, to + (r + i) * results.stride + c * block);
    }
}

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

// Queries of a block: the largest score so far, and the sum of weights relative to it.
struct Queries {
  alignas(64) float max[block];
  alignas(64) float sum[block];
};

// The first `visible` scores of a row, of `keys`, become weights 2^(unit · (score - max)) in bf16,
// relative to the largest so far; the others become 0. Returns what weights before these are to be
// multiplied by.
SWITCHBACK_INLINE float weights_of_row(float* scores, int64_t visible, int64_t keys, float unit,
                                       float* max, float* sum) {
  const int64_t whole = visible / block * block;
  const __m512 before = _mm512_set1_ps(*max);
  __m512 most[2] = {before, before};
  int64_t key = 0;
  for (; key < whole; key += block) {
    most[0] = _mm512_max_ps(most[0], _mm512_load_ps(scores + key));
    most[1] = _mm512_max_ps(most[1], _mm512_load_ps(scores + key + lanes));
  }
  const __mmask16 seen[2] = {first_of_16(visible - whole), first_of_16(visible - whole - lanes)};
  if (whole < visible) SWITCHBACK_EACH(i, 2) {
      most[i] =
          _mm512_mask_max_ps(most[i], seen[i], most[i], _mm512_load_ps(scores + key + i * lanes));
    }
  const float shift = _mm512_reduce_max_ps(_mm512_max_ps(most[0], most[1]));
  const __m512 factor = _mm512_set1_ps(unit);
  const __m512 offset = _mm512_set1_ps(-shift * unit);
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  uint16_t* weights = reinterpret_cast<uint16_t*>(scores);
  for (key = 0; key < whole; key += block, weights += block) {
    __m512 e[2];
    SWITCHBACK_EACH(i, 2) {
      e[i] =
          power_of_two(_mm512_fmadd_ps(_mm512_load_ps(scores + key + i * lanes), factor, offset));
      sums[i] = _mm512_add_ps(sums[i], e[i]);
    }
    _mm512_store_si512(weights, upper_halves(rounded_factor(e[0]), rounded_factor(e[1])));
  }
  if (whole < visible) {
    __m512 e[2];
    SWITCHBACK_EACH(i, 2) {
      e[i] = _mm512_maskz_mov_ps(
          seen[i],
          power_of_two(_mm512_fmadd_ps(_mm512_load_ps(scores + key + i * lanes), factor, offset)));
      sums[i] = _mm512_add_ps(sums[i], e[i]);
    }
    _mm512_store_si512(weights, upper_halves(rounded_factor(e[0]), rounded_factor(e[1])));
    key += block;
    weights += block;
  }
  for (; key < keys; key += block, weights += block)
    _mm512_store_si512(weights, _mm512_setzero_si512());
  const float change = _mm512_cvtss_f32(power_of_two(_mm512_set1_ps((*max - shift) * unit)));
  *max = shift;
  *sum = *sum * change + _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
  return change;
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
float dot_of_rows(const Operand& a, const Operand& b, int64_t row, int64_t chunks) {
  __m512 even = _mm512_setzero_ps();
  __m512 odd = _mm512_setzero_ps();
  for (int64_t c = 0; c < chunks; ++c) {
    const __m512i x = a.chunk_of(row, c);
    const __m512i y = b.chunk_of(row, c);
    even = _mm512_fmadd_ps(lower_as_floats(x), lower_as_floats(y), even);
    odd = _mm512_fmadd_ps(upper_as_floats(x), upper_as_floats(y), odd);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

}  // namespace

int64_t forward_bytes(int64_t length, int64_t dim) {
  Scratch s{nullptr};
  ForwardMemory(s, padded(length), padded(dim));
  return s.taken();
}
int64_t backward_bytes(int64_t length, int64_t dim) {
  Scratch s{nullptr};
  BackwardMemory(s, padded(length), padded(dim));
  return s.taken();
}

void forward(const Forward& task, void* scratch, Times* times) {
  const Head& h = task.head;
  const int64_t dim = padded(h.dim);
  const int64_t chunks = dim / block;
  const int64_t all_keys = padded(task.end);
  const float unit = h.scale * log2_of_e;
  Scratch all{static_cast<char*>(scratch)};
  const ForwardMemory memory(all, all_keys, dim);
  Timer timer(times);
  Asking ahead(task.ahead, h.dim, task.end - task.begin);
  begin_tiles();
  const Rows keys = {h.qkv.data + h.width, h.qkv.stride};
  const Rows values = {h.qkv.data + 2 * h.width, h.qkv.stride};
  pack_transposed({keys, task.end, h.dim}, all_keys, chunks, memory.keys);
  pack_pairs({values, task.end, h.dim}, all_keys, chunks, memory.values);
  const Left query = {memory.query, dim * 2, lanes * dim * 2, line_bytes};
  constexpr int64_t row_bytes = forward_keys * 4;
  const Left weights = {memory.scores, row_bytes, lanes * row_bytes, line_bytes};
  for (int64_t first = task.begin; first < task.end; first += block) {
    const int64_t count = least(block, task.end - first);
    pack_rows({{h.qkv.data + first * h.qkv.stride, h.qkv.stride}, count, h.dim}, block, chunks,
              memory.query);
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
      for (int64_t r = 0; r < count; ++r) {
        const float change =
            weights_of_row(memory.scores + r * forward_keys, least(visible, first + r + 1 - key),
                           visible, unit, queries.max + r, queries.sum + r);
        if (key > 0)
          for (int64_t i = 0; i < dim; i += lanes) {
            float* const o = memory.out + r * dim + i;
            _mm512_store_ps(o, _mm512_mul_ps(_mm512_load_ps(o), _mm512_set1_ps(change)));
          }
        if (key == 0) ahead.some();
      }
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
  Scratch all{static_cast<char*>(scratch)};
  const BackwardMemory memory(all, tokens, dim);
  Timer timer(times);
  Asking ahead(task.ahead, h.dim, blocks * (blocks + 1) / 2 * (block / 2));
  begin_tiles();
  const int64_t stride = h.qkv.stride;
  const Operand keys = {{h.qkv.data + h.width, stride}, h.length, h.dim};
  pack_rows(keys, tokens, chunks, memory.keys);
  pack_columns(keys, tokens, chunks, memory.key_columns);
  pack_rows({{h.qkv.data + 2 * h.width, stride}, h.length, h.dim}, tokens, chunks, memory.values);
  const int64_t dim_bytes = dim * 2;
  constexpr int64_t row_bytes = tile_queries * 2;
  for (int64_t first = 0; first < h.length; first += tile_queries) {
    const int64_t count = least(tile_queries, h.length - first);
    const int64_t queries = padded(count);
    const Operand query = {{h.qkv.data + first * stride, stride}, count, h.dim};
    const Operand gradient = {
        {task.dout.data + first * task.dout.stride, task.dout.stride}, count, h.dim};
    const Operand out = {{task.out.data + first * task.out.stride, task.out.stride}, count, h.dim};
    pack_transposed(query, queries, chunks, memory.query);
    pack_pairs(query, queries, chunks, memory.query_pairs);
    pack_transposed(gradient, queries, chunks, memory.gradient);
    pack_pairs(gradient, queries, chunks, memory.gradient_pairs);
    for (int64_t q = 0; q < queries; ++q) {
      memory.dot[q] = q < count ? dot_of_rows(out, gradient, q, chunks) : 0.0f;
      memory.shift[q] = q < count ? task.logsumexp[first + q] * log2_of_e : 0.0f;
    }
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

bool available() {
  static const bool has_bf16 = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0;
  }();
  return has_bf16;
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
bool available() {
  return false;
}

}  // namespace switchback::models::amx

#endif
