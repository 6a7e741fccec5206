// SPDX-License-Identifier: Apache-2.0
// Engine zone: codes of columns, stored transposed. A strip of columns, which is one cache line of
// each row, is processed at a time.
#include <cstring>
#include <limits>

#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/strips.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "quant/cpu/pieces.hpp"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

// A strip is one cache line of each row: 16 columns of f32, 32 of the other types. Rows of matrices
// are often a power of two apart, so the lines of a strip map to a few sets of every cache and
// evict each other. The second read, for the codes, would come from the last-level cache. So the
// first read, for the absmax, copies the strip to consecutive lines in the first-level cache.
//
// For matrices that are not in a cache, both passes prefetch the strips of the next panel: first a
// line of each of eight rows, then the next line of each of these. Memory delivers this order as
// fast as rows that are read from end to end (row after row, 1 KiB of each, took half as long
// again). Copying the next strip between the codes would be slower, 0.88 of the speed: it would
// wait for its lines, and its stores for those that go past the caches. If x is in the last-level
// cache, a strip is copied while the previous one is transposed: [1024,4096], two threads, f32 1.1
// to 1.4 times as fast as one after the other, 16-bit types 1.2 to 1.4 times.
//
// Codes of 4 rows stay in the lane of their column and become its 4 bytes: half of the work of
// transposing bytes. The rest is a transposition of 16 · 16 lanes, in registers.
//
// Operations on 512 bits for 64 elements of bf16, 2 of them a cycle (Zen 4): 4 that widen, half of
// them shifts, 4 products, 3 shuffles that pack, 4 that transpose; 2 maxima and 2 magnitudes.
// Shifts and shuffles of words and bytes use one half of the pipes: 7 to 8 cycles. Measured in the
// first-level cache: 9, while memory needs 15 to 21 for the same elements.

inline constexpr std::int64_t strip_bytes = 64;

// The number of columns in a strip. It is a function, because GCC exports an inline variable that
// std::min() takes by reference.
template <class T>
constexpr std::int64_t strip_cols() {
  return strip_bytes / static_cast<std::int64_t>(sizeof(T));
}

constexpr std::int64_t padded_rows(std::int64_t rows) {
  return (rows + cpu::strip_rows - 1) / cpu::strip_rows * cpu::strip_rows;
}

// A part of a strip is 16 columns; of bf16, the even-indexed columns are one part and the
// odd-indexed ones the other.
template <class T>
inline constexpr int parts = static_cast<int>(strip_cols<T>() / 16);

template <class T>
constexpr std::int64_t column_of_lane(int part, std::int64_t lane) {
  return std::is_same_v<T, bfloat16> ? 2 * lane + part : 16 * part + lane;
}

template <int part>
HWY_INLINE VF widen_part(const float* x) {
  return hn::Load(F32(), x);
}
template <int part>
HWY_INLINE VF widen_part(const half* x) {
  return widen(x + 16 * part);
}
template <int part>
HWY_INLINE VF widen_part(const bfloat16* x) {
  const VU pairs = hn::Load(U32(), reinterpret_cast<const std::uint32_t*>(x));
  return hn::BitCast(
      F32(), part == 0 ? hn::ShiftLeft<16>(pairs) : hn::And(pairs, hn::Set(U32(), 0xFFFF0000u)));
}

// The scales of the 16 columns of a strip's part, and how their codes are made (see scale.hpp).
struct PartScales {
  VF absmax;
  VF lower, upper;
  // For 16-bit types: the factor of the one product, for columns that are neither divided nor
  // bracketed.
  VF factor;
  __mmask16 divided;    // columns that need the division
  __mmask16 bracketed;  // columns whose codes need two products
};

