// SPDX-License-Identifier: Apache-2.0
// Engine zone: what an instruction set brings to the blocked int8 product: how B is laid out, the
// product of one tile, the epilogue of one tile. Loops, threads and memory are blocked.cpp's.
//
// Implementations are compiled for their instruction set. An inline function of theirs that the
// linker kept for everybody would crash other CPUs, so they include nothing but this header and
// intrinsics, use no templates of the standard library, and keep everything in an unnamed
// namespace.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Full unrolling, without which an array of accumulators does not become registers.
#if defined(__clang__)
#define SWITCHBACK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SWITCHBACK_UNROLL _Pragma("GCC unroll 16")
#endif

namespace switchback::gemm_int8 {

/// int32 sums on their way out. y = scale_b · (scale_a · (float(sum) · c)) + bias.
struct EpilogueTile {
  const int32_t* sums;  ///< rows readable up to a multiple of 16
  int64_t stride_sums;
  int64_t rows;
  int64_t cols;
  const float* scale_a;  ///< [rows]
  const float* scale_b;  ///< [cols], readable up to a multiple of 16
  /// [cols], readable up to a multiple of 16. "No bias" is −0: adding it changes no bit of any sum.
  const float* bias;
  void* d;  ///< any alignment
  int64_t stride_d_bytes;
};

/// Rows of A times one panel of B, and what becomes of the sums.
struct Tile {
  const void* a;  ///< codes of the first row, as MicroKernel::a_copy_bytes says
  int64_t stride_a_bytes;
  const void* panel;    ///< or, of narrow tiles, strip
  int64_t strip_bytes;  ///< from one strip of the panel to the next
  int64_t k;            ///< codes summed
  /// What each row's sums start from; null: they go on from what `sums` holds.
  const int32_t* start;
  int32_t* sums;            ///< rows of `cols`, 64-byte aligned
  const EpilogueTile* out;  ///< null: `sums` is the result; else it is scratch
  int output;               ///< with `out`: the number of d's DType
  /// Memory that comes next: each 4 groups fetch ahead_lines of it, up to its end.
  const int8_t* ahead;
  const int8_t* ahead_end;
  int ahead_lines;
};

struct MicroKernel {
  static constexpr int max_rows = 6;
  static constexpr int max_cols = 64;
  static constexpr int max_narrow_rows = 12;

  int rows;  ///< of a tile, at most max_rows
  int cols;  ///< of a tile and of a panel of B, at most max_cols
  /// 0: tiles read A where it lies. 2: they read rows that prepare_row widened to 16 bits.
  int a_copy_bytes;

  /// What the sums of one row of A start from, given that B's codes are stored with an offset.
  /// With a_copy_bytes, and unless copy is null, also copies the row, zero-padded to a multiple of
  /// 4 codes.
  int32_t (*prepare_row)(const int8_t* a, int64_t k, void* copy);

  /// B's rows [0, n) × codes [0, k) into one panel: strips of strip_cols columns; in a strip,
  /// groups of 4 codes along k; in a group, strip_cols rows of B. `cols`·4·⌈k/4⌉ bytes, 64-byte
  /// aligned. What is not there may hold anything: tiles take A's missing codes for zero, and
  /// nobody looks at the sums of missing columns.
  void (*pack_panel)(const int8_t* b, int64_t stride_b, int n, int64_t k, void* panel);
  int strip_cols;

  /// tile[r−1]: a tile of r rows.
  using TileFunction = void (*)(const Tile& tile);
  TileFunction tile[max_rows];

  /// narrow[r−1]: a tile of r rows and one strip, for an A of few rows: more of them meet each byte
  /// of B when it comes from memory, and it comes in one stream. narrow_rows is 0 without.
  int narrow_rows;
  TileFunction narrow[max_narrow_rows];

  /// plain[r−1]: sums of r rows of A without packing: n rows of B (at most `cols`) as they lie.
  using Plain = void (*)(const int8_t* a, int64_t stride_a, const int8_t* b, int64_t stride_b,
                         int n, int64_t k, const int32_t* start, int32_t* sums);
  Plain plain[max_rows];

  /// By the number of the output's DType (f32, f16, bf16, –, s32).
  using Epilogue = void (*)(const EpilogueTile& tile);
  Epilogue epilogue[5];
};

/// Null where the build's architecture has no such kernel.
const MicroKernel* avx512_vnni_kernel() noexcept;
const MicroKernel* avx_vnni_kernel() noexcept;
const MicroKernel* avx2_kernel() noexcept;

}  // namespace switchback::gemm_int8
