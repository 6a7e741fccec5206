// SPDX-License-Identifier: Apache-2.0
// Which tile of d a job of the tensor-core kernels computes.
#pragma once

#include "gemm/blockwise/cuda/kernels.hpp"

namespace switchback::blockwise::cuda {

namespace {

// Tiles are computed in strips of `strip` rows of tiles, and each strip column by column.
template <int strip>
struct TileOfJob {
  unsigned part, tile;  // part: the group, if there are groups
  int down, across;     // position of the tile, in tiles

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
