// SPDX-License-Identifier: Apache-2.0
// Engine zone: the code that the kernels with AVX-512 share: packing in groups of 4 codes, and the
// work on finished sums. In an unnamed namespace, like everything that is compiled for an
// instruction set.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "core/cpu/transpose16.hpp"
#include "core/numerics.hpp"
#include "gemm/int8/cpu/micro_kernel.hpp"

namespace switchback::gemm_int8 {
namespace {

inline __mmask64 first64(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}
inline __mmask16 first16(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFFu : (1u << count) - 1u);
}

template <bool Stream>
inline __attribute__((always_inline)) void store_group(void* group, __m512i codes) {
  if constexpr (Stream)
    _mm512_stream_si512(static_cast<__m512i*>(group), codes);
  else
    _mm512_store_si512(group, codes);
}

// Implements MicroKernel::pack_rows, or stream_rows, for strips of StripCols columns. Offset is
// added to each code. The last group of a row is filled up with zeros.
template <unsigned char Offset, int StripCols, bool Stream = false>
void pack_rows(const int8_t* b, int64_t stride_b, int n, int64_t k, void* strip) {
  auto* out = static_cast<uint8_t*>(strip);
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(Offset));
  for (int64_t i = 0; i < k; i += 64) {
    const int64_t codes = k - i < 64 ? k - i : 64;
    const int groups = static_cast<int>((codes + 3) / 4);
    __m512i rows[16];
    if (codes == 64 && n == 16) {
      SWITCHBACK_UNROLL
      for (int r = 0; r < 16; ++r)
        rows[r] = _mm512_xor_si512(_mm512_loadu_si512(b + r * stride_b + i), offset);
    } else {
      const __mmask64 mask = first64(codes);
      SWITCHBACK_UNROLL
      for (int r = 0; r < 16; ++r)
        rows[r] =
            r < n ? _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, b + r * stride_b + i), offset)
                  : offset;
    }
    core::transpose16(rows);
    uint8_t* at = out + i * StripCols;
    if (groups == 16) {
      SWITCHBACK_UNROLL
      for (int g = 0; g < 16; ++g)
        store_group<Stream>(at + g * StripCols * 4, rows[g]);
    } else {
      SWITCHBACK_UNROLL
      for (int g = 0; g < 16; ++g)
        if (g < groups) _mm512_store_si512(at + g * StripCols * 4, rows[g]);
    }
  }
}

// Implements MicroKernel::stream_columns: takes 4 codes along k of 64 columns at a time.
template <unsigned char Offset, int StripCols>
void stream_columns(const int8_t* b, int64_t stride_b, int64_t k, void* strip,
                    int64_t strip_bytes) {
  static_assert(MicroKernel::stream_width == 64);
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(Offset));
  auto* out = static_cast<unsigned char*>(strip);
  for (int64_t i = 0; i < k; i += 4, out += StripCols * 4) {
    __m512i rows[4];
    SWITCHBACK_UNROLL
    for (int r = 0; r < 4; ++r)
      rows[r] = _mm512_xor_si512(_mm512_loadu_si512(b + (i + r) * stride_b), offset);
    // Of each 16 columns, partP has columns 4P to 4P + 3.
    const __m512i low01 = _mm512_unpacklo_epi8(rows[0], rows[1]);
    const __m512i high01 = _mm512_unpackhi_epi8(rows[0], rows[1]);
    const __m512i low23 = _mm512_unpacklo_epi8(rows[2], rows[3]);
    const __m512i high23 = _mm512_unpackhi_epi8(rows[2], rows[3]);
    const __m512i part0 = _mm512_unpacklo_epi16(low01, low23);
    const __m512i part1 = _mm512_unpackhi_epi16(low01, low23);
    const __m512i part2 = _mm512_unpacklo_epi16(high01, high23);
    const __m512i part3 = _mm512_unpackhi_epi16(high01, high23);
    // Collects the parts of the left 32 columns, and those of the right 32.
    const __m512i left01 = _mm512_shuffle_i32x4(part0, part1, 0x44);
    const __m512i left23 = _mm512_shuffle_i32x4(part2, part3, 0x44);
    const __m512i right01 = _mm512_shuffle_i32x4(part0, part1, 0xEE);
    const __m512i right23 = _mm512_shuffle_i32x4(part2, part3, 0xEE);
    const auto at = [&](int col) __attribute__((always_inline)) {
      return out + col / StripCols * strip_bytes + col % StripCols * 4;
    };
    store_group<true>(at(0), _mm512_shuffle_i32x4(left01, left23, 0x88));
    store_group<true>(at(16), _mm512_shuffle_i32x4(left01, left23, 0xDD));
    store_group<true>(at(32), _mm512_shuffle_i32x4(right01, right23, 0x88));
    store_group<true>(at(48), _mm512_shuffle_i32x4(right01, right23, 0xDD));
  }
}

