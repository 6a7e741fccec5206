// SPDX-License-Identifier: Apache-2.0
// Which tile of d each job of the tensor-core kernels computes.
#pragma once

#include "gemm/blockwise/cuda/kernels.hpp"

namespace switchback::blockwise::cuda {

namespace {

// The tile of a job. Tiles are numbered in strips of `strip` rows of tiles, and in each strip
// column by column.
template <int strip>
struct TileOfJob {
  unsigned part, tile;  // part: index of the job's superblock, or of its group if there are groups
  int down, across;     // the tile's position in d, counted in tiles

  __device__ __forceinline__ TileOfJob(const TileArguments& a, unsigned job) {
    part = job / a.tiles;
    tile = job - part * a.tiles;
    const unsigned of_strip = tile / (strip * a.across);
    const unsigned in_strip = tile - of_strip * strip * a.across;
    const unsigned height = min(static_cast<unsigned>(strip), a.down - of_strip * strip);
    down = static_cast<int>(of_strip * strip + in_strip % height);
    across = static_cast<int>(in_strip / height);
  }
};

}  // namespace

}  // namespace switchback::blockwise::cuda
