// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: the products, operands and results of attention on AMX tiles. Included by
// attention_amx.cpp alone.
#pragma once

#include <immintrin.h>

#include "core/cpu/amx.hpp"
#include "core/cpu/transpose16.hpp"
#include "core/cpu/unroll.hpp"
#include "models/cpu/attention_amx.hpp"

#define SWITCHBACK_INLINE inline __attribute__((always_inline))
#define SWITCHBACK_EACH(i, count) SWITCHBACK_UNROLL for (int i = 0; i < (count); ++i)

namespace switchback::models::amx {

namespace {

constexpr int lanes = 16;       // f32 of a vector; rows and columns of a tile register
constexpr int block = 32;       // rows and columns of a product; elements of a step
constexpr int line_bytes = 64;  // a row of a tile register
constexpr int register_bytes = 1024;
// Queries of a tile in backward.
constexpr int64_t tile_queries = 128;

constexpr int64_t padded(int64_t n) {
  return (n + block - 1) / block * block;
}
constexpr int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

void begin_tiles() {
  core::TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.row_bytes[i] = line_bytes;
    config.rows[i] = lanes;
  }
  core::finish_stores();
  _tile_loadconfig(&config);
}

// Hands out parts of the scratch memory, or, from 0 on, counts its bytes.
struct Scratch {
  uintptr_t at;
  template <class T>
  T* take(int64_t count) {
    const uintptr_t taken = at;
    at += (static_cast<uintptr_t>(count) * sizeof(T) + line_bytes - 1) / line_bytes * line_bytes;
    return reinterpret_cast<T*>(taken);
  }
  int64_t taken() const { return static_cast<int64_t>(at); }
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
  core::finish_stores();
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
  template <bool whole>
  SWITCHBACK_INLINE __m512i chunk_of(int64_t row, int64_t chunk) const {
    const uint16_t* const at = rows.data + row * rows.stride + chunk * block;
    if (whole) return _mm512_loadu_si512(at);
    if (row >= count) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(first_of_32(dim - chunk * block), at);
  }
  // Whether its first `padded_rows` rows have no zeros around them.
  [[nodiscard]] bool is_whole(int64_t padded_rows) const {
    return padded_rows <= count && dim % block == 0;
  }
};

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
template <bool whole>
void pack_rows(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < chunks; ++c, to += block)
      _mm512_store_si512(to, from.chunk_of<whole>(r, c));
}

// Registers of B whose columns are rows of `from`: to[rows / 16][chunks].
template <bool whole>
void pack_transposed(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; r += lanes)
    for (int64_t c = 0; c < chunks; ++c) {
      __m512i v[lanes];
      SWITCHBACK_EACH(i, lanes) {
        v[i] = from.chunk_of<whole>(r + i, c);
      }
      core::transpose16(v);
      SWITCHBACK_EACH(i, lanes) {
        _mm512_store_si512(to, v[i]);
        to += block;
      }
    }
}

// Registers of B whose depth are rows of `from`: to[rows / 32][2 · chunks].
template <bool whole>
void pack_pairs(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  const __m512i low = pairs(false);
  const __m512i high = pairs(true);
  for (int64_t r = 0; r < rows; r += block)
    for (int64_t c = 0; c < chunks; ++c)
      for (int i = 0; i < lanes; ++i) {
        const __m512i even = from.chunk_of<whole>(r + 2 * i, c);
        const __m512i odd = from.chunk_of<whole>(r + 2 * i + 1, c);
        uint16_t* const line = to + (r / block * chunks + c) * 2 * (lanes * block) + i * block;
        _mm512_store_si512(line, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_store_si512(line + lanes * block, _mm512_permutex2var_epi16(even, high, odd));
      }
}

// Registers of A whose rows are columns of `from`: to[2 · chunks][rows / 32]. They are the pairs of
// rows, transposed.
template <bool whole>
void pack_columns(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; r += block)
    for (int64_t c = 0; c < chunks; ++c)
      for (int upper = 0; upper < 2; ++upper) {
        const __m512i index = pairs(upper != 0);
        __m512i v[lanes];
        SWITCHBACK_EACH(i, lanes) {
          v[i] = _mm512_permutex2var_epi16(from.chunk_of<whole>(r + 2 * i, c), index,
                                           from.chunk_of<whole>(r + 2 * i + 1, c));
        }
        core::transpose16(v);
        uint16_t* const tile =
            to + ((2 * c + upper) * (rows / block) + r / block) * (lanes * block);
        SWITCHBACK_EACH(i, lanes) {
          _mm512_store_si512(tile + i * block, v[i]);
        }
      }
}

// A packing of operands that may have zeros around them.
#define SWITCHBACK_PACK(pack, from, rows, chunks, to) \
  ((from).is_whole(rows) ? pack<true>(from, rows, chunks, to) : pack<false>(from, rows, chunks, to))

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
        core::transpose16(v[upper]);
      }
      const int64_t count = least(lanes, rows - r);
      for (int64_t i = 0; i < count; ++i)
        put(_mm512_castsi512_ps(v[0][i]), _mm512_castsi512_ps(v[1][i]), dim - c * block,
            results.streams, to + (r + i) * results.stride + c * block);
    }
}

}  // namespace

}  // namespace switchback::models::amx
