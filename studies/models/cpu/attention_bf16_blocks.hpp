// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: packs the operands of bf16 attention into blocks, and stores blocks of
// results. Included only by the kernels of each instruction set.
#pragma once

#include <immintrin.h>

#include "core/cpu/transpose16.hpp"
#include "core/cpu/unroll.hpp"
#include "studies/models/cpu/attention_bf16_task.hpp"

#define SWITCHBACK_INLINE inline __attribute__((always_inline))
#define SWITCHBACK_EACH(i, count) SWITCHBACK_UNROLL for (int i = 0; i < (count); ++i)

namespace switchback::models::bf16 {

namespace {

constexpr int lanes = 16;       // f32 elements of a vector; rows and columns of a tile register
constexpr int block = 32;       // rows and columns of a block of C; depth of a step in elements
constexpr int line_bytes = 64;  // bytes in a row of a tile register
constexpr int register_bytes = 1024;
constexpr int register_floats = lanes * lanes;
constexpr int block_floats = block * block;

constexpr int64_t padded(int64_t n) {
  return (n + block - 1) / block * block;
}
constexpr int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// Divides scratch memory into arrays. If it starts at address 0, it counts how many bytes they
// need.
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

// Prefetches a few lines of the next task at each call. More requests at once than a core can wait
// for would delay the following code.
class Asking {
 public:
  Asking(const Ahead& ahead, int64_t dim, int64_t calls)
      : part_(ahead.parts),
        end_(ahead.parts + ahead.count),
        row_bytes_((dim * 2 + line_bytes - 1) / line_bytes * line_bytes) {
    int64_t rows = 0;
    for (const AheadPart* part = part_; part < end_; ++part)
      rows += part->rows;
    share_ = (rows * row_bytes_ / line_bytes + calls - 1) / calls;
    begin_part();
  }
  SWITCHBACK_INLINE void some() {
    for (int64_t i = 0; i < share_ && rows_ > 0; ++i) {
      _mm_prefetch(at_ + offset_, _MM_HINT_T1);
      offset_ += line_bytes;
      if (offset_ < row_bytes_) continue;
      offset_ = 0;
      at_ += stride_;
      if (--rows_ > 0) continue;
      ++part_;
      begin_part();
    }
  }

 private:
  void begin_part() {
    if (part_ >= end_) return;
    at_ = reinterpret_cast<const char*>(part_->data);
    stride_ = part_->stride * 2;
    rows_ = part_->rows;
  }
  const AheadPart* part_;
  const AheadPart* end_;
  const char* at_ = nullptr;
  int64_t row_bytes_, share_ = 0, offset_ = 0, stride_ = 0, rows_ = 0;
};

// ---- Products. Factors and sums are stored as the contents of AMX tile registers: 16 lines of 64
// bytes that are contiguous in memory. (Rows at a distance of a power of two would share a few sets
// of a cache.) This file calls such contents a register. A register of A is 16 rows of 32 elements
// in row order. A register of B is 16 pairs of rows and 16 columns; the two elements of a pair in
// one column are adjacent.
//
// A block [32, 32] of f32 is four registers: first rows 0 to 15 with columns 0 to 15 and 16 to 31,
// then the other rows. In a factor, `half` is the distance in bytes to the next 16 rows or columns,
// and `step` that to the next 32 elements of depth.
struct Factor {
  const void* data;
  int64_t half, step;
};

// Which part of a product is needed in a block on the diagonal, where queries do not see the keys
// after them. Kernels may compute more than that. The other elements of c are undefined, those of
// the left factor are zero.
enum class Seen {
  all,
  columns_to,    // c[query, key]: row r needs columns up to r
  columns_from,  // c[key, query]: row r needs columns from r on
  depth_to,      // left[query, key]: in the last step, row r has elements up to r
  depth_from     // left[key, query]: in the first step, row r has elements from r on
};

// ---- Packed operands. A block of an operand is 32 rows and 32 columns, that is, two registers. If
// the depth of a product runs along the operand's rows, row i and row i + 16 form a pair, because
// the attention weights of two vectors are interleaved that way. Then the columns of the first
// register are those in the lower halves of each 16 bytes, and those of the second register are in
// the upper halves; `joined` restores their order.

SWITCHBACK_INLINE __mmask32 first_of_32(int64_t count) {
  return count >= block ? 0xFFFFFFFFu : count <= 0 ? 0u : (1u << count) - 1;
}
SWITCHBACK_INLINE __mmask16 first_of_16(int64_t count) {
  return static_cast<__mmask16>(first_of_32(count));
}

// The rows of a head as an operand: `count` rows of `dim` elements, as if zeros surrounded them.
struct Operand {
  Rows rows;
  int64_t count, dim;