// Computes for 16 columns what Scale::of() and OneFactor::of() compute for one.
template <class T>
HWY_INLINE PartScales scales_of(VF absmax) {
  const __m512 a = absmax.raw;
  const __mmask16 zero = _mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_EQ_OQ);
  const __mmask16 ordinary = static_cast<__mmask16>(
      _mm512_cmp_ps_mask(a, _mm512_set1_ps(smallest_bracketed), _CMP_GE_OQ) &
      _mm512_cmp_ps_mask(a, _mm512_set1_ps(std::numeric_limits<float>::infinity()), _CMP_LT_OQ));
  const __m512 inverse = _mm512_maskz_div_ps(ordinary, _mm512_set1_ps(127.0f), a);
  PartScales s;
  s.absmax = absmax;
  s.lower = VF{_mm512_mul_ps(inverse, _mm512_set1_ps(1.0f - 0x1p-21f))};
  s.upper = VF{_mm512_mul_ps(inverse, _mm512_set1_ps(1.0f + 0x1p-21f))};
  s.factor = s.upper;
  s.divided = static_cast<__mmask16>(~(zero | ordinary));
  s.bracketed = 0;
  if constexpr (sizeof(T) == 2) {
    const __m512i fraction =
        _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(fraction_mask));
    const __mmask16 exact =
        _mm512_cmpeq_epi32_mask(fraction, _mm512_set1_epi32(exact_inverse_fraction));
    s.factor = VF{_mm512_mask_mov_ps(s.factor.raw, exact, inverse)};
    if constexpr (std::is_same_v<T, half>) {
      // Whether the significand is a multiple of 127. The test is exact.
      const __m512 significand = _mm512_mul_ps(
          _mm512_getmant_ps(a, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero), _mm512_set1_ps(1024.0f));
      const __m512 multiple = _mm512_roundscale_ps(
          _mm512_mul_ps(significand, _mm512_set1_ps(1.0f / 127.0f)), _MM_FROUND_TO_NEAREST_INT);
      s.bracketed =
          static_cast<__mmask16>(ordinary & ~exact &
                                 _mm512_cmp_ps_mask(_mm512_mul_ps(multiple, _mm512_set1_ps(127.0f)),
                                                    significand, _CMP_EQ_OQ));
    }
  }
  return s;
}

HWY_INLINE VU divided(VF x, const PartScales& s) {
  // If a column has a NaN or Inf, or only zeros, all its codes are 0.
  const __mmask16 any = static_cast<__mmask16>(
      _mm512_cmp_ps_mask(s.absmax.raw, _mm512_setzero_ps(), _CMP_GT_OQ) &
      _mm512_cmp_ps_mask(s.absmax.raw, _mm512_set1_ps(std::numeric_limits<float>::infinity()),
                         _CMP_LT_OQ));
  const __m512 quotient = _mm512_maskz_div_ps(any, x.raw, s.absmax.raw);
  return rounded(VF{_mm512_mul_ps(_mm512_set1_ps(127.0f), quotient)});
}

// Lane i of the result has the low bytes of lane i of the four vectors.
HWY_INLINE __m512i bytes_of_lanes(VU a, VU b, VU c, VU d) {
  // Copies byte 0 of each lane to all bytes of the lane.
  const __m512i low = _mm512_set4_epi32(0x0C0C0C0C, 0x08080808, 0x04040404, 0x00000000);
  __m512i v = a.raw;
  v = _mm512_mask_shuffle_epi8(v, 0x2222222222222222u, b.raw, low);
  v = _mm512_mask_shuffle_epi8(v, 0x4444444444444444u, c.raw, low);
  return _mm512_mask_shuffle_epi8(v, 0x8888888888888888u, d.raw, low);
}

// Computes the codes of 4 rows of a part. The codes of a column are the 4 bytes of its lane.
template <Made made, int part, class T>
HWY_INLINE __m512i codes_of_four(const T* x, const PartScales& s) {
  const VF a = widen_part<part>(x);
  const VF b = widen_part<part>(x + strip_cols<T>());
  const VF c = widen_part<part>(x + 2 * strip_cols<T>());
  const VF d = widen_part<part>(x + 3 * strip_cols<T>());
  if constexpr (made == Made::product)
    return bytes_of_lanes(product(s, a, s.factor), product(s, b, s.factor), product(s, c, s.factor),
                          product(s, d, s.factor));
  if constexpr (made == Made::bracket) {
    const VU low_a = product(s, a, s.lower);
    const VU low_b = product(s, b, s.lower);
    const VU low_c = product(s, c, s.lower);
    const VU low_d = product(s, d, s.lower);
    VU differ = hn::Xor(low_a, product(s, a, s.upper));
    differ = or_differ(differ, low_b, product(s, b, s.upper));
    differ = or_differ(differ, low_c, product(s, c, s.upper));
    differ = or_differ(differ, low_d, product(s, d, s.upper));
    if (HWY_LIKELY(_mm512_test_epi32_mask(differ.raw, differ.raw) == 0))
      return bytes_of_lanes(low_a, low_b, low_c, low_d);
  }
  return bytes_of_lanes(divided(a, s), divided(b, s), divided(c, s), divided(d, s));
}