// Stores results as f32. rounded() rounds 16 results to the output type, store() stores those that
// a mask selects, and stream() stores all 16 with a non-temporal store. StoreF16 and StoreBf16 do
// the same for their types.
struct StoreF32 {
  static constexpr int bytes = 4;
  static __m512 rounded(__m512 y) { return y; }
  static void store(void* d, __mmask16 mask, __m512 y) { _mm512_mask_storeu_ps(d, mask, y); }
  static void stream(void* d, __m512 y) { _mm512_stream_ps(static_cast<float*>(d), y); }
};

// The part that StoreF16 and StoreBf16 share.
struct Store16 {
  static constexpr int bytes = 2;
  static void store(void* d, __mmask16 mask, __m256i y) { _mm256_mask_storeu_epi16(d, mask, y); }
  static void stream(void* d, __m256i y) { _mm256_stream_si256(static_cast<__m256i*>(d), y); }
  // Joins two halves, of 16 elements each, to a whole cache line.
  static __m512i both(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
};

struct StoreF16 : Store16 {
  static __m256i rounded(__m512 y) {
    // The instruction keeps a NaN's payload, but half(float) keeps only its sign.
    const __mmask16 nan = _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q);
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(y), _mm512_set1_epi32(INT32_MIN));
    const __m512i quiet = _mm512_or_si512(sign, _mm512_set1_epi32(0x7FC00000));
    const __m512 clean = _mm512_mask_blend_ps(nan, y, _mm512_castsi512_ps(quiet));
    return _mm512_cvtps_ph(clean, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m512i rounded(__m512 low, __m512 high) { return both(rounded(low), rounded(high)); }
};

alignas(64) constexpr uint16_t odd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                          23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                          45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

// Rounds f32 to bf16, which is the upper half of each 32-bit result. Not for NaN.
inline __attribute__((always_inline)) __m512i round_bf16(__m512i u) {
  const __m512i even = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), even);
}

// vcvtneps2bf16 treats subnormals as zero. Vectors that contain one are rounded with integer
// operations, and so are all vectors on CPUs without the instruction.
struct StoreBf16 : Store16 {
  static __m256i rounded(__m512 y) {
#if defined(__AVX512BF16__)
    constexpr int subnormal = 0x20;
    if (__builtin_expect(_mm512_fpclass_ps_mask(y, subnormal) == 0, 1))
      return (__m256i)_mm512_cvtneps_pbh(y);
#endif
    return rounded_by_integers(y);
  }
  static __m512i rounded(__m512 low, __m512 high) {
#if !defined(__AVX512BF16__)
    // This takes half the operations, but would lose a NaN.
    if (__builtin_expect(_mm512_cmp_ps_mask(low, high, _CMP_UNORD_Q) == 0, 1))
      return _mm512_permutex2var_epi16(round_bf16(_mm512_castps_si512(low)), _mm512_load_si512(odd),
                                       round_bf16(_mm512_castps_si512(high)));
#endif
    return both(rounded(low), rounded(high));
  }

 private:
  static __m256i rounded_by_integers(__m512 y) {
    const __m512i u = _mm512_castps_si512(y);
    const __mmask16 nan = _mm512_cmp_ps_mask(y, y, _CMP_UNORD_Q);
    const __m512i high = _mm512_srli_epi32(u, 16);
    const __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i up = _mm512_srli_epi32(
        _mm512_add_epi32(u, _mm512_add_epi32(even, _mm512_set1_epi32(0x7FFF))), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, up, quiet));
  }
};

// Dequantizes 16 sums by the formula of the epilogue, operation by operation.
inline __attribute__((always_inline)) __m512 dequantized(__m512i sums, __m512 scale_a,
                                                         __m512 scale_b, __m512 bias) {
  const __m512 c = _mm512_set1_ps(core::inverse_127_squared);
  const __m512 y = _mm512_mul_ps(scale_a, _mm512_mul_ps(_mm512_cvtepi32_ps(sums), c));
  return _mm512_add_ps(_mm512_mul_ps(scale_b, y), bias);
}