  // Loads elements [32 · chunk, 32 · chunk + 32) of a row; zeros outside of the operand.
  template <bool whole>
  SWITCHBACK_INLINE __m512i chunk_of(int64_t row, int64_t chunk) const {
    const uint16_t* const at = rows.data + row * rows.stride + chunk * block;
    if (whole) return _mm512_loadu_si512(at);
    if (row >= count) return _mm512_setzero_si512();
    return _mm512_maskz_loadu_epi16(first_of_32(dim - chunk * block), at);
  }
  // Whether the first `padded_rows` rows, in whole chunks of 32 columns, need no zeros.
  [[nodiscard]] bool is_whole(int64_t padded_rows) const {
    return padded_rows <= count && dim % block == 0;
  }
};

constexpr int64_t block_elements = block * block;

// Packs `from` as registers of A with the same rows: to[rows / 32][chunks].
template <bool whole>
void pack_rows(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < chunks; ++c)
      _mm512_store_si512(to + (r / block * chunks + c) * block_elements + r % block * block,
                         from.chunk_of<whole>(r, c));
}

// Packs the transpose of `from` as registers of B, whose columns are its rows: to[rows /
// 32][chunks].
template <bool whole>
void pack_transposed(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; r += lanes)
    for (int64_t c = 0; c < chunks; ++c) {
      __m512i v[lanes];
      SWITCHBACK_EACH(i, lanes) {
        v[i] = from.chunk_of<whole>(r + i, c);
      }
      core::transpose16(v);
      uint16_t* const tile = to + (r / block * chunks + c) * block_elements + r % block * block;
      SWITCHBACK_EACH(i, lanes) {
        _mm512_store_si512(tile + i * block, v[i]);
      }
    }
}

// Packs `from` as registers of B whose depth runs along its rows: to[rows / 32][chunks].
template <bool whole>
void pack_pairs(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; r += block)
    for (int64_t c = 0; c < chunks; ++c, to += block_elements)
      SWITCHBACK_EACH(i, lanes) {
        const __m512i first = from.chunk_of<whole>(r + i, c);
        const __m512i second = from.chunk_of<whole>(r + lanes + i, c);
        _mm512_store_si512(to + i * block, _mm512_unpacklo_epi16(first, second));
        _mm512_store_si512(to + (lanes + i) * block, _mm512_unpackhi_epi16(first, second));
      }
}

// Packs the transpose of `from` as registers of A, whose rows are its columns: to[chunks][rows /
// 32]. These are the registers that pack_pairs makes, transposed.
template <bool whole>
void pack_columns(const Operand& from, int64_t rows, int64_t chunks, uint16_t* to) {
  for (int64_t r = 0; r < rows; r += block)
    for (int64_t c = 0; c < chunks; ++c) {
      uint16_t* const tile = to + (c * (rows / block) + r / block) * block_elements;
      for (int upper = 0; upper < 2; ++upper) {
        __m512i v[lanes];
        SWITCHBACK_EACH(i, lanes) {
          const __m512i first = from.chunk_of<whole>(r + i, c);
          const __m512i second = from.chunk_of<whole>(r + lanes + i, c);
          v[i] = upper != 0 ? _mm512_unpackhi_epi16(first, second)
                            : _mm512_unpacklo_epi16(first, second);
        }
        core::transpose16(v);
        SWITCHBACK_EACH(i, lanes) {
          _mm512_store_si512(tile + (upper * lanes + i) * block, v[i]);
        }
      }
    }
}

// Calls a pack function for operands that may need zeros around them.
#define SWITCHBACK_PACK(pack, from, rows, chunks, to) \
  ((from).is_whole(rows) ? pack<true>(from, rows, chunks, to) : pack<false>(from, rows, chunks, to))