// Lane j of vector i becomes lane i of vector j.
HWY_INLINE void transpose_lanes(__m512i* v) {
  __m512i w[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    w[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    w[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(w[i], w[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(w[i], w[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(w[i + 1], w[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(w[i + 1], w[i + 3]);
  }
  // 128-bit block b of vector 4 · i + j now has lane 4 · b + j of vectors 4 · i to 4 · i + 3.
  constexpr int even = 0x88;
  constexpr int odd = 0xDD;
#pragma GCC unroll 16
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(v[j], v[4 + j], even);
    const __m512i b = _mm512_shuffle_i32x4(v[j], v[4 + j], odd);
    const __m512i c = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], even);
    const __m512i d = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], odd);
    v[j] = _mm512_shuffle_i32x4(a, c, even);
    v[4 + j] = _mm512_shuffle_i32x4(b, d, even);
    v[8 + j] = _mm512_shuffle_i32x4(a, c, odd);
    v[12 + j] = _mm512_shuffle_i32x4(b, d, odd);
  }
}

// Prefetches the cache lines of the rows that are read next into the second-level cache.
struct LinesToCome {
  const char* at;  // the first of the rows; null: there are none
  std::int64_t row_bytes;
  std::int64_t rows, lines;
  std::int64_t row = 0, line = 0;

  // Prefetches a line of each of eight rows.
  HWY_INLINE void ask() {
    if (row >= rows) return;
    const char* const p = at + row * row_bytes + line * strip_bytes;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      __builtin_prefetch(p + i * row_bytes, 0, 2);
    if (++line < lines) return;
    line = 0;
    row += 8;
  }
  HWY_INLINE void ask(int times) {
    for (; times > 0; --times)
      ask();
  }
};

// Copies a strip and finds the largest magnitudes of its columns. Rows after the last one become
// zeros.
template <class T>
class StripCopy {
  using M = Magnitudes<T>;

 public:
  // If x has no column `col`, nothing is copied.
  HWY_INLINE StripCopy(const ConstAnyMatrix& x, std::int64_t col, T* to)
      : x_(row<T>(x, 0, std::min(col, x.cols))),
        stride_(x.stride),
        rows_(x.rows),
        to_(to),
        even_(_mm512_setzero_si512()),
        odd_(even_) {
    const std::int64_t cols = std::min(strip_cols<T>(), x.cols - col);
    if (cols <= 0) return;
    end_ = padded_rows(x.rows);
    bytes_ = ~std::uint64_t{0} >> (strip_bytes - cols * static_cast<std::int64_t>(sizeof(T)));
  }

  // Processes the next `count` rows, a divisor of strip_rows.
  template <int count>
  HWY_INLINE void take() {
    if (row_ >= end_) return;
    const T* const x = x_ + row_ * stride_;
    T* const to = to_ + row_ * strip_cols<T>();
    if (HWY_LIKELY(row_ + count <= rows_)) {
#pragma GCC unroll 8
      for (int i = 0; i < count; ++i)
        put(_mm512_maskz_loadu_epi8(bytes_, x + i * stride_), to + i * strip_cols<T>(),
            i % 2 == 0 ? even_ : odd_);
    } else {
      for (int i = 0; i < count; ++i)  // a masked load from an absent page is slow
        put(row_ + i < rows_ ? _mm512_maskz_loadu_epi8(bytes_, x + i * stride_)
                             : _mm512_setzero_si512(),
            to + i * strip_cols<T>(), even_);
    }
    row_ += count;
  }
  // Processes the remaining rows; returns the largest magnitudes of the columns.
  HWY_INLINE __m512i finish(LinesToCome& soon) {
    if (HWY_LIKELY(bytes_ == ~std::uint64_t{0})) {
      __m512i even = even_;
      __m512i odd = odd_;
      const T* x = x_ + row_ * stride_;
      T* to = to_ + row_ * strip_cols<T>();
      for (; row_ + 16 <= rows_; row_ += 16) {
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += 2) {
          put(_mm512_loadu_si512(x + i * stride_), to + i * strip_cols<T>(), even);
          put(_mm512_loadu_si512(x + (i + 1) * stride_), to + (i + 1) * strip_cols<T>(), odd);
        }
        soon.ask();
        x += 16 * stride_;
        to += 16 * strip_cols<T>();
      }
      even_ = even;
      odd_ = odd;
    }
    while (row_ < end_)
      take<8>();
    return hn::Max(typename M::V{even_}, typename M::V{odd_}).raw;
  }

 private:
  static HWY_INLINE void put(__m512i v, T* to, __m512i& largest) {
    const typename M::D d;
    _mm512_store_si512(to, v);
    largest = hn::Max(typename M::V{largest},
                      hn::And(typename M::V{v}, hn::Set(d, hwy::LimitsMax<Bits<T>>())))
                  .raw;
  }

  const T* x_;
  std::int64_t stride_;
  std::int64_t rows_;
  T* to_;
  __m512i even_, odd_;  // largest magnitudes of the columns, in even and in odd rows
  std::int64_t row_ = 0;
  std::int64_t end_ = 0;
  __mmask64 bytes_ = 0;  // of a row
};

// The work to do while a strip is transposed.
template <class T>
struct Meanwhile {
  StripCopy<T> copy;  // copies the next strip, if the matrix is in a cache
  LinesToCome soon;   // prefetches, if the matrix is not in a cache
};

// Computes the codes of strip_rows rows of a part, and stores them transposed in the columns of the
// part. The strip has `cols` columns. Meanwhile copies the same number of bytes of the next strip,
// unless codes are stored past the caches.
template <Made made, int part, bool stream, class T>
HWY_INLINE void turn_part(const T* x, const PartScales& s, std::int64_t cols, std::int8_t* to,
                          std::int64_t stride, Meanwhile<T>& other) {
  __m512i v[16];
  if constexpr (stream) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      v[i] = codes_of_four<made, part>(x + 4 * i * strip_cols<T>(), s);
  } else {
    alignas(64) __m512i codes[16];
    HWY_UNROLL(1)
    for (int i = 0; i < 16; i += 2) {
      codes[i] = codes_of_four<made, part>(x + 4 * i * strip_cols<T>(), s);
      other.copy.template take<4 / parts<T>>();
      codes[i + 1] = codes_of_four<made, part>(x + 4 * (i + 1) * strip_cols<T>(), s);
      other.copy.template take<4 / parts<T>>();
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      v[i] = codes[i];
  }
  transpose_lanes(v);
  std::int8_t* const first = to + column_of_lane<T>(part, 0) * stride;
  const std::int64_t step = (column_of_lane<T>(part, 1) - column_of_lane<T>(part, 0)) * stride;
  if (HWY_LIKELY(stream && cols == strip_cols<T>())) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(first + j * step), v[j]);
    return;
  }
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j)
    if (column_of_lane<T>(part, j) < cols) _mm512_storeu_si512(first + j * step, v[j]);
}

