// SPDX-License-Identifier: Apache-2.0
// Engine zone: the part of the blocked int8 product that depends on the instruction set: the layout
// of B, the product of one tile, the epilogue of one tile. blocked.cpp has loops, threads and
// memory.
//
// Implementations are compiled for their instruction set. If the linker shared one of their inline
// functions with other files, it would crash CPUs without that instruction set. So they include
// only this header, core/numerics.hpp, headers of their own folder and of core/cpu that are written
// for such files, and intrinsics, use no templates of the standard library, and keep everything
// except the kernel in an unnamed namespace.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/cpu/features.hpp"
#include "core/cpu/unroll.hpp"

namespace switchback::gemm_int8 {

/// The outputs of an epilogue: DTypes by their numbers (checked in epilogue.cpp).
enum class Output { f32 = 0, f16 = 1, bf16 = 2, s32 = 4 };
inline constexpr int output_count = 5;

/// One epilogue: y = scale_b · (scale_a · (float(sum) · c)) + bias, from int32 sums.
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
  bool streams;  ///< d is stored past the caches, as far as the kernel can; its rows are 64-byte
                 ///< aligned
};

/// The end of a superblock: d = fma(p, c, start), rounded to the type of d.
struct FoldTile {
  const float* p;
  int64_t rows;
  int64_t cols;
  const void* start;  ///< f32 at any address, may be d itself; null: +0
  int64_t stride_start_bytes;
  void* d;  ///< any alignment
  int64_t stride_d_bytes;
  bool streams;   ///< as EpilogueTile::streams
  Output output;  ///< the type of d, not s32
};

/// What a block of a blockwise product adds to the tile's f32 sums: p = fma(float(sum) · scale_b,
/// scale_a, p).
struct PromotionTile {
  const int32_t* sums;  ///< rows of `cols` of the kernel, 64-byte aligned, as those of p
  float* p;
  bool first;  ///< p begins as +0
  int64_t rows;
  const float* scale_a;  ///< [rows], of the block
  const float* scale_b;  ///< [cols] of the kernel, readable whatever n is
  /// Unless null, the superblock ends with this block: p goes to d as well.
  const FoldTile* fold;
};

/// A tile of one block of a blockwise product. Its sums start at zero.
struct BlockTile {
  const void* a;  ///< of MicroKernel::copy_rows
  const void* panel;
  int64_t strip_bytes;  ///< from one strip of the panel to the next
  int64_t k;            ///< codes of the block, a multiple of 64
  int rows;
  int32_t* sums;                ///< rows of `cols`, 64-byte aligned
  const PromotionTile* before;  ///< to be done beside the product, or null
};

/// The product of rows of A and one panel of B, and where its sums go.
struct Tile {
  const void* a;  ///< codes of the first row, as MicroKernel::prepare left them
  int64_t stride_a_bytes;
  const void* panel;    ///< or, of narrow tiles, strip
  int64_t strip_bytes;  ///< from one strip of the panel to the next
  int64_t k;            ///< codes summed
  bool rows_again;      ///< the next tile reads the same rows of A
  /// The start value of each row's sums; null: they continue from the values in `sums`.
  const int32_t* start;
  int32_t* sums;            ///< rows of `cols`, 64-byte aligned
  const EpilogueTile* out;  ///< null: `sums` is the result; else it is scratch
  Output output;            ///< with `out` or `before`
  /// The epilogue of the tile before, of other sums, left to a kernel with defers_epilogue; or
  /// null.
  const EpilogueTile* before;
  /// Unless null, `sums` are not stored: they are promoted by a kernel with promotes_tiles.
  const PromotionTile* promotion;
  /// The memory needed next: each step of 4 groups prefetches ahead_lines of it, up to its end.
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
/// The reasons for an instruction set, given its vendor's name and that of core::Isa.
#define SWITCHBACK_KERNEL_REASONS(title, isa)                    \
  {                                                              \
    "this build has no " title " code", "the CPU has no " title, \
        "the Context's isa is capped below " isa                 \
  }

/// The kernel of an instruction set. If the compiler or the architecture of the build lacks it, the
/// kernel has only its isa and the reasons.
struct MicroKernel {
  static constexpr int max_rows = 32;
  static constexpr int max_cols = 64;
  static constexpr int max_narrow_rows = 16;

  core::Isa isa;
  KernelReasons reasons;

  int rows = 0;  ///< of a tile, at most max_rows
  int cols = 0;  ///< of a tile and of a panel of B, at most max_cols
  /// The most rows of a block, whose codes stay in the second-level cache. 168 is the largest
  /// number among those that measured best on Zen 5 (96 … 168 within 1 % at K = 1024 and 4096).
  int block_rows = 168;
  /// Its epilogue can store past the caches, which pays where stores would wait for memory.
  bool streams = false;
  /// Of blockwise products: folding can.
  bool streams_folds = false;
  /// Codes along k that one instruction sums: 4 of vpdpbusd, 8 of smmla. A power of two.
  int group = 4;

