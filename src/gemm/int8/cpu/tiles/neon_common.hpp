// SPDX-License-Identifier: Apache-2.0
// Engine zone: the code that the kernels of AArch64 share: pairs of rows of A, panels of 16 columns
// of B, and the epilogue. Only their files include it. Each is compiled for its own instruction
// set, hence the unnamed namespace in a header.
#pragma once

#include <arm_neon.h>
#include <string.h>

#include "core/numerics.hpp"
#include "gemm/int8/cpu/micro_kernel.hpp"

namespace switchback::gemm_int8 {
namespace {

constexpr int panel_cols = 16;
static_assert(panel_cols == MicroKernel::pack_width);

// Loads the first `count` of 16 codes and fills up with zeros. Never reads past them.
inline __attribute__((always_inline)) int8x16_t load_first(const int8_t* p, int64_t count) {
  if (count >= 16) return vld1q_s8(p);
  alignas(16) int8_t padded[16] = {};
  memcpy(padded, p, static_cast<size_t>(count));
  return vld1q_s8(padded);
}

inline __attribute__((always_inline)) int8x16_t zip_low_8(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip1q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}
inline __attribute__((always_inline)) int8x16_t zip_high_8(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s64(vzip2q_s64(vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b)));
}
inline __attribute__((always_inline)) int8x16_t zip_low_4(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}
inline __attribute__((always_inline)) int8x16_t zip_high_4(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}
inline __attribute__((always_inline)) int8x16_t zip_low_2(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s16(vzip1q_s16(vreinterpretq_s16_s8(a), vreinterpretq_s16_s8(b)));
}
inline __attribute__((always_inline)) int8x16_t zip_high_2(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s16(vzip2q_s16(vreinterpretq_s16_s8(a), vreinterpretq_s16_s8(b)));
}

// Implements MicroKernel::prepare for a pair of rows. Both operands are signed, so all sums start
// from 0.
template <int Group>
void prepare(const int8_t* a, int64_t stride_a, int rows, int64_t k, void* copy, int32_t* start) {
  for (int r = 0; r < rows; ++r)
    start[r] = 0;
  if (copy == nullptr) return;
  auto* out = static_cast<int8_t*>(copy);
  for (int64_t i = 0; i < k; i += 16) {
    const int8x16_t first = load_first(a + i, k - i);
    const int8x16_t second = rows > 1 ? load_first(a + stride_a + i, k - i) : vdupq_n_s8(0);
    const int8x16_t low = Group == 8 ? zip_low_8(first, second) : zip_low_4(first, second);
    const int8x16_t high = Group == 8 ? zip_high_8(first, second) : zip_high_4(first, second);
    if (k - i > 16 - Group) {
      vst1q_s8(out + 2 * i, low);
      vst1q_s8(out + 2 * i + 16, high);
      continue;
    }
    int8_t both[32];
    vst1q_s8(both, low);
    vst1q_s8(both + 16, high);
    memcpy(out + 2 * i, both, static_cast<size_t>((k - i + Group - 1) / Group * Group * 2));
  }
}

// Implements MicroKernel::pack_rows.
template <int Group>
void pack_rows(const int8_t* b, int64_t stride_b, int n, int64_t k, void* strip) {
  auto* out = static_cast<int8_t*>(strip);
  for (int64_t i = 0; i < k; i += 16) {
    const int64_t codes = k - i < 16 ? k - i : 16;
    const int groups = static_cast<int>((codes + Group - 1) / Group);
    int8_t* const at = out + i * panel_cols;
    for (int r = 0; r < panel_cols; r += 16 / Group) {
      const auto row = [&](int64_t c) __attribute__((always_inline)) {
        return r + c < n ? load_first(b + (r + c) * stride_b + i, codes) : vdupq_n_s8(0);
      };
      int8x16_t packed[16 / Group];
      if constexpr (Group == 8) {
        packed[0] = zip_low_8(row(0), row(1));
        packed[1] = zip_high_8(row(0), row(1));
      } else {
        const int8x16_t low02 = zip_low_4(row(0), row(2));
        const int8x16_t high02 = zip_high_4(row(0), row(2));
        const int8x16_t low13 = zip_low_4(row(1), row(3));
        const int8x16_t high13 = zip_high_4(row(1), row(3));
        packed[0] = zip_low_4(low02, low13);
        packed[1] = zip_high_4(low02, low13);
        packed[2] = zip_low_4(high02, high13);
        packed[3] = zip_high_4(high02, high13);
      }
      SWITCHBACK_UNROLL
      for (int g = 0; g < 16 / Group; ++g)
        if (g < groups) vst1q_s8(at + g * panel_cols * Group + r * Group, packed[g]);
    }
  }
}

// Interleaves 4 codes along k of 16 rows of B: out[i] has the codes of rows 4 · i to 4 · i + 3.
// Each argument has the codes of all 16 rows at one position along k.
inline __attribute__((always_inline)) void interleave_4(int8x16_t k0, int8x16_t k1, int8x16_t k2,
                                                        int8x16_t k3, int8x16_t (&out)[4]) {
  const int8x16_t low01 = vzip1q_s8(k0, k1);
  const int8x16_t high01 = vzip2q_s8(k0, k1);
  const int8x16_t low23 = vzip1q_s8(k2, k3);
  const int8x16_t high23 = vzip2q_s8(k2, k3);
  out[0] = zip_low_2(low01, low23);
  out[1] = zip_high_2(low01, low23);
  out[2] = zip_low_2(high01, high23);
  out[3] = zip_high_2(high01, high23);
}

// Implements MicroKernel::pack_columns.
template <int Group>
void pack_columns(const int8_t* b, int64_t stride_b, int n, int64_t k, void* strip) {
  auto* out = static_cast<int8_t*>(strip);
  for (int64_t i = 0; i < k; i += Group) {
    const auto row = [&](int64_t r) __attribute__((always_inline)) {
      return i + r < k ? load_first(b + (i + r) * stride_b, n) : vdupq_n_s8(0);
    };
    int8_t* const at = out + i * panel_cols;
    int8x16_t first[4];
    interleave_4(row(0), row(1), row(2), row(3), first);
    if constexpr (Group == 4) {
      SWITCHBACK_UNROLL
      for (int v = 0; v < 4; ++v)
        vst1q_s8(at + 16 * v, first[v]);
    } else {
      int8x16_t second[4];
      interleave_4(row(4), row(5), row(6), row(7), second);
      SWITCHBACK_UNROLL
      for (int v = 0; v < 4; ++v) {
        vst1q_s8(at + 32 * v, zip_low_4(first[v], second[v]));
        vst1q_s8(at + 32 * v + 16, zip_high_4(first[v], second[v]));
      }
    }
  }
}

// Computes sums from B in place: dot products along k of Rows rows of A and Cols rows of B. A tile
// of 6 × 4 has 24 accumulators, 4 vectors of B and 1 of A, of 32 registers.
template <int Rows, int Cols>
inline __attribute__((always_inline)) void plain_block(const int8_t* a, int64_t stride_a,
                                                       const int8_t* b, int64_t stride_b, int64_t k,
                                                       int32_t* sums) {
  int32x4_t acc[Rows][Cols];
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    SWITCHBACK_UNROLL
    for (int c = 0; c < Cols; ++c)
      acc[r][c] = vdupq_n_s32(0);
  }
  const auto step = [&](int64_t i, int64_t codes) __attribute__((always_inline)) {
    int8x16_t columns[Cols];
    SWITCHBACK_UNROLL
    for (int c = 0; c < Cols; ++c)
      columns[c] = load_first(b + c * stride_b + i, codes);
    SWITCHBACK_UNROLL
    for (int r = 0; r < Rows; ++r) {
      const int8x16_t row = load_first(a + r * stride_a + i, codes);
      SWITCHBACK_UNROLL
      for (int c = 0; c < Cols; ++c)
        acc[r][c] = vdotq_s32(acc[r][c], columns[c], row);
    }
  };
  int64_t i = 0;
  for (; i + 16 <= k; i += 16)
    step(i, 16);
  if (i < k) step(i, k - i);
  SWITCHBACK_UNROLL
  for (int r = 0; r < Rows; ++r) {
    if constexpr (Cols == 4)
      vst1q_s32(sums + r * panel_cols,
                vpaddq_s32(vpaddq_s32(acc[r][0], acc[r][1]), vpaddq_s32(acc[r][2], acc[r][3])));
    else
      sums[r * panel_cols] = vaddvq_s32(acc[r][0]);
  }
}

