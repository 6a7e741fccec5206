// SPDX-License-Identifier: Apache-2.0
// Device code: the rows that slots read, copied.
#include "grouped/cuda/slot_rows.cuh"

namespace switchback::grouped::cuda {

namespace {

namespace quant = quant::cuda;

constexpr int each = 4;  // packs of a thread

struct GatherArguments {
  SlotRows slots;
  const void* x;
  void* to;
  std::int64_t rows, packs, to_stride;
  quant::Tiles tiles;
};

// Floor: each element is read and written once.
template <class T, int V>
__global__ void __launch_bounds__(256) gather_kernel(GatherArguments a) {
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const quant::Place place = quant::place_of(tile, a.tiles.across);
    const std::int64_t slot = place.down * blockDim.y + threadIdx.y;
    std::int64_t element = 0;
    if (slot >= a.rows || find_row(a.slots, slot, element) < 0) continue;
    const T* const from = static_cast<const T*>(a.x) + element;
    T* const to = static_cast<T*>(a.to) + slot * a.to_stride;
    const std::int64_t begin = place.across * each * blockDim.x + threadIdx.x;
    quant::Pack<T, V> packs[each];
    quant::load_striped(from, begin, a.packs, packs);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const std::int64_t pack = begin + i * blockDim.x;
      if (pack < a.packs) quant::store_pack<T, V>(to, pack, packs[i]);
    }
  }
}

}  // namespace

cudaError_t launch_gather(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                          AnyMatrix to) {
  return quant::for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = quant::vector_elements<T>;
    const bool packed =
        are_packed<T>(slots, x.data, to.cols) && quant::is_packed<T>(ConstAnyMatrix(to));
    const std::int64_t packs = packed ? to.cols / V : to.cols;
    constexpr int threads = 256;
    const dim3 block = quant::block_of_rows(quant::threads_of_row(packs, each, threads), threads);
    const quant::Tiles tiles = quant::tiles_of(to.rows, packs, each, block);
    const GatherArguments a = {slots, x.data, to.data, to.rows, packs, to.stride, tiles};
    return core::cuda::launch("grouped_gather", packed ? gather_kernel<T, V> : gather_kernel<T, 1>,
                              dim3(quant::grid_of(tiles.count)), block, 0, launch.stream, a);
  });
}

}  // namespace switchback::grouped::cuda