  /// Rows of A that are prepared together: 1, or as many as an instruction reads at once. Tiles and
  /// blocks begin at a multiple of it.
  int rows_together = 1;
  /// Called by a thread before and after it computes tiles, unless null: for registers that have to
  /// be configured.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
  /// 0: tiles read A in place. Else they read prepare()'s copy, with this many bytes per code.
  int a_copy_bytes = 0;
  /// Computes the start values of the sums of up to rows_together rows of A, because B's codes may
  /// be stored with an offset. With a_copy_bytes, and unless copy is null, also copies the rows,
  /// interleaved by groups and zero-padded to whole groups and to all rows.
  void (*prepare)(const int8_t* a, int64_t stride_a, int rows, int64_t k, void* copy,
                  int32_t* start) = nullptr;

  /// Packed B consists of strips of strip_cols columns of d, each a row of B; in a strip, groups of
  /// codes along k; in a group, strip_cols rows of B. There are strips for whole panels, and codes
  /// for whole groups. Padding is unspecified: tiles treat A's missing codes as zero, and the sums
  /// of missing columns are not used.
  int strip_cols = 0;
  /// What each byte of a packed code was combined with by exclusive or: 0x80 adds 128.
  int8_t stored_xor = 0;
  /// Tiles may read this far behind the last strip; what they read there does not matter.
  int overread_bytes = 0;
  /// The rows of B that are packed together.
  static constexpr int pack_width = 16;
  /// B's rows [0, n), n <= pack_width, × codes [0, k) into a strip. `strip` is the place of the
  /// first group of the first row: 64-byte aligned, since rows begin at a multiple of pack_width.
  using Pack = void (*)(const int8_t* b, int64_t stride_b, int n, int64_t k, void* strip);
  Pack pack_rows = nullptr;
  /// The same from B transposed: [k, n], rows of n codes.
  Pack pack_columns = nullptr;
  /// Unless null, pack_rows with stores past the caches.
  Pack stream_rows = nullptr;
  /// Unless null, pack_columns with such stores, for stream_width columns and whole groups of k at
  /// once. They begin at the first column of a strip; strips are strip_bytes apart.
  static constexpr int stream_width = 64;
  void (*stream_columns)(const int8_t* b, int64_t stride_b, int64_t k, void* strip,
                         int64_t strip_bytes) = nullptr;

  /// tile[r−1]: a tile of r rows.
  using TileFunction = void (*)(const Tile& tile);
  TileFunction tile[max_rows] = {};

  /// tile() does the epilogue of the tile before beside its own product, which does not occupy the
  /// vector units. Its own out then only says where the results will go.
  bool defers_epilogue = false;

  /// With fewer tiles per panel, blocks do not prefetch the next panel: that would be too fast for
  /// the caches, the CPU drops such requests, and the product is faster without them.
  int fetching_tiles = 4;

  /// narrow[r−1]: a tile of r rows and one strip, for an A of few rows: each byte of B that comes
  /// from memory serves more rows, and B is read as one stream. narrow_rows is 0 if there are none.
  int narrow_rows = 0;
  /// Blocks of so many rows at most are computed in narrow tiles, of which they need two at most.
  int narrow_block_rows = 2 * narrow_rows;
  TileFunction narrow[max_narrow_rows] = {};
  /// Codes along k between what a narrow tile reads and what it fetches. 256 of a strip of 32
  /// columns are 8 KiB. Zen 5, one thread, 12 rows, weights from memory: 1.5 times as fast as
  /// without; 1.35 with 4 KiB, 1.2 with 2.
  int narrow_distance = 256;
  /// Up to so many rows the CPU's own prefetchers keep up, and prefetches make narrow tiles slower.
  int unfetched_rows = 2;

  /// plain[r−1]: sums of r rows of A without packing, with n rows of B (at most `cols`) read in
  /// place.
  using Plain = void (*)(const int8_t* a, int64_t stride_a, const int8_t* b, int64_t stride_b,
                         int n, int64_t k, const int32_t* start, int32_t* sums);
  Plain plain[max_rows] = {};

  /// By Output.
  using Epilogue = void (*)(const EpilogueTile& tile);
  Epilogue epilogue[output_count] = {};

  /// Blockwise products: the end of a block, and of a superblock if the tile says so.
  void (*promote)(const PromotionTile& tile) = nullptr;
  /// tile() does Tile::promotion from its registers.
  bool promotes_tiles = false;
  /// Null: blocks are summed by `tile`. Else by this, from copy_rows()'s copy, and it does the
  /// promotion of the tile before.
  void (*block_tile)(const BlockTile& tile) = nullptr;
  /// The copy of a tile's rows that block_tile reads: rows_together · k codes for each
  /// rows_together rows, whole or not, 64-byte aligned. The codes of a block begin at the rows of
  /// the copy times the codes in front of it.
  void (*copy_rows)(const int8_t* a, int64_t stride_a, int rows, int64_t k, void* copy) = nullptr;

  [[nodiscard]] bool is_built() const noexcept { return rows > 0; }
};

// The kernels by the names of their engines, the preferred one first.
#define SWITCHBACK_TILE_KERNELS(OF) OF(amx) OF(avx512_vnni) OF(avx_vnni) OF(avx2)

#define SWITCHBACK_DECLARE_KERNEL(name) extern const MicroKernel name##_kernel;
SWITCHBACK_TILE_KERNELS(SWITCHBACK_DECLARE_KERNEL)
#undef SWITCHBACK_DECLARE_KERNEL

}  // namespace switchback::gemm_int8
