// SPDX-License-Identifier: Apache-2.0
// Engine zone: the part of the blocked int8 product that depends on the instruction set: the layout
// of B, the product of one tile, the epilogue of one tile. blocked.cpp has loops, threads and
// memory.
//
// Implementations are compiled for their instruction set. If the linker shared one of their inline
// functions with other files, it would crash CPUs without that instruction set. Therefore an
// implementation includes only these headers: this one, core/numerics.hpp, its folder's own
// headers, headers of core/cpu that are written for such files, and intrinsics. It uses no
// templates of the standard library, and keeps everything except the kernel in an unnamed
// namespace.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/cpu/features.hpp"
#include "core/cpu/unroll.hpp"

namespace switchback::gemm_int8 {

/// The output types of an epilogue, with the numbers that they have as DType (checked in
/// epilogue.cpp).
enum class Output { f32 = 0, f16 = 1, bf16 = 2, s32 = 4 };
inline constexpr int output_count = 5;

/// The arguments of an epilogue: y = scale_b · (scale_a · (float(sum) · c)) + bias, from int32
/// sums.
struct EpilogueTile {
  const int32_t* sums;  ///< each row is readable up to a multiple of 16 sums
  int64_t stride_sums;
  int64_t rows;
  int64_t cols;
  const float* scale_a;  ///< [rows]
  const float* scale_b;  ///< scale of each column, [cols], readable up to a multiple of 16
  /// The bias, [cols], readable up to a multiple of 16. "No bias" is −0: adding it changes no bit
  /// of any sum.
  const float* bias;
  void* d;  ///< output, at any alignment
  int64_t stride_d_bytes;
  /// Whether to use non-temporal stores, as far as the kernel can. Rows of d are then 64-byte
  /// aligned.
  bool streams;
};

/// The arguments of a fold, at the end of a superblock of a blockwise product: d = fma(p, c,
/// start), rounded to the type of d.
struct FoldTile {
  const float* p;
  int64_t rows;
  int64_t cols;
  /// The values to which p · c is added: f32 at any address, may be d itself; null means +0.
  const void* start;
  int64_t stride_start_bytes;
  void* d;  ///< output, at any alignment
  int64_t stride_d_bytes;
  bool streams;   ///< whether to use non-temporal stores, as EpilogueTile::streams
  Output output;  ///< the type of d; not s32
};

/// How a block of a blockwise product adds its int32 sums to the tile's f32 sums p: p =
/// fma(float(sum) · scale_b, scale_a, p).
struct PromotionTile {
  /// Rows of MicroKernel::cols sums, 64-byte aligned; p has the same layout.
  const int32_t* sums;
  float* p;
  bool first;  ///< whether p starts as +0: it is the superblock's first block
  int64_t rows;
  const float* scale_a;  ///< scales of the block for rows of A, [rows]
  /// Scales of columns, [MicroKernel::cols], all readable whatever n is.
  const float* scale_b;
  /// Unless null, the superblock ends with this block, and p is also added to d.
  const FoldTile* fold;
};

/// A tile of one block of a blockwise product. Its sums start at zero.
struct BlockTile {
  const void* a;  ///< a copy made by MicroKernel::copy_rows
  const void* panel;
  int64_t strip_bytes;  ///< distance between strips of the panel
  int64_t k;            ///< codes of each row in the block, a multiple of 64
  int rows;
  int32_t* sums;  ///< sums, in rows of MicroKernel::cols, 64-byte aligned
  /// the previous tile's promotion, done during this product; or null
  const PromotionTile* before;
};

/// The product of rows of A and one panel of B, and where its sums go.
struct Tile {
  const void* a;  ///< codes of the first row, as MicroKernel::prepare left them
  int64_t stride_a_bytes;
  const void* panel;    ///< the panel of B; for narrow tiles, the strip
  int64_t strip_bytes;  ///< distance between strips of the panel
  int64_t k;            ///< codes of each row that are summed
  bool rows_again;      ///< whether the next tile reads the same rows of A
  /// The start value of each row's sums. Null: the sums continue from the values in `sums`.
  const int32_t* start;
  int32_t* sums;            ///< sums, in rows of MicroKernel::cols, 64-byte aligned
  const EpilogueTile* out;  ///< null: `sums` is the result; otherwise `sums` is scratch memory
  Output output;            ///< the type of d, used with `out` or `before`
  /// The epilogue of the previous tile, with that tile's sums, for a kernel with defers_epilogue;
  /// or null.
  const EpilogueTile* before;
  /// Unless null, `sums` are not stored: a kernel with promotes_tiles promotes them instead.
  const PromotionTile* promotion;
  /// The memory that is needed next, to be prefetched. Each step of 4 groups prefetches ahead_lines
  /// cache lines of it, up to ahead_end.
  const int8_t* ahead;
  const int8_t* ahead_end;
  int ahead_lines;
};

/// Why a kernel cannot run here, in words for users.
struct KernelReasons {
  const char* not_built;
  const char* not_there;
  const char* capped;
};
/// The KernelReasons of an instruction set, given its vendor's name and its name in core::Isa.
#define SWITCHBACK_KERNEL_REASONS(title, isa)                    \
  {                                                              \
    "this build has no " title " code", "the CPU has no " title, \
        "the Context's isa is capped below " isa                 \
  }

/// The tile kernel of an instruction set. If the compiler or the architecture of the build lacks
/// that instruction set, the kernel has only its isa and the reasons.
struct MicroKernel {
  static constexpr int max_rows = 32;
  static constexpr int max_cols = 64;
  static constexpr int max_narrow_rows = 16;

