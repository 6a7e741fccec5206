// SPDX-License-Identifier: Apache-2.0
// Device code: GELU and its derivative, alone and with the quantization of the result by row.
#include <algorithm>

#include "quant/cuda/gelu.cuh"
#include "quant/cuda/gelu_list.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

namespace {

struct ActivationArguments {
  const void* g;  // the gradient; null: forward
  const void* x;
  void* y;
  std::int64_t rows, packs, g_stride, x_stride, y_stride;
  unsigned across, down;  // tiles
  bool tanh_form;
  const void* list;
};

// The number of packs of a thread in one iteration. There are several, because each iteration has
// an overhead of some 50 instructions.
template <class T, int V, bool backward, bool listed>
constexpr int each_of = V > 1 && std::is_same_v<T, float>          ? (backward ? 4 : 8)
                        : (has_table<T, V> || listed) && !backward ? 4
                                                                   : 2;

// If results are looked up in a list in shared memory: a list of derivatives leaves room for one
// block on a multiprocessor, and a list of values for two blocks that have enough registers.
template <bool backward, bool listed>
constexpr int most_threads = !listed    ? 512
                             : backward ? 1024
                                        : 384;
template <bool backward>
constexpr int blocks_with_list = backward ? 1 : 2;
template <bool backward, bool listed>
constexpr int least_blocks = listed ? blocks_with_list<backward> : 0;

// The packs of f32 are computed interleaved, in up to 128 registers. That leaves two blocks of 256
// threads, which have 64 KiB in flight.
template <class T, int V, bool backward, bool listed>
constexpr int least_blocks_alone =
    V > 1 && std::is_same_v<T, float> && !backward ? 1 : least_blocks<backward, listed>;

// Loads packs 0, step, 2·step, … of a row. The first form is for a row that has `left` packs left,
// and gives zeros after its end; in the second form all packs exist.
template <class T, int V, int N>
__device__ __forceinline__ void load_apart(const T* row, int step, int left, Pack<T, V> (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    x[i] = zero_pack<T, V>();
    if (i * step < left) x[i] = load_pack<T, V>(row, i * step);
  }
}
template <int step, class T, int V, int N>
__device__ __forceinline__ void load_apart(const T* row, Pack<T, V> (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i)
    x[i] = load_pack<T, V>(row, i * step);
}

template <class T, int V>
__device__ __forceinline__ void store_whole_pack(T* row, int index, const Pack<T, V>& pack) {
  if constexpr (V == 1)
    store_element(row + index, pack.element);
  else
    core::cuda::store_whole(reinterpret_cast<uint4*>(row) + index, pack.words);
}

// Compute activations of packs (or products with their derivatives): from a list if `listed`,
// otherwise from a table or by the formulas.
template <bool listed, class T, int V, int N>
__device__ __forceinline__ void activate_packs(bool tanh_form, Pack<T, V> (&x)[N],
                                               const Table<T, V, false>& table, const uint4* list) {
  if constexpr (listed)
    look_up_packs(tanh_form, x, list);
  else
    activate_packs<T, V>(tanh_form, x, table);
}
template <bool listed, class G, class T, int V>
__device__ __forceinline__ Pack<G, V> backward_pack(bool tanh_form, const Pack<G, V>& g,
                                                    const Pack<T, V>& x,
                                                    const Table<T, V, true>& table,
                                                    const uint4* list) {
  if constexpr (listed)
    return product_with_looked_up(tanh_form, g, x, list);
  else
    return backward_pack<G, T, V>(tanh_form, g, x, table);
}

template <bool backward>
__global__ void __launch_bounds__(256) activation_list_kernel(bool tanh_form, void* list) {
  const unsigned place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place < List<backward>::count)
    static_cast<typename List<backward>::Entry*>(list)[place] =
        entry_of<backward>(tanh_form, place);
}
template <bool backward>
cudaError_t start_list(const Launch& launch, Activation activation, void* list) {
  constexpr unsigned threads = 256;
  return core::cuda::launch("activation_list", activation_list_kernel<backward>,
                            dim3(divide_up(List<backward>::count, threads)), dim3(threads), 0,
                            launch.stream, activation == Activation::gelu_tanh, list);
}

