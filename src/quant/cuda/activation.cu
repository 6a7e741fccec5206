// SPDX-License-Identifier: Apache-2.0
// Device code: GELU and its derivative, alone and with the quantization of the result by row.
#include <algorithm>

#include "quant/cuda/gelu.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace {

struct ActivationArguments {
  const void* g;  // null: forward
  const void* x;
  void* y;
  std::int64_t rows, packs, g_stride, x_stride, y_stride;
  bool tanh_form;
  Tiles tiles;
};

// Packs of a thread's turn.
template <class T, int V, bool backward>
constexpr int each_of = has_table<T, V> && !backward ? 4 : 2;

// Floor: each element is read once (forward) or two are (backward), and one is written. An H200
// issues 30 T instructions a second at 1.78 GHz, which for 60 % of the time of its memory is 17 an
// element for 4 bytes. sm_90: at most 48 registers. G is the type of g and y where there is g, else
// that of all.
//
// Instructions an element (sm_90, erf form): bf16 forward 11.8, was 84 without the table, 40 % of
// an H200's time for its bytes; backward 18.6, was 86, 42 %. The tables cost 9 and 17 KiB of shared
// memory. f16 forward 68, was 83, 230 %; backward 86, 200 %; f32 forward 85, 145 %: these stay
// bound by instructions. (The tanh form takes some 25 less.)
template <class G, class T, int V, bool backward>
__global__ void __launch_bounds__(512) activation_kernel(ActivationArguments a) {
  __shared__ Table<T, V, backward> table;
  load_table<T, V, backward>(a.tanh_form, table);
  constexpr int each = each_of<T, V, backward>;
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const Place place = place_of(tile, a.tiles.across);
    const std::int64_t row = place.down * blockDim.y + threadIdx.y;
    if (row >= a.rows) continue;
    const std::int64_t begin = place.across * each * blockDim.x + threadIdx.x;
    const T* const x_row = static_cast<const T*>(a.x) + row * a.x_stride;
    const G* const g_row = static_cast<const G*>(a.g) + row * a.g_stride;
    G* const y_row = static_cast<G*>(a.y) + row * a.y_stride;
    Pack<T, V> x[each];
    Pack<G, V> g[each];
    load_striped(x_row, begin, a.packs, x);
    if constexpr (backward) load_striped(g_row, begin, a.packs, g);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const std::int64_t pack = begin + i * blockDim.x;
      if (pack >= a.packs) continue;
      if constexpr (backward)
        store_pack<G, V>(y_row, pack, backward_pack<G, T, V>(a.tanh_form, g[i], x[i], table));
      else
        store_pack<T, V>(y_row, pack, activated_pack<T, V>(a.tanh_form, x[i], table));
    }
  }
}

struct RowsArguments {
  const void* g;
  const void* x;
  void* y;  // null: not wanted
  std::int8_t* q;
  float* absmax;
  std::int64_t rows, packs, g_stride, x_stride, y_stride, q_stride;
  bool tanh_form;
};

constexpr int most_row_threads = 512;  // that leaves registers enough

// A row stays in the registers of blockDim.x threads, R packs each. Floor: forward reads x and
// writes the codes, f32 5, f16 and bf16 3 bytes an element; backward reads g and x and writes dx
// and the codes, 13 and 7. The instructions are those of above and the quantize's: bf16
// forward 15.4 (was 91), 42 % of an H200's time for its bytes with y and 70 % without, backward
// 17.8, 35 %. sm_90: at most 64 registers, 256 bytes of shared memory and the table.
template <class T, int R, bool backward>
__global__ void __launch_bounds__(most_row_threads) activation_rowwise_kernel(RowsArguments a) {
  constexpr int V = vector_elements<T>;
  __shared__ unsigned maxima[2][32];
  __shared__ Table<T, V, backward> table;
  load_table<T, V, backward>(a.tanh_form, table);
  int turn = 0;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < a.rows;
       first += static_cast<std::int64_t>(gridDim.x) * blockDim.y, turn ^= 1) {
    const std::int64_t row = first + threadIdx.y;
    const int packs = row < a.rows ? static_cast<int>(a.packs) : 0;
    const T* const x_row = static_cast<const T*>(a.x) + row * a.x_stride;
    Pack<T, V> y[R];
    load_striped(x_row, static_cast<int>(threadIdx.x), packs, y);
    // Both functions and the gradient make 0 of 0, which packs that are not there hold.
    if constexpr (backward) {
      const T* const g_row = static_cast<const T*>(a.g) + row * a.g_stride;
      Pack<T, V> g[R];
      load_striped(g_row, static_cast<int>(threadIdx.x), packs, g);
#pragma unroll
      for (int i = 0; i < R; ++i)
        y[i] = backward_pack<T, T, V>(a.tanh_form, g[i], y[i], table);
    } else {
#pragma unroll
      for (int i = 0; i < R; ++i)
        y[i] = activated_pack<T, V>(a.tanh_form, y[i], table);
    }
    Largest<T, V> largest;
#pragma unroll
    for (int i = 0; i < R; ++i)
      largest.add(y[i]);
    const float absmax = absmax_from_bits(row_max(largest.all(), maxima[turn]));
    const Scale<T> scale = scale_of<T>(absmax);
    if (threadIdx.x == 0 && row < a.rows) store_element(a.absmax + row, absmax);
    std::int8_t* const q_row = a.q + row * a.q_stride;
    T* const y_row = static_cast<T*>(a.y) + row * a.y_stride;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int pack = static_cast<int>(threadIdx.x + i * blockDim.x);
      if (a.y != nullptr && pack < packs) store_pack<T, V>(y_row, pack, y[i]);
    }
    store_striped_codes<true>(y, scale, q_row, packs);
  }
}