template <class Store, bool Stream>
inline void dequantize_rows(const EpilogueTile& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const int32_t* sums = t.sums + r * t.stride_sums;
    auto* d = static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes;
    const __m512 scale_a = _mm512_set1_ps(t.scale_a[r]);
    for (int64_t j = 0; j < t.cols; j += 16) {
      const auto out =
          Store::rounded(dequantized(_mm512_loadu_si512(sums + j), scale_a,
                                     _mm512_loadu_ps(t.scale_b + j), _mm512_loadu_ps(t.bias + j)));
      if constexpr (Stream)
        Store::stream(d + j * Store::bytes, out);
      else
        Store::store(d + j * Store::bytes, first16(t.cols - j), out);
    }
  }
}

template <class Store>
void dequantize(const EpilogueTile& t) {
  if (t.streams && t.cols % 16 == 0)
    dequantize_rows<Store, true>(t);
  else
    dequantize_rows<Store, false>(t);
}

void copy_sums(const EpilogueTile& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const int32_t* sums = t.sums + r * t.stride_sums;
    auto* d = static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes;
    for (int64_t j = 0; j < t.cols; j += 16)
      _mm512_mask_storeu_epi32(d + j * 4, first16(t.cols - j), _mm512_loadu_si512(sums + j));
  }
}

constexpr MicroKernel::Epilogue epilogues[output_count] = {
    dequantize<StoreF32>, dequantize<StoreF16>, dequantize<StoreBf16>, nullptr, copy_sums};

// Stores int32 sums unchanged.
struct StoreS32 {
  static constexpr int bytes = 4;
  static void store(void* d, __mmask16 mask, __m512i sums) {
    _mm512_mask_storeu_epi32(d, mask, sums);
  }
  static void stream(void* d, __m512i sums) { _mm512_stream_si512(static_cast<__m512i*>(d), sums); }
};

// The epilogue or promotion of a tile's rows, done a few rows at a time. Each call of Row does the
// next row.
template <class Row>
class Rows {
 public:
  inline __attribute__((always_inline)) Rows(const Row& row, int64_t count)
      : row_(row), left_(count) {}

  inline __attribute__((always_inline)) void some(int64_t count) {
    if (count > left_) count = left_;
    left_ -= count;
    for (; count > 0; --count)
      row_();
  }
  inline __attribute__((always_inline)) void rest() { some(left_); }
  [[nodiscard]] int64_t left() const { return left_; }

 private:
  Row row_;
  int64_t left_;
};

// A mask of the 16 columns from 16 · v on: it selects those below `cols`.
inline __mmask16 columns_of(int64_t cols, int v) {
  return cols > v * 16 ? first16(cols - v * 16) : __mmask16{0};
}

// Stores 16 results: those that a mask selects, or all of them with a non-temporal store.
template <class Store, class Values>
inline __attribute__((always_inline)) void put(unsigned char* d, __mmask16 mask, bool streams,
                                               Values y) {
  if (streams)
    Store::stream(d, y);
  else
    Store::store(d, mask, y);
}

// The epilogue of a tile's rows of at most Cols columns; each call does the next row. Each call
// also prefetches the same row of `next`, the tile whose epilogue follows. `next` may be null.
template <int Cols, class Store>
class EpilogueRow {
 public:
  inline __attribute__((always_inline)) EpilogueRow(const EpilogueTile& t, const EpilogueTile* next)
      : sums_(t.sums),
        stride_sums_(t.stride_sums),
        d_(static_cast<unsigned char*>(t.d)),
        stride_d_(t.stride_d_bytes),
        streams_(t.streams && t.cols >= Cols),
        scale_a_(t.scale_a) {
    // The rows of `next` have the same stride as those of d.
    if (next != nullptr && !streams_ && next->cols >= Cols && next->rows >= t.rows)
      to_next_ = static_cast<const unsigned char*>(next->d) - d_;
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v) {
      stored_[v] = columns_of(t.cols, v);
      if constexpr (scaled) {
        scale_b_[v] = _mm512_maskz_loadu_ps(stored_[v], t.scale_b + v * 16);
        bias_[v] = _mm512_maskz_loadu_ps(stored_[v], t.bias + v * 16);
      }
    }
  }

  inline __attribute__((always_inline)) void operator()() {
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const __m512i sums = _mm512_loadu_si512(sums_ + v * 16);
      unsigned char* const d = d_ + v * 16 * Store::bytes;
      if constexpr (scaled)
        put<Store>(
            d, stored_[v], streams_,
            Store::rounded(dequantized(sums, _mm512_set1_ps(*scale_a_), scale_b_[v], bias_[v])));
      else
        put<Store>(d, stored_[v], streams_, sums);
    }
    if (to_next_ != 0) {
      SWITCHBACK_UNROLL
      for (int byte = 0; byte < Cols * Store::bytes; byte += 64)
        __builtin_prefetch(d_ + to_next_ + byte, 1);
    }
    sums_ += stride_sums_;
    if constexpr (scaled) ++scale_a_;
    d_ += stride_d_;
  }

 private:
  static constexpr int vectors = Cols / 16;
  static constexpr bool scaled = !__is_same(Store, StoreS32);

  const int32_t* sums_;
  int64_t stride_sums_;
  unsigned char* d_;
  int64_t stride_d_;
  int64_t to_next_ = 0;
  bool streams_;
  const float* scale_a_;
  __m512 scale_b_[vectors];
  __m512 bias_[vectors];
  __mmask16 stored_[vectors];
};

