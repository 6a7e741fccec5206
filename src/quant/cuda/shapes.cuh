// SPDX-License-Identifier: Apache-2.0
// Engine zone: how the CUDA quantize kernels divide matrices into packs, and packs into blocks.
#pragma once

#include <cstdint>

#include "core/cuda/launch.cuh"
#include "quant/cuda/codes.cuh"
#include "quant/cuda/kernels.hpp"
#include "switchback/matrix.hpp"

namespace switchback::quant::cuda {

using core::cuda::divide_up;
using core::cuda::for_type;
using core::cuda::is_unchanged;
using core::cuda::let_next_kernel_begin;
using core::cuda::wait_for_kernel_before;

inline bool is_multiple(const void* address, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) == 0;
}

/// Whether all rows of a matrix consist of packs at multiples of `bytes`, each of `elements`
/// elements.
inline bool is_packed(const void* data, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                      std::int64_t elements, std::int64_t bytes) {
  return is_multiple(data, bytes) && cols % elements == 0 && (rows == 1 || stride % elements == 0);
}
template <class T>
bool is_packed(ConstAnyMatrix x) {
  return is_packed(x.data, x.rows, x.cols, x.stride, vector_elements<T>, 16);
}
/// Whether all rows of codes of a matrix of T consist of aligned packs too.
template <class T>
bool are_packed(ConstAnyMatrix q) {
  return is_packed(q.data, q.rows, q.cols, q.stride, vector_elements<T>, vector_elements<T>);
}

/// Whether all matrices are aligned like the first one, whose x and q are packed.
template <class T>
bool steps_are_packed(const MatrixSteps& steps) {
  return steps.x % vector_elements<T> == 0 && steps.q % vector_elements<T> == 0;
}

// Limit of a grid's second and third dimensions.
inline constexpr std::int64_t most_matrices = 65535;

/// Calls start(first, count) for all matrices, in batches of the largest number that a grid can
/// hold.
template <class Start>
cudaError_t for_matrices(std::int64_t matrices, const Start& start) {
  cudaError_t status = cudaSuccess;
  for (std::int64_t first = 0; first < matrices && status == cudaSuccess; first += most_matrices)
    status = start(first, static_cast<unsigned>(matrices - first < most_matrices ? matrices - first
                                                                                 : most_matrices));
  return status;
}

inline constexpr std::int64_t most_blocks = 0x7FFFFFFF;  // limit of a grid's first dimension

inline unsigned grid_of(std::int64_t blocks) {
  return static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks);
}

/// The number of a block's `threads` that share a row of this many packs, each processing up to
/// `each`: a power of two up to 32, or a multiple of 32.
inline int threads_of_row(std::int64_t packs, int each, int threads) {
  const std::int64_t wanted = divide_up<std::int64_t>(packs, each);
  if (wanted >= threads) return threads;
  if (wanted > 32) return static_cast<int>(divide_up<std::int64_t>(wanted, 32) * 32);
  int lanes = 1;
  while (lanes < wanted)
    lanes *= 2;
  return lanes;
}

/// A block of `row_threads` threads for a row by the number of rows that fit: a multiple of 32
/// threads.
inline dim3 block_of_rows(int row_threads, int threads) {
  return dim3(static_cast<unsigned>(row_threads), static_cast<unsigned>(threads / row_threads));
}

/// A block with a power of two of threads for a row, at least `least`, by the number of rows that
/// fit. Then a power of two of rows fills whole blocks.
inline dim3 block_of_few_rows(std::int64_t packs, int each, int threads, unsigned least = 1) {
  dim3 block(least, static_cast<unsigned>(threads) / least);
  for (; std::int64_t{block.x} * each < packs && block.y > 1; block.x *= 2)
    block.y /= 2;
  return block;
}

/// Starts a kernel for `groups` groups of `blocks` blocks each, in grids of the largest number of
/// groups that a grid can hold; a.first_group is the first group of the grid.
template <class A>
cudaError_t start_groups(const char* name, const Launch& launch, void (*kernel)(A), A a,
                         std::int64_t groups, std::int64_t blocks, dim3 block,
                         std::size_t shared_bytes) {
  const std::int64_t most = most_blocks / blocks;
  cudaError_t status = cudaSuccess;
  for (a.first_group = 0; a.first_group < groups && status == cudaSuccess; a.first_group += most) {
    const std::int64_t count = groups - a.first_group < most ? groups - a.first_group : most;
    status = core::cuda::launch(name, kernel, dim3(static_cast<unsigned>(count * blocks)), block,
                                shared_bytes, launch.stream, a);
  }
  return status;
}

/// How many tiles a matrix has side by side, and in total. A tile has blockDim.y rows and
/// blockDim.x · each packs.
struct Tiles {
  std::int64_t across;
  std::int64_t count;
};
inline Tiles tiles_of(std::int64_t rows, std::int64_t packs, int each, dim3 block) {
  Tiles tiles;
  tiles.across = divide_up<std::int64_t>(packs, std::int64_t{each} * block.x);
  tiles.count = tiles.across * divide_up<std::int64_t>(rows, block.y);
  return tiles;
}

struct Place {
  std::int64_t down;
  std::int64_t across;
};
/// Returns the place of tile number `index` if `across` tiles are side by side. A 64-bit division
/// takes a hundred instructions, so it is used only for numbers that need it.
__device__ __forceinline__ Place place_of(std::int64_t index, std::int64_t across) {
  if (index < across) return {0, index};
  if (index <= 0xFFFFFFFFll) {
    const unsigned down = static_cast<unsigned>(index) / static_cast<unsigned>(across);
    return {down, index - down * across};
  }
  const std::int64_t down = index / across;
  return {down, index - down * across};
}

}  // namespace switchback::quant::cuda