template <Made made, bool stream, class T>
HWY_INLINE void turn_strip(const T* x, std::int64_t rows, const PartScales* s, std::int64_t cols,
                           std::int8_t* to, std::int64_t stride, Meanwhile<T>& other) {
  for (std::int64_t r = 0; r < rows; r += cpu::strip_rows) {
    turn_part<made, 0, stream>(x + r * strip_cols<T>(), s[0], cols, to + r, stride, other);
    if constexpr (stream) other.soon.ask(2);
    if constexpr (parts<T> == 2)
      turn_part<made, 1, stream>(x + r * strip_cols<T>(), s[1], cols, to + r, stride, other);
    if constexpr (stream) other.soon.ask(2);
  }
}

template <int part, class T>
HWY_INLINE VF absmax_of_part(const T* magnitudes) {
  const VF largest = widen_part<part>(magnitudes);
  return hn::IfThenElse(hn::IsNaN(largest), hn::BitCast(F32(), hn::Set(U32(), nan_bits)), largest);
}

// Stores one float for each column of a strip, in the order of the columns, from its one or two
// parts.
template <class T>
HWY_INLINE void store_parts(VF first, VF second, float* to) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    hn::Store(VF{_mm512_permutex2var_ps(first.raw, low, second.raw)}, F32(), to);
    hn::Store(VF{_mm512_permutex2var_ps(first.raw, high, second.raw)}, F32(), to + 16);
  } else {
    hn::Store(first, F32(), to);
    if constexpr (parts<T> == 2) hn::Store(second, F32(), to + 16);
  }
}

