// SPDX-License-Identifier: Apache-2.0
// Engine zone: the arguments of the kernel that quantizes a tile and stores its codes transposed.
#pragma once

#include <cstdint>

#include "quant/cpu/column_scales.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/scale.hpp"

namespace switchback::quant::cpu {

/// The layout of a tile's scratch memory, in bytes: rows of packed codes, twice 16 columns of
/// codes, and a line of 64 codes for each column.
struct TileScratch {
  /// Bytes of a row of packed codes; not a multiple of 4 KiB, which would map all rows to one set
  /// of a cache.
  std::int64_t packed_bytes;
  /// Bytes of a column: a cache line, and a code for each row of the tile.
  std::int64_t lines_bytes;
  std::int64_t lines_offset;
  std::int64_t carried_offset;
  std::int64_t bytes;

  TileScratch(std::int64_t tile_rows, std::int64_t cols)
      : packed_bytes((cols + 63) / 64 * 64 + 64),
        lines_bytes(64 + tile_rows),
        lines_offset(tile_rows * packed_bytes),
        carried_offset(lines_offset + 32 * lines_bytes),
        bytes(carried_offset + (packed_bytes - 64) * 64) {}
};

struct TileJob {
  ConstAnyMatrix x;
  MatrixView<std::int8_t> q;  ///< the untransposed codes, or no data
  MatrixView<std::int8_t> q_t;
  bool by_column = false;
  Scale scale;           ///< the scale of all elements, unless by_column
  ColumnScales columns;  ///< the scales of columns, if by_column
  bool stream = false;
  std::int64_t tile_rows = 0;  ///< rows of a tile: a multiple of 64
  bool asks_ahead = false;     ///< prefetches the next tile, which is in memory and not in a cache
  const void* next = nullptr;  ///< where the next piece begins, if it is to be prefetched
};

/// Computes the codes of a piece of job.x, and stores them transposed in the same piece of job.q_t.
using TileKernel = void (*)(const TileJob& job, const Cut::Piece& piece, std::int8_t* scratch);
TileKernel tile_kernel(const core::CpuFeatures& features);

}  // namespace switchback::quant::cpu