// Calls use(rows), where `rows` does the epilogues of a tile's rows for this output type.
template <int Cols, class Use>
inline __attribute__((always_inline)) void with_epilogue(const EpilogueTile& t, Output output,
                                                         const EpilogueTile* next, const Use& use) {
  const auto of = [&](const auto& row) __attribute__((always_inline)) {
    use(Rows(row, t.rows));
  };
  switch (output) {
    case Output::f32:
      return of(EpilogueRow<Cols, StoreF32>(t, next));
    case Output::f16:
      return of(EpilogueRow<Cols, StoreF16>(t, next));
    case Output::bf16:
      return of(EpilogueRow<Cols, StoreBf16>(t, next));
    case Output::s32:
      return of(EpilogueRow<Cols, StoreS32>(t, next));
  }
}

// The promotion of a tile's rows in a blockwise product; each call does the next row. If there is a
// Store, the block ends a superblock: the f32 sums go to d in its type instead of back to memory.
//
// Where a mask excludes all 16 values of a load, the address is that of the scales. It must not be
// that of scratch memory which was never written. Such a load does not make missing pages present,
// so each one causes an exception that the CPU handles and drops in microcode (Zen 4: 128 rows of a
// layer from 4096 to 1024 took 80 ms instead of 3).
template <int Cols, class Store>
class PromotionRow {
 public:
  inline __attribute__((always_inline)) explicit PromotionRow(const PromotionTile& t)
      : sums_(t.sums),
        from_(t.first ? t.scale_b : t.p),
        stride_from_(t.first ? 0 : Cols),
        kept_(t.first ? 0 : 0xFFFF),
        p_(t.p),
        scale_a_(t.scale_a) {
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v)
      scale_b_[v] = _mm512_loadu_ps(t.scale_b + v * 16);
    if constexpr (folds) {
      const FoldTile& fold = *t.fold;
      const bool starts = fold.start != nullptr;
      start_ = static_cast<const unsigned char*>(starts ? fold.start : t.scale_b);
      stride_start_ = starts ? fold.stride_start_bytes : 0;
      d_ = static_cast<unsigned char*>(fold.d);
      stride_d_ = fold.stride_d_bytes;
      whole_ = fold.cols >= Cols;
      streams_ = fold.streams && whole_;
      SWITCHBACK_UNROLL
      for (int v = 0; v < vectors; ++v) {
        stored_[v] = columns_of(fold.cols, v);
        started_[v] = starts ? stored_[v] : __mmask16{0};
      }
    }
  }

  inline __attribute__((always_inline)) void operator()() {
    __m512i sums[vectors];
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v)
      sums[v] = _mm512_load_si512(sums_ + v * 16);
    sums_ += Cols;
    add(sums);
  }

  // Promotes the next row, given its int32 sums.
  inline __attribute__((always_inline)) void add(const __m512i (&sums)[Cols / 16]) {
    const __m512 scale_a = _mm512_set1_ps(*scale_a_++);
    __m512 results[vectors];
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const __m512 sum = _mm512_cvtepi32_ps(sums[v]);
      const __m512 scaled = _mm512_mul_ps(sum, scale_b_[v]);
      const __m512 p =
          _mm512_fmadd_ps(scaled, scale_a, _mm512_maskz_loadu_ps(kept_, from_ + v * 16));
      if constexpr (folds) {
        const __m512 start = _mm512_maskz_loadu_ps(started_[v], start_ + v * 64);
        results[v] = _mm512_fmadd_ps(p, _mm512_set1_ps(core::inverse_127_squared), start);
      } else {
        _mm512_store_ps(p_ + v * 16, p);
      }
    }
    from_ += stride_from_;
    if constexpr (folds) {
      store(results);
      start_ += stride_start_;
      d_ += stride_d_;
    } else {
      p_ += Cols;
    }
  }

 private:
  static constexpr int vectors = Cols / 16;
  static constexpr bool folds = !__is_same(Store, void);

  // Stores a row of d. Two 16-bit halves of a cache line are joined and stored at once: as two
  // non-temporal stores they might reach memory separately.
  inline __attribute__((always_inline)) void store(const __m512 (&results)[vectors]) {
    if constexpr (Store::bytes == 2) {
      if (whole_) {
        SWITCHBACK_UNROLL
        for (int v = 0; v < vectors; v += 2) {
          const __m512i line = Store::rounded(results[v], results[v + 1]);
          if (streams_)
            _mm512_stream_si512(reinterpret_cast<__m512i*>(d_ + v * 32), line);
          else
            _mm512_storeu_si512(d_ + v * 32, line);
        }
        return;
      }
    }
    SWITCHBACK_UNROLL
    for (int v = 0; v < vectors; ++v)
      put<Store>(d_ + v * 16 * Store::bytes, stored_[v], streams_, Store::rounded(results[v]));
  }

  const int32_t* sums_;
  const float* from_;
  int64_t stride_from_;
  __mmask16 kept_;
  float* p_;
  const float* scale_a_;
  __m512 scale_b_[vectors];
  const unsigned char* start_ = nullptr;
  int64_t stride_start_ = 0;
  unsigned char* d_ = nullptr;
  int64_t stride_d_ = 0;
  bool whole_ = false;
  bool streams_ = false;
  __mmask16 stored_[vectors] = {};
  __mmask16 started_[vectors] = {};
};