// Computes activations, or gradients by their derivatives. Lower bound: one element is read
// (forward) or two are (backward), and one is written. An H200 issues 30 T instructions a second at
// 1.78 GHz. In 60 % of the time that its memory needs for 4 bytes, that is 17 instructions. sm_90:
// at most 60 registers, f32 forward 128. G is the type of g and y if g is given, else of all
// matrices.
//
// Instructions an element (sm_90, erf form), and their share of an H200's time for the bytes: bf16
// forward 10.5, 36 % (84 without the table); backward 18.6, 42 % (was 86). The tables cost 9 and 17
// KiB of shared memory. f16 with a list has the same numbers, 35 % and 42 %; without a list 38.5
// and 46, 130 % and 105 %. f32 34.7 and 43, 59 % and 48 %. (The tanh form takes some 7 less.)
template <class G, class T, int V, bool backward, bool listed>
__global__ void __launch_bounds__(most_threads<backward, listed>,
                                  least_blocks_alone<T, V, backward, listed>)
    activation_kernel(ActivationArguments a) {
  __shared__ Table<T, V, backward> table;
  SWITCHBACK_DYNAMIC_SHARED(uint4, list);
  if constexpr (listed)
    load_list<backward>(a.list, list);
  else
    load_table<T, V, backward>(a.tanh_form, table);
  constexpr int each = each_of<T, V, backward, listed>;
  for (unsigned down = blockIdx.y; down < a.down; down += gridDim.y) {
    const std::int64_t row = static_cast<std::int64_t>(down) * blockDim.y + threadIdx.y;
    if (row >= a.rows) return;
    for (unsigned across = blockIdx.x; across < a.across; across += gridDim.x) {
      const unsigned all = each * blockDim.x;
      const std::int64_t begin = static_cast<std::int64_t>(across) * all;
      const int packs = static_cast<int>(min(a.packs - begin, std::int64_t{all}));
      // Each warp processes neighbouring packs, so that the distances between the packs of a thread
      // are constants. A row of few packs is processed by a part of a warp.
      constexpr int warp = 32;
      const bool whole = packs == static_cast<int>(all) && blockDim.x >= warp;
      const int step = blockDim.x < warp ? static_cast<int>(blockDim.x) : warp;
      const int first = static_cast<int>(threadIdx.x / warp * (warp * each) + threadIdx.x % warp);
      const T* const x_row = static_cast<const T*>(a.x) + begin * V + row * a.x_stride + first * V;
      const G* const g_row = static_cast<const G*>(a.g) + begin * V + row * a.g_stride + first * V;
      G* const y_row = static_cast<G*>(a.y) + begin * V + row * a.y_stride + first * V;
      Pack<T, V> x[each];
      Pack<G, V> g[each];
      if (whole) {
        load_apart<warp>(x_row, x);
        if constexpr (backward) load_apart<warp>(g_row, g);
      } else {
        load_apart(x_row, step, packs - first, x);
        if constexpr (backward) load_apart(g_row, step, packs - first, g);
      }
      if constexpr (!backward) activate_packs<listed, T, V>(a.tanh_form, x, table, list);
      if constexpr (backward)
#pragma unroll
        for (int i = 0; i < each; ++i)
          g[i] = backward_pack<listed, G, T, V>(a.tanh_form, g[i], x[i], table, list);
      const auto result = [&](int i) -> const Pack<G, V>& {
        if constexpr (backward)
          return g[i];
        else
          return x[i];
      };
      if (whole) {
#pragma unroll
        for (int i = 0; i < each; ++i)
          store_whole_pack<G, V>(y_row, i * warp, result(i));
      } else {
#pragma unroll
        for (int i = 0; i < each; ++i)
          if (i * step < packs - first) store_whole_pack<G, V>(y_row, i * step, result(i));
      }
    }
  }
}

struct RowsArguments {
  const void* g;
  const void* x;
  void* y;  // the activated rows; null: not wanted
  std::int8_t* q;
  float* absmax;
  std::int64_t rows, packs, g_stride, x_stride, y_stride, q_stride;
  bool tanh_form;
  const void* list;
};

constexpr int most_row_threads = 512;  // threads of a block; more would leave too few registers