// Implements MicroKernel::plain. It ignores start values, which are 0.
template <int Rows>
void plain(const int8_t* a, int64_t stride_a, const int8_t* b, int64_t stride_b, int n, int64_t k,
           const int32_t*, int32_t* sums) {
  int c = 0;
  for (; c + 4 <= n; c += 4)
    plain_block<Rows, 4>(a, stride_a, b + c * stride_b, stride_b, k, sums + c);
  for (; c < n; ++c)
    plain_block<Rows, 1>(a, stride_a, b + c * stride_b, stride_b, k, sums + c);
}

// Stores the bytes of the first `cols` of 8 rounded results.
inline void store_bytes(void* d, const void* from, int64_t cols, int bytes) {
  memcpy(d, from, static_cast<size_t>(cols) * static_cast<size_t>(bytes));
}

// Stores 16 bytes to any address.
inline __attribute__((always_inline)) void store_whole(void* d, uint8x16_t y) {
  vst1q_u8(static_cast<uint8_t*>(d), y);
}

struct StoreF32 {
  static constexpr int bytes = 4;
  static void store(void* d, int64_t cols, float32x4_t low, float32x4_t high) {
    if (cols >= 8) {
      store_whole(d, vreinterpretq_u8_f32(low));
      store_whole(static_cast<uint8_t*>(d) + 16, vreinterpretq_u8_f32(high));
      return;
    }
    float buffer[8];
    vst1q_f32(buffer, low);
    vst1q_f32(buffer + 4, high);
    store_bytes(d, buffer, cols, bytes);
  }
};

