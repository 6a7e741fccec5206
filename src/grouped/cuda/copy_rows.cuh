// SPDX-License-Identifier: Apache-2.0
// Engine zone: a kernel that copies rows of a matrix, and finds these rows on the device.
#pragma once

#include "grouped/cuda/slot_rows.cuh"

namespace switchback::grouped::cuda {

namespace {

constexpr int packs_of_copy = 4;  // packs of 16 bytes that a thread copies

template <class Rows>
struct CopyArguments {
  Rows find;
  const void* x;
  void* to;
  std::int64_t rows, packs, to_stride;
  quant::cuda::Tiles tiles;
};

// Lower bound of memory traffic: each element is read and written once, and zeros are written.
template <class T, int V, class Rows>
__global__ void __launch_bounds__(256) copy_rows_kernel(CopyArguments<Rows> a) {
  namespace quant = quant::cuda;
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const quant::Place place = quant::place_of(tile, a.tiles.across);
    const std::int64_t row = place.down * blockDim.y + threadIdx.y;
    if (row >= a.rows) continue;
    std::int64_t element = 0;
    const bool exists = a.find(row, element);
    if (!exists && !Rows::clears) continue;
    const std::int64_t begin = place.across * packs_of_copy * blockDim.x + threadIdx.x;
    quant::Pack<T, V> packs[packs_of_copy];
    quant::load_striped(static_cast<const T*>(a.x) + element, begin,
                        exists ? a.packs : std::int64_t{0}, packs);
    T* const to = static_cast<T*>(a.to) + row * a.to_stride;
#pragma unroll
    for (int i = 0; i < packs_of_copy; ++i) {
      const std::int64_t pack = begin + i * blockDim.x;
      if (pack < a.packs) quant::store_pack<T, V>(to, pack, packs[i]);
    }
  }
}

/// Copies a row of x to each row of `to`. find(row, element) finds the first element to copy,
/// counted in elements of x, and returns false if there is none. A row of `to` without such an
/// element becomes zeros if Rows::clears, and otherwise stays unchanged.
template <class Rows>
cudaError_t start_copy(const char* name, const Launch& launch, const SlotRows& slots,
                       ConstAnyMatrix x, const Rows& find, AnyMatrix to) {
  namespace quant = quant::cuda;
  return quant::for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = quant::vector_elements<T>;
    const bool packed =
        are_packed<T>(slots, x.data, to.cols) && quant::is_packed<T>(ConstAnyMatrix(to));
    const std::int64_t packs = packed ? to.cols / V : to.cols;
    constexpr int threads = 256;
    const dim3 block =
        quant::block_of_rows(quant::threads_of_row(packs, packs_of_copy, threads), threads);
    const quant::Tiles tiles = quant::tiles_of(to.rows, packs, packs_of_copy, block);
    const CopyArguments<Rows> a = {find, x.data, to.data, to.rows, packs, to.stride, tiles};
    return core::cuda::launch(name,
                              packed ? copy_rows_kernel<T, V, Rows> : copy_rows_kernel<T, 1, Rows>,
                              dim3(quant::grid_of(tiles.count)), block, 0, launch.stream, a);
  });
}

}  // namespace

}  // namespace switchback::grouped::cuda