  core::Isa isa;
  KernelReasons reasons;

  int rows = 0;  ///< rows of a tile, at most max_rows
  int cols = 0;  ///< columns of a tile and of a panel of B, at most max_cols
  /// The most rows of a block of A, whose codes stay in the second-level cache. 168 is the largest
  /// number among those that measured best on Zen 5 (96 … 168 within 1 % at K = 1024 and 4096).
  int block_rows = 168;
  /// Whether the kernel's epilogue can use non-temporal stores, which pays where ordinary stores
  /// would wait for memory.
  bool streams = false;
  /// For blockwise products: whether the fold into d can use non-temporal stores.
  bool streams_folds = false;
  /// Codes along k that one instruction sums: 4 for vpdpbusd, 8 for smmla. A power of two.
  int group = 4;

  /// Rows of A that are prepared together: 1, or the number that an instruction reads at once.
  /// Tiles and blocks begin at a multiple of it.
  int rows_together = 1;
  /// Unless null, a thread calls begin() before and end() after it computes tiles, for registers
  /// that have to be configured.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
  /// 0: tiles read A in place. Otherwise they read the copy of A made by prepare(), with this many
  /// bytes per code.
  int a_copy_bytes = 0;
  /// Computes the start values of the sums of up to rows_together rows of A. They are needed
  /// because B's codes may be stored with an offset. If a_copy_bytes is set and copy is not null,
  /// it also copies the rows: interleaved by groups, and zero-padded to whole groups and to
  /// rows_together rows.
  void (*prepare)(const int8_t* a, int64_t stride_a, int rows, int64_t k, void* copy,
                  int32_t* start) = nullptr;

  /// Packed B consists of strips of strip_cols columns of d; each column is a row of B. A strip
  /// consists of groups of codes along k, and each group has the codes of strip_cols rows of B.
  /// There are strips for whole panels, and codes for whole groups. The padding may hold anything:
  /// tiles treat A's missing codes as zero, and the sums of missing columns are not used.
  int strip_cols = 0;
  /// The value that each byte of a packed code was xored with: 0x80 adds 128.
  int8_t stored_xor = 0;
  /// Tiles may read this many bytes past the last strip. The values they read there do not matter.
  int overread_bytes = 0;
  /// The number of rows of B that are packed together.
  static constexpr int pack_width = 16;
  /// Packs B's rows [0, n), n <= pack_width, and codes [0, k) into a strip. `strip` is the address
  /// of the first group of the first row. It is 64-byte aligned, since rows begin at a multiple of
  /// pack_width.
  using Pack = void (*)(const int8_t* b, int64_t stride_b, int n, int64_t k, void* strip);
  Pack pack_rows = nullptr;
  /// As pack_rows, from B transposed: [k, n], in rows of n codes.
  Pack pack_columns = nullptr;
  /// Unless null, pack_rows with non-temporal stores.
  Pack stream_rows = nullptr;
  /// Unless null, pack_columns with non-temporal stores, for stream_width columns and whole groups
  /// of k at once. The columns begin at the first column of a strip; strips are strip_bytes apart.
  static constexpr int stream_width = 64;
  void (*stream_columns)(const int8_t* b, int64_t stride_b, int64_t k, void* strip,
                         int64_t strip_bytes) = nullptr;