template <bool stream, class T>
HWY_INLINE void code_strip(const cpu::StripJob& job, std::int64_t col, const T* lines,
                           const T* magnitudes, Meanwhile<T>& other) {
  const std::int64_t cols = std::min(strip_cols<T>(), job.x.cols - col);
  PartScales s[parts<T>];
  alignas(64) float absmax[strip_cols<T>()];
  const VF first = absmax_of_part<0>(magnitudes);
  const VF second = absmax_of_part<parts<T> - 1>(magnitudes);
  s[0] = scales_of<T>(first);
  if constexpr (parts<T> == 2) s[1] = scales_of<T>(second);
  store_parts<T>(first, second, absmax);
  std::memcpy(static_cast<void*>(job.absmax + col), absmax,
              static_cast<std::size_t>(cols) * sizeof(float));
  std::int8_t* const to = job.q_t.data + col * job.q_t.stride;
  const bool divides = (s[0].divided | s[parts<T> - 1].divided) != 0;
  const bool brackets = sizeof(T) == 4 || (s[0].bracketed | s[parts<T> - 1].bracketed) != 0;
  if (HWY_UNLIKELY(divides))
    return turn_strip<Made::division, stream>(lines, job.x.rows, s, cols, to, job.q_t.stride,
                                              other);
  if (brackets)
    return turn_strip<Made::bracket, stream>(lines, job.x.rows, s, cols, to, job.q_t.stride, other);
  if constexpr (sizeof(T) == 2)
    turn_strip<Made::product, stream>(lines, job.x.rows, s, cols, to, job.q_t.stride, other);
}

template <bool stream, class T>
HWY_INLINE void strips(const cpu::StripJob& job, std::byte* scratch) {
  const auto row_bytes = job.x.stride * static_cast<std::int64_t>(sizeof(T));
  const auto lines_of = [](std::int64_t cols)
                            HWY_ATTR { return (cols + strip_cols<T>() - 1) / strip_cols<T>(); };
  if (job.cold) {
    LinesToCome now = {static_cast<const char*>(job.x.data), row_bytes, job.x.rows,
                       lines_of(job.x.cols)};
    while (now.row < now.rows)
      now.ask();
  }
  const auto room = [&](std::int64_t col) HWY_ATTR {
    if (stream) return reinterpret_cast<T*>(scratch);
    return reinterpret_cast<T*>(scratch + col / strip_cols<T>() % 2 *
                                              cpu::strip_scratch_bytes(job.x.rows) / 2);
  };
  Meanwhile<T> other = {StripCopy<T>(job.x, 0, room(0)),
                        {static_cast<const char*>(job.next), row_bytes,
                         job.next == nullptr ? 0 : job.x.rows, lines_of(job.next_cols)}};
  for (std::int64_t col = 0; col < job.x.cols; col += strip_cols<T>()) {
    alignas(64) T magnitudes[strip_cols<T>()];
    _mm512_store_si512(magnitudes, other.copy.finish(other.soon));
    const std::int64_t next = col + strip_cols<T>();
    other.copy = StripCopy<T>(job.x, next, room(next));
    code_strip<stream>(job, col, room(col), magnitudes, other);
  }
}

void Strips(const cpu::StripJob& job, std::byte* scratch) {
  with_type(job.x.dtype, [&]<class T>(T) HWY_ATTR {
    if (!job.stream) return strips<false, T>(job, scratch);
    strips<true, T>(job, scratch);
    hwy::FlushStream();
  });
}
cpu::StripKernel StripsOfTarget() {
  return Strips;
}

#else

cpu::StripKernel StripsOfTarget() {
  return nullptr;
}

#endif

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(StripsOfTarget);

namespace cpu {

StripKernel strip_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(StripsOfTarget)[table_index(features)]();
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
