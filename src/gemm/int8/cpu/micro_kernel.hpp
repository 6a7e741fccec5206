// SPDX-License-Identifier: Apache-2.0
// Engine zone: what an instruction set brings to the blocked int8 product: how B is laid out, the
// product of one tile, the epilogue of one tile. Loops, threads and memory are blocked.cpp's.
//
// Implementations are compiled for their instruction set. An inline function of theirs that the
// linker kept for everybody would crash other CPUs, so they include nothing but this header,
// headers of their own folder and intrinsics, use no templates of the standard library, and keep
// everything but the kernel in an unnamed namespace.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/cpu/features.hpp"

// Full unrolling, without which an array of accumulators does not become registers.
#if defined(__clang__)
#define SWITCHBACK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SWITCHBACK_UNROLL _Pragma("GCC unroll 16")
#endif

namespace switchback::gemm_int8 {

/// The outputs of an epilogue: DTypes by their numbers (checked in epilogue.cpp).
enum class Output { f32 = 0, f16 = 1, bf16 = 2, s32 = 4 };
inline constexpr int output_count = 5;

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
  const void* a;  ///< codes of the first row, as MicroKernel::prepare left them
  int64_t stride_a_bytes;
  const void* panel;    ///< or, of narrow tiles, strip
  int64_t strip_bytes;  ///< from one strip of the panel to the next
  int64_t k;            ///< codes summed
  /// What each row's sums start from; null: they go on from what `sums` holds.
  const int32_t* start;
  int32_t* sums;            ///< rows of `cols`, 64-byte aligned
  const EpilogueTile* out;  ///< null: `sums` is the result; else it is scratch
  Output output;            ///< with `out`
  /// Memory that comes next: each step of 4 groups fetches ahead_lines of it, up to its end.
  const int8_t* ahead;
  const int8_t* ahead_end;
  int ahead_lines;
};

/// Why a kernel cannot run here, for users.
struct KernelReasons {
  const char* not_built;
  const char* not_there;
  const char* capped;
};
/// Of an instruction set by its makers' name and by that of core::Isa.
#define SWITCHBACK_KERNEL_REASONS(title, isa)                    \
  {                                                              \
    "this build has no " title " code", "the CPU has no " title, \
        "the Context's isa is capped below " isa                 \
  }

/// The kernel of an instruction set. Where the build's compiler or architecture lacks that, the
/// kernel has its isa and the reasons, and nothing else.
struct MicroKernel {
  static constexpr int max_rows = 6;
  static constexpr int max_cols = 64;
  static constexpr int max_narrow_rows = 12;

  core::Isa isa;
  KernelReasons reasons;

  int rows = 0;  ///< of a tile, at most max_rows
  int cols = 0;  ///< of a tile and of a panel of B, at most max_cols
  /// Codes along k that one instruction sums: 4 of vpdpbusd, 8 of smmla. A power of two.
  int group = 4;

  /// Rows of A that are prepared together: 1, or 2 where an instruction reads a pair of rows. Tiles
  /// and blocks begin at a multiple of it.
  int rows_together = 1;
  /// 0: tiles read A where it lies. Else they read what prepare() copied, so many bytes a code.
  int a_copy_bytes = 0;
  /// Of up to rows_together rows of A, what the sums of each start from, given that B's codes may
  /// be stored with an offset. With a_copy_bytes, and unless copy is null, also copies the rows, in
  /// groups that take turns between the rows, zero-padded to whole groups and to all rows.
  void (*prepare)(const int8_t* a, int64_t stride_a, int rows, int64_t k, void* copy,
                  int32_t* start) = nullptr;

  /// B's rows [0, n) × codes [0, k) into one panel: strips of strip_cols columns; in a strip,
  /// groups of codes along k; in a group, strip_cols rows of B. `cols` times k rounded up to groups
  /// bytes, 64-byte aligned. Padding is unspecified: tiles take A's missing codes for zero, and
  /// nobody looks at the sums of missing columns.
  void (*pack_panel)(const int8_t* b, int64_t stride_b, int n, int64_t k, void* panel) = nullptr;
  int strip_cols = 0;

  /// tile[r−1]: a tile of r rows.
  using TileFunction = void (*)(const Tile& tile);
  TileFunction tile[max_rows] = {};

  /// narrow[r−1]: a tile of r rows and one strip, for an A of few rows: more of them meet each byte
  /// of B when it comes from memory, and it comes in one stream. narrow_rows is 0 without.
  int narrow_rows = 0;
  TileFunction narrow[max_narrow_rows] = {};

  /// plain[r−1]: sums of r rows of A without packing: n rows of B (at most `cols`) as they lie.
  using Plain = void (*)(const int8_t* a, int64_t stride_a, const int8_t* b, int64_t stride_b,
                         int n, int64_t k, const int32_t* start, int32_t* sums);
  Plain plain[max_rows] = {};

  /// By Output.
  using Epilogue = void (*)(const EpilogueTile& tile);
  Epilogue epilogue[output_count] = {};

  [[nodiscard]] bool is_built() const noexcept { return rows > 0; }
};

extern const MicroKernel avx512_vnni_kernel;
extern const MicroKernel avx_vnni_kernel;
extern const MicroKernel avx2_kernel;

}  // namespace switchback::gemm_int8