  /// tile[r−1] computes a tile of r rows.
  using TileFunction = void (*)(const Tile& tile);
  TileFunction tile[max_rows] = {};

  /// Whether tile() does the epilogue of the previous tile during its own product, which does not
  /// occupy the vector units. The tile's own `out` then only says where the results will go.
  bool defers_epilogue = false;

  /// With fewer tiles per panel than this, blocks do not prefetch the next panel. The prefetches
  /// would be too fast for the caches, the CPU would drop them, and the product is faster without
  /// them.
  int fetching_tiles = 4;

  /// narrow[r−1] computes a tile of r rows and one strip, for an A of few rows. Each byte of B that
  /// comes from memory serves more rows, and B is read as one stream. narrow_rows is 0 if there are
  /// no such tiles.
  int narrow_rows = 0;
  /// Blocks of at most this many rows are computed in narrow tiles, at most two for each strip.
  int narrow_block_rows = 2 * narrow_rows;
  TileFunction narrow[max_narrow_rows] = {};
  /// The prefetch distance of a narrow tile, in codes along k. 256 codes of a strip of 32 columns
  /// are 8 KiB. Zen 5, one thread, 12 rows, weights from memory: 1.5 times as fast as without
  /// prefetches; 1.35 with 4 KiB, 1.2 with 2.
  int narrow_distance = 256;
  /// Up to this many rows the CPU's own prefetchers keep up, and prefetch instructions make narrow
  /// tiles slower.
  int unfetched_rows = 2;

  /// plain[r−1] computes the sums of r rows of A without packing. It reads n rows of B (at most
  /// `cols`) in place.
  using Plain = void (*)(const int8_t* a, int64_t stride_a, const int8_t* b, int64_t stride_b,
                         int n, int64_t k, const int32_t* start, int32_t* sums);
  Plain plain[max_rows] = {};

  /// The epilogue for each output type, indexed by Output.
  using Epilogue = void (*)(const EpilogueTile& tile);
  Epilogue epilogue[output_count] = {};

  /// For blockwise products: promotes the sums of a tile at the end of a block, and also folds them
  /// into d at the end of a superblock.
  void (*promote)(const PromotionTile& tile) = nullptr;
  /// Whether tile() promotes its sums itself, from registers, as Tile::promotion says.
  bool promotes_tiles = false;
  /// For blockwise products. Null: `tile` computes the sums of blocks. Otherwise this function
  /// does, from the copy made by copy_rows(), and it also does the promotion of the previous tile.
  void (*block_tile)(const BlockTile& tile) = nullptr;
  /// Makes the copy of a tile's rows that block_tile reads. It has rows_together · k codes for each
  /// rows_together rows, whether these are complete or not, and is 64-byte aligned. The codes of a
  /// block begin at (rows of the copy) times (codes before the block).
  void (*copy_rows)(const int8_t* a, int64_t stride_a, int rows, int64_t k, void* copy) = nullptr;

  [[nodiscard]] bool is_built() const noexcept { return rows > 0; }
};

// The kernels by the names of their engines, the preferred one first.
#define SWITCHBACK_TILE_KERNELS(OF) \
  OF(amx) OF(avx512_vnni) OF(avx_vnni) OF(avx2) OF(neon_i8mm) OF(neon_dotprod)

#define SWITCHBACK_DECLARE_KERNEL(name) extern const MicroKernel name##_kernel;
SWITCHBACK_TILE_KERNELS(SWITCHBACK_DECLARE_KERNEL)
#undef SWITCHBACK_DECLARE_KERNEL

}  // namespace switchback::gemm_int8