inline void store_16_bit(void* d, int64_t cols, uint16x8_t y) {
  if (cols >= 8) return store_whole(d, vreinterpretq_u8_u16(y));
  uint16_t buffer[8];
  vst1q_u16(buffer, y);
  store_bytes(d, buffer, cols, 2);
}

struct StoreF16 {
  static constexpr int bytes = 2;
  // The instruction keeps a NaN's payload, but half(float) keeps only its sign.
  static uint16x4_t rounded(float32x4_t y) {
    const uint32x4_t u = vreinterpretq_u32_f32(y);
    const uint32x4_t sign = vandq_u32(u, vdupq_n_u32(0x80000000));
    const uint32x4_t quiet = vorrq_u32(sign, vdupq_n_u32(0x7FC00000));
    const uint32x4_t clean = vbslq_u32(vceqq_f32(y, y), u, quiet);
    return vreinterpret_u16_f16(vcvt_f16_f32(vreinterpretq_f32_u32(clean)));
  }
  static void store(void* d, int64_t cols, float32x4_t low, float32x4_t high) {
    store_16_bit(d, cols, vcombine_u16(rounded(low), rounded(high)));
  }
};

struct StoreBf16 {
  static constexpr int bytes = 2;
  static uint16x4_t rounded(float32x4_t y) {
    const uint32x4_t u = vreinterpretq_u32_f32(y);
    const uint32x4_t high = vshrq_n_u32(u, 16);
    const uint32x4_t even = vandq_u32(high, vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(u, vaddq_u32(even, vdupq_n_u32(0x7FFF)));
    const uint32x4_t quiet = vorrq_u32(high, vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(vceqq_f32(y, y), vshrq_n_u32(up, 16), quiet));
  }
  static void store(void* d, int64_t cols, float32x4_t low, float32x4_t high) {
    store_16_bit(d, cols, vcombine_u16(rounded(low), rounded(high)));
  }
};

template <class Store>
void dequantize(const EpilogueTile& t) {
  const float32x4_t c = vdupq_n_f32(core::inverse_127_squared);
  for (int64_t r = 0; r < t.rows; ++r) {
    const int32_t* sums = t.sums + r * t.stride_sums;
    auto* d = static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes;
    const float32x4_t scale_a = vdupq_n_f32(t.scale_a[r]);
    const auto of = [&](int64_t j) __attribute__((always_inline)) {
      const float32x4_t sum = vcvtq_f32_s32(vld1q_s32(sums + j));
      float32x4_t y = vmulq_f32(scale_a, vmulq_f32(sum, c));
      y = vmulq_f32(vld1q_f32(t.scale_b + j), y);
      return vaddq_f32(y, vld1q_f32(t.bias + j));
    };
    for (int64_t j = 0; j < t.cols; j += 8)
      Store::store(d + j * Store::bytes, t.cols - j, of(j), of(j + 4));
  }
}

void copy_sums(const EpilogueTile& t) {
  for (int64_t r = 0; r < t.rows; ++r)
    store_bytes(static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes, t.sums + r * t.stride_sums,
                t.cols, 4);
}

constexpr MicroKernel::Epilogue epilogues[output_count] = {
    dequantize<StoreF32>, dequantize<StoreF16>, dequantize<StoreBf16>, nullptr, copy_sums};

// Loads the first `count` of 4 floats at any address and fills up with zeros. Never reads past
// them.
inline float32x4_t load_floats(const unsigned char* p, int64_t count) {
  if (count >= 4) return vreinterpretq_f32_u8(vld1q_u8(p));
  float padded[4] = {};
  if (count > 0) memcpy(padded, p, static_cast<size_t>(count) * 4);
  return vld1q_f32(padded);
}

template <class Store>
void fold(const FoldTile& t) {
  const float32x4_t c = vdupq_n_f32(core::inverse_127_squared);
  for (int64_t r = 0; r < t.rows; ++r) {
    const auto* start = static_cast<const unsigned char*>(t.start);
    if (start != nullptr) start += r * t.stride_start_bytes;
    auto* d = static_cast<unsigned char*>(t.d) + r * t.stride_d_bytes;
    const float* const p = t.p + r * panel_cols;
    for (int64_t j = 0; j < t.cols; j += 8) {
      const int64_t cols = t.cols - j;
      float32x4_t low = vdupq_n_f32(0.0f);
      float32x4_t high = low;
      if (start != nullptr) {
        low = load_floats(start + j * 4, cols);
        high = load_floats(start + j * 4 + 16, cols - 4);
      }
      low = vfmaq_f32(low, vld1q_f32(p + j), c);
      high = vfmaq_f32(high, vld1q_f32(p + j + 4), c);
      Store::store(d + j * Store::bytes, cols, low, high);
    }
  }
}

void promote(const PromotionTile& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const float32x4_t scale_a = vdupq_n_f32(t.scale_a[r]);
    SWITCHBACK_UNROLL
    for (int v = 0; v < panel_cols / 4; ++v) {
      const int64_t at = r * panel_cols + v * 4;
      const float32x4_t sum = vcvtq_f32_s32(vld1q_s32(t.sums + at));
      const float32x4_t scaled = vmulq_f32(sum, vld1q_f32(t.scale_b + v * 4));
      const float32x4_t before = t.first ? vdupq_n_f32(0.0f) : vld1q_f32(t.p + at);
      vst1q_f32(t.p + at, vfmaq_f32(before, scaled, scale_a));
    }
  }
  if (t.fold == nullptr) return;
  if (t.fold->output == Output::f32)
    fold<StoreF32>(*t.fold);
  else if (t.fold->output == Output::f16)
    fold<StoreF16>(*t.fold);
  else
    fold<StoreBf16>(*t.fold);
}

// Prefetches this step's share of the memory that is needed next. Tiles of a wide block need it in
// the second-level cache, narrow tiles in the first.
template <bool Narrow>
inline __attribute__((always_inline)) void fetch_ahead(const Tile& t, const int8_t*& ahead) {
  if (ahead >= t.ahead_end) return;
  for (int line = 0; line < t.ahead_lines; ++line)
    __builtin_prefetch(ahead + line * 64, 0, Narrow ? 3 : 2);
  ahead += t.ahead_lines * 64;
}

// Does the epilogue of a tile whose sums are complete in memory.
inline void finish(const Tile& t) {
  if (t.out != nullptr) epilogues[static_cast<int>(t.output)](*t.out);
}

}  // namespace
}  // namespace switchback::gemm_int8