// Calls use(row) with the PromotionRow of a tile, which begins with the tile's first row.
template <int Cols, class Use>
inline __attribute__((always_inline)) void with_promotion_row(const PromotionTile& t,
                                                              const Use& use) {
  if (t.fold == nullptr)
    use(PromotionRow<Cols, void>(t));
  else if (t.fold->output == Output::f32)
    use(PromotionRow<Cols, StoreF32>(t));
  else if (t.fold->output == Output::f16)
    use(PromotionRow<Cols, StoreF16>(t));
  else
    use(PromotionRow<Cols, StoreBf16>(t));
}

// Calls use(rows), where `rows` does the promotions of a tile's rows.
template <int Cols, class Use>
inline __attribute__((always_inline)) void with_promotion(const PromotionTile& t, const Use& use) {
  with_promotion_row<Cols>(
      t, [&](const auto& row) __attribute__((always_inline)) { use(Rows(row, t.rows)); });
}

template <int Cols>
void promote(const PromotionTile& t) {
  with_promotion<Cols>(t, [](auto rows) { rows.rest(); });
}

// Prefetches the cache lines of a tile's output one by one, while its sums are computed. Stores to
// lines that are not yet in a cache would delay the next tile: 3 % at M = K = 1024, N = 4096.
class OutputLines {
 public:
  inline __attribute__((always_inline)) OutputLines(const Tile& t, int rows, int cols) {
    if (t.out == nullptr || t.out->cols < cols || t.out->streams) return;
    const int per_row =
        (t.output == Output::f16 || t.output == Output::bf16 ? cols * 2 : cols * 4) / 64;
    row_ = static_cast<const char*>(t.out->d);
    stride_ = t.out->stride_d_bytes;
    column_mask_ = per_row - 1;
    count_ = rows * per_row;
  }
  inline __attribute__((always_inline)) void fetch_one() {
    if (next_ >= count_) return;
    __builtin_prefetch(row_ + (next_ & column_mask_) * 64, 1);
    ++next_;
    if ((next_ & column_mask_) == 0) row_ += stride_;
  }

 private:
  const char* row_ = nullptr;
  int64_t stride_ = 0;
  int column_mask_ = 0;
  int count_ = 0;
  int next_ = 0;
};

}  // namespace
}  // namespace switchback::gemm_int8