// ---- Rounds f32 to bf16 and stores results.

// Rounds f32 to bf16 for a factor of a product: to nearest, halves away from zero. The bf16 is the
// upper half of each element. The carry cannot turn a NaN into a number if the NaN was a bf16 or
// the result of an operation.
SWITCHBACK_INLINE __m512i rounded_factor(__m512 v) {
  return _mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x8000));
}
// Interleaves the upper halves (bf16) of the elements of two vectors.
SWITCHBACK_INLINE __m512i beside(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(first, 16), second);
}
// Packs the upper halves (bf16) of the elements of two vectors. Each 16 bytes of the result hold
// four of `lower` and then four of `upper`, from the same 16 bytes of both.
SWITCHBACK_INLINE __m512i joined(__m512i lower, __m512i upper) {
  return _mm512_packus_epi32(_mm512_srli_epi32(lower, 16), _mm512_srli_epi32(upper, 16));
}

// Rounds f32 to bf16 for a result: halves to even, with a single NaN, as all operations of this
// library round (quant/cpu/narrow-inl.h).
SWITCHBACK_INLINE __m512i rounded_result(__m512 v) {
  const __m512i kinds = _mm512_set1_epi32(0x11111100);
  const __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000));
  const __m512i bits = _mm512_castps_si512(_mm512_fixupimm_ps(nan, v, kinds, 0));
  const __m512i below = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  return _mm512_mask_add_epi32(below, odd, bits, _mm512_set1_epi32(0x8000));
}
SWITCHBACK_INLINE void put(__m512i v, int64_t count, bool streams, uint16_t* to) {
  if (count < block)
    _mm512_mask_storeu_epi16(to, first_of_32(count), v);
  else if (streams && reinterpret_cast<uintptr_t>(to) % line_bytes == 0)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), v);
  else
    _mm512_storeu_si512(to, v);
}

// Stores from[rows, 32 · chunks] as bf16 rows of a result, each row multiplied by its scale. `from`
// is in blocks: blocks[rows / 32][chunks].
template <class Scale>
SWITCHBACK_INLINE void put_rows(const float* from, int64_t rows, int64_t dim, int64_t chunks,
                                const Scale& scale, uint16_t* to, const Results& results) {
  for (int64_t r = 0; r < rows; ++r, to += results.stride) {
    const __m512 factor = _mm512_set1_ps(scale(r));
    for (int64_t c = 0; c < chunks; ++c) {
      const float* const at = from + (r / block * chunks + c) * block_floats +
                              r % block / lanes * (2 * register_floats) + r % lanes * lanes;
      put(joined(rounded_result(_mm512_mul_ps(_mm512_load_ps(at), factor)),
                 rounded_result(_mm512_mul_ps(_mm512_load_ps(at + register_floats), factor))),
          dim - c * block, results.streams, to + c * block);
    }
  }
}
// Stores scale · the transpose of a block of 32 columns as bf16 rows of a result; `count` columns
// and `rows` rows of the result are valid. Elements that become neighbours are interleaved first,
// so that the transposition moves pairs.
void put_transposed(const float* from, int64_t rows, int64_t count, float scale, uint16_t* to,
                    const Results& results) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (int64_t r = 0; r < rows; r += lanes, from += register_floats) {
    __m512i v[lanes];
    SWITCHBACK_EACH(i, lanes) {
      // Each 16 bytes of a result row are four pairs: two from the upper rows of the block, two
      // from the lower.
      const float* const at =
          from + i % 4 / 2 * (2 * register_floats) + (i / 4 * 4 + i % 2 * 2) * lanes;
      v[i] = beside(rounded_result(_mm512_mul_ps(_mm512_load_ps(at), factor)),
                    rounded_result(_mm512_mul_ps(_mm512_load_ps(at + lanes), factor)));
    }
    core::transpose16(v);
    const int64_t some = least(lanes, rows - r);
    for (int64_t i = 0; i < some; ++i, to += results.stride)
      put(v[i], count, results.streams, to);
  }
}

}  // namespace

}  // namespace switchback::models::bf16