// Activates rows and quantizes them. A row stays in the registers of blockDim.x threads, R packs
// each. Lower bound: forward reads x and writes the codes, f32 5, f16 and bf16 3 bytes an element;
// backward reads g and x and writes dx and the codes, 13 and 7. The instructions are those of
// activation_kernel plus those of the quantization. bf16 forward with R = 8: 13.8 with y and 13.2
// without (was 91), 37 and 59 % of an H200's time for its bytes; f16 with a list 13.4 and 12.8;
// backward 17.8, 35 %. sm_90: at most 80 registers, 256 bytes of shared memory and the table.
template <class T, int R, bool backward, bool listed>
__global__ void __launch_bounds__(most_threads<backward, listed>, least_blocks<backward, listed>)
    activation_rowwise_kernel(RowsArguments a) {
  constexpr int V = vector_elements<T>;
  __shared__ unsigned maxima[2][32];
  let_next_kernel_begin();
  __shared__ Table<T, V, backward> table;
  SWITCHBACK_DYNAMIC_SHARED(uint4, list);
  if constexpr (listed)
    load_list<backward>(a.list, list);
  else
    load_table<T, V, backward>(a.tanh_form, table);
  int turn = 0;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < a.rows;
       first += static_cast<std::int64_t>(gridDim.x) * blockDim.y, turn ^= 1) {
    const std::int64_t row = first + threadIdx.y;
    const int packs = row < a.rows ? static_cast<int>(a.packs) : 0;
    const T* const x_row = static_cast<const T*>(a.x) + row * a.x_stride;
    Pack<T, V> y[R];
    load_striped(x_row, static_cast<int>(threadIdx.x), packs, y);
    // Absent packs hold zeros. Both functions and the gradient map 0 to 0.
    if constexpr (backward) {
      const T* const g_row = static_cast<const T*>(a.g) + row * a.g_stride;
      Pack<T, V> g[R];
      load_striped(g_row, static_cast<int>(threadIdx.x), packs, g);
#pragma unroll
      for (int i = 0; i < R; ++i)
        y[i] = backward_pack<listed, T, T, V>(a.tanh_form, g[i], y[i], table, list);
    } else {
      activate_packs<listed, T, V>(a.tanh_form, y, table, list);
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

// If blocks load a table, few are started, so that each uses it often: the number that the device
// holds, a few times over for balance.
template <class T, int V>
std::int64_t most_blocks_of(const Launch& launch) {
  return has_table<T, V> ? launch.multiprocessors * std::int64_t{8} : most_blocks;
}

constexpr int default_threads = 256;

template <class G, class T, bool backward>
cudaError_t start(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x, Activation activation,
                  AnyMatrix y, void* list) {
  constexpr bool one_type = sizeof(G) == sizeof(T);
  constexpr int V = one_type ? vector_elements<T> : 1;
  const bool packed =
      V > 1 && is_packed<T>(x) && is_packed<G>(ConstAnyMatrix(y)) && (!backward || is_packed<G>(g));
  // Rows without gaps are treated as one row.
  const bool dense = x.stride == x.cols && y.stride == x.cols && (!backward || g.stride == x.cols);
  const std::int64_t rows = dense ? 1 : x.rows;
  const std::int64_t packs = (dense ? x.rows : 1) * (packed ? x.cols / V : x.cols);
  const auto with = [&](auto kernel, int each, int threads, std::int64_t most_blocks_here,
                        std::size_t shared_bytes) {
    constexpr std::int64_t most_down = 65535;
    const dim3 block = block_of_rows(threads_of_row(packs, each, threads), threads);
    const std::int64_t across = divide_up<std::int64_t>(packs, std::int64_t{each} * block.x);
    const std::int64_t down = divide_up<std::int64_t>(rows, block.y);
    const ActivationArguments a = {g.data,
                                   x.data,
                                   y.data,
                                   rows,
                                   packs,
                                   g.stride,
                                   x.stride,
                                   y.stride,
                                   static_cast<unsigned>(across),
                                   static_cast<unsigned>(down),
                                   activation == Activation::gelu_tanh,
                                   list};
    const unsigned grid_across = grid_of(std::min(across, most_blocks_here));
    const unsigned grid_down = grid_of(std::min({down, most_blocks_here / grid_across, most_down}));
    return core::cuda::launch(backward ? "activation_backward" : "activation_forward", kernel,
                              dim3(grid_across, grid_down), block, shared_bytes, launch.stream, a);
  };
  if constexpr (std::is_same_v<T, half> && one_type)
    if (list != nullptr) {
      const auto kernel = activation_kernel<G, T, V, backward, true>;
      cudaError_t status = start_list<backward>(launch, activation, list);
      if (status == cudaSuccess) status = core::cuda::allow_shared(kernel, List<backward>::bytes);
      if (status != cudaSuccess) return status;
      return with(kernel, each_of<T, V, backward, true>, most_threads<backward, true>,
                  std::int64_t{launch.multiprocessors} * blocks_with_list<backward>,
                  List<backward>::bytes);
    }
  const int threads = launch.block_threads > 0 && launch.block_threads <= 512 ? launch.block_threads
                                                                              : default_threads;
  return packed ? with(activation_kernel<G, T, V, backward, false>, each_of<T, V, backward, false>,
                       threads, most_blocks_of<T, V>(launch), 0)
                : with(activation_kernel<G, T, 1, backward, false>, each_of<T, 1, backward, false>,
                       threads, most_blocks, 0);
}

template <class T, bool backward>
cudaError_t start_rowwise(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x,
                          Activation activation, AnyMatrix y, Codes q, float* absmax, void* list) {
  constexpr int V = vector_elements<T>;
  const RowsArguments a = {g.data,   x.data,   y.data,     q.data,
                           absmax,   x.rows,   x.cols / V, g.stride,
                           x.stride, y.stride, q.stride,   activation == Activation::gelu_tanh,
                           list};
  const auto with = [&](auto kernel, int packs_each, int threads, std::int64_t most_blocks_here,
                        std::size_t shared_bytes) {
    const dim3 block = block_of_rows(threads_of_row(a.packs, packs_each, threads), threads);
    const auto blocks = divide_up<std::int64_t>(a.rows, block.y);
    return core::cuda::launch(
        backward ? "activation_backward_quantize" : "activation_forward_quantize", kernel,
        dim3(grid_of(std::min(blocks, most_blocks_here))), block, shared_bytes, launch.stream, a);
  };
  // With values from a table or a list, most of the instructions would be the overhead of a row. So
  // a thread then has 8 packs in forward.
  if constexpr (std::is_same_v<T, half>)
    if (list != nullptr) {
      constexpr int each = backward ? 4 : 8;
      const auto kernel = activation_rowwise_kernel<T, each, backward, true>;
      cudaError_t status = start_list<backward>(launch, activation, list);
      if (status == cudaSuccess) status = core::cuda::allow_shared(kernel, List<backward>::bytes);
      if (status != cudaSuccess) return status;
      return with(kernel, each, most_threads<backward, true>,
                  std::int64_t{launch.multiprocessors} * blocks_with_list<backward>,
                  List<backward>::bytes);
    }
  const std::int64_t most = most_blocks_of<T, V>(launch);
  const auto threads_for = [&](int each) {
    return a.packs > std::int64_t{each} * default_threads ? most_row_threads : default_threads;
  };
  if constexpr (has_table<T, V> && !backward)
    if (a.packs > 64)
      return with(activation_rowwise_kernel<T, 8, backward, false>, 8, threads_for(8), most, 0);
  if (a.packs > 64)
    return with(activation_rowwise_kernel<T, 4, backward, false>, 4, threads_for(4), most, 0);
  return with(activation_rowwise_kernel<T, 1, backward, false>, 1, default_threads, most, 0);
}

}  // namespace

cudaError_t launch_activation(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x,
                              Activation activation, AnyMatrix y, void* list) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    if (g.data == nullptr) return start<T, T, false>(launch, g, x, activation, y, list);
    if (g.dtype == x.dtype) return start<T, T, true>(launch, g, x, activation, y, list);
    return start<float, T, true>(launch, g, x, activation, y, list);
  });
}