// Blocks that load a table are few, so that each uses it often: as many as the device holds,
// several times over for balance.
template <class T, int V>
std::int64_t most_blocks_of(const Launch& launch) {
  return has_table<T, V> ? launch.multiprocessors * std::int64_t{8} : most_blocks;
}

constexpr int default_threads = 256;

template <class G, class T, bool backward>
cudaError_t start(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x, Activation activation,
                  AnyMatrix y) {
  constexpr bool one_type = sizeof(G) == sizeof(T);
  constexpr int V = one_type ? vector_elements<T> : 1;
  const bool packed =
      V > 1 && is_packed<T>(x) && is_packed<G>(ConstAnyMatrix(y)) && (!backward || is_packed<G>(g));
  const std::int64_t packs = packed ? x.cols / V : x.cols;
  const int each = packed ? each_of<T, V, backward> : each_of<T, 1, backward>;
  const int threads = launch.block_threads > 0 && launch.block_threads <= 512 ? launch.block_threads
                                                                              : default_threads;
  const dim3 block = block_of_rows(threads_of_row(packs, each, threads), threads);
  const Tiles tiles = tiles_of(x.rows, packs, each, block);
  const ActivationArguments a = {g.data,   x.data,   y.data,
                                 x.rows,   packs,    g.stride,
                                 x.stride, y.stride, activation == Activation::gelu_tanh,
                                 tiles};
  return core::SWITCHBACK_CUDA_NS::launch(
      backward ? "activation_backward" : "activation_forward",
      packed ? activation_kernel<G, T, V, backward> : activation_kernel<G, T, 1, backward>,
      dim3(grid_of(packed ? std::min(tiles.count, most_blocks_of<T, V>(launch)) : tiles.count)),
      block, 0, launch.stream, a);
}

template <class T>
cudaError_t start_rowwise(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x,
                          Activation activation, AnyMatrix y, Codes q, float* absmax) {
  const RowsArguments a = {g.data,
                           x.data,
                           y.data,
                           q.data,
                           absmax,
                           x.rows,
                           x.cols / vector_elements<T>,
                           g.stride,
                           x.stride,
                           y.stride,
                           q.stride,
                           activation == Activation::gelu_tanh};
  const bool backward = g.data != nullptr;
  const int threads =
      a.packs > std::int64_t{4} * default_threads ? most_row_threads : default_threads;
  const auto with = [&](auto kernel, int packs_each) {
    const dim3 block = block_of_rows(threads_of_row(a.packs, packs_each, threads), threads);
    const auto blocks = divide_up<std::int64_t>(a.rows, block.y);
    return core::SWITCHBACK_CUDA_NS::launch(
        backward ? "activation_backward_quantize" : "activation_forward_quantize", kernel,
        dim3(grid_of(std::min(blocks, most_blocks_of<T, vector_elements<T>>(launch)))), block, 0,
        launch.stream, a);
  };
  if (a.packs > 64)
    return backward ? with(activation_rowwise_kernel<T, 4, true>, 4)
                    : with(activation_rowwise_kernel<T, 4, false>, 4);
  return backward ? with(activation_rowwise_kernel<T, 1, true>, 1)
                  : with(activation_rowwise_kernel<T, 1, false>, 1);
}

}  // namespace

cudaError_t launch_activation(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x,
                              Activation activation, AnyMatrix y) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    if (g.data == nullptr) return start<T, T, false>(launch, g, x, activation, y);
    if (g.dtype == x.dtype) return start<T, T, true>(launch, g, x, activation, y);
    return start<float, T, true>(launch, g, x, activation, y);
  });
}

bool activation_rowwise_together(ConstAnyMatrix g, ConstAnyMatrix x, AnyMatrix y,
                                 Codes q) noexcept {
  bool takes = false;
  (void)for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    takes = is_packed<T>(x) && are_packed<T>(q) && (g.data == nullptr || is_packed<T>(g)) &&
            (y.data == nullptr || is_packed<T>(ConstAnyMatrix(y))) &&
            x.cols / vector_elements<T> <= 4 * most_row_threads;
    return cudaSuccess;
  });
  return takes;
}

cudaError_t launch_activation_rowwise(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x,
                                      Activation activation, AnyMatrix y, Codes q, float* absmax) {
  return for_type(x.dtype, [&](auto element) {
    return start_rowwise<decltype(element)>(launch, g, x, activation, y, q, absmax);
  });
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