// Whether results of f16 are looked up in a list. A list costs a launch, 2 to 3 us, and a copy of
// it for each block. On an H200 that is the time of some 70,000 elements by the formulas on each
// multiprocessor, of which a list saves a part. On small devices, whose blocks have no room for a
// list of derivatives, the formulas are bound by memory.
bool activation_wants_list(const Launch& launch, ConstAnyMatrix g, ConstAnyMatrix x,
                           AnyMatrix y) noexcept {
  constexpr std::int64_t elements_each = 1 << 17;
  return x.dtype == DType::f16 && is_packed<half>(x) &&
         (g.data == nullptr || (g.dtype == DType::f16 && is_packed<half>(g))) &&
         (y.data == nullptr || is_packed<half>(ConstAnyMatrix(y))) &&
         launch.shared_bytes >= activation_list_bytes(true) + 4096 &&
         x.rows * x.cols >= elements_each * launch.multiprocessors;
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
                                      Activation activation, AnyMatrix y, Codes q, float* absmax,
                                      void* list) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    return g.data != nullptr
               ? start_rowwise<T, true>(launch, g, x, activation, y, q, absmax, list)
               : start_rowwise<T, false>(launch, g, x, activation, y, q, absmax, list);
  });
}

}  // namespace switchback::quant::cuda
