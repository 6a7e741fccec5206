// SPDX-License-Identifier: Apache-2.0
// Device code: the rotation, alone and with the quantization of the result by row.
#include "core/cuda/rotation.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/rotate.cuh"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

namespace {

using core::cuda::rotation_stage;
using core::cuda::store_whole;

// A thread has 16 elements in registers at a time, which is enough for two stages of the rotation.
// Between two pairs of stages, threads exchange elements through shared memory.
constexpr int each = 16;

/// The position in shared memory of element i of a block. The gaps put vectors of four and elements
/// 16 apart, as threads read them, into different banks. slots(n) positions hold n elements.
__host__ __device__ constexpr int slots(int i) {
  return i + i / 16 * 4 + i / 256 * 16;
}

/// The position in a row of a thread's element 0 after `exchanges` exchanges.
template <int G, int exchanges>
__device__ __forceinline__ int first_place(int thread) {
  if constexpr (exchanges == 0)
    return thread * each;
  else if constexpr (exchanges == 2)
    return thread / 64 * 1024 + thread % 64 * 4;
  else if constexpr (G == 64)
    return thread / 4 * 64 + thread % 4 * 4;
  else
    return thread / 16 * 256 + thread % 16;
}

/// How far a thread's element i is from its element 0 after `exchanges` exchanges. None: the thread
/// has 16 neighbours. One: it has 4 neighbours at each of 4 positions that are 16 apart (G = 64),
/// or one element at each of 16 such positions (G from 256 on). Two: it has 4 neighbours at each of
/// 4 positions that are 256 apart. In shared memory the distance is slots() of this, because the
/// sum of first_place and this carries into neither i / 16 nor i / 256.
template <int G, int exchanges>
__host__ __device__ constexpr int distance(int i) {
  if constexpr (exchanges == 0)
    return i;
  else if constexpr (exchanges == 2)
    return i / 4 * 256 + i % 4;
  else if constexpr (G == 64)
    return i / 4 * 16 + i % 4;
  else
    return i * 16;
}

/// Whether each four elements of a thread have neighbouring positions.
template <int G, int exchanges>
inline constexpr bool by_four = exchanges != 1 || G == 64;

/// Writes elements to their positions after `from` exchanges and reads those after `to` exchanges.
/// All threads of the block must call it.
template <int G, int from, int to>
__device__ __forceinline__ void exchange(float (&v)[each], float* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  float* const mine = shared + slots(first_place<G, from>(thread));
  const float* const next = shared + slots(first_place<G, to>(thread));
  __syncthreads();
#pragma unroll
  for (int i = 0; i < each; i += by_four<G, from> ? 4 : 1) {
    float* const at = mine + slots(distance<G, from>(i));
    if constexpr (by_four<G, from>)
      *reinterpret_cast<float4*>(at) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    else
      *at = v[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < each; i += by_four<G, to> ? 4 : 1) {
    const float* const at = next + slots(distance<G, to>(i));
    if constexpr (by_four<G, to>) {
      const float4 four = *reinterpret_cast<const float4*>(at);
      v[i] = four.x;
      v[i + 1] = four.y;
      v[i + 2] = four.z;
      v[i + 3] = four.w;
    } else {
      v[i] = *at;
    }
  }
}

template <int G>
inline constexpr int exchanges_of = G <= each   ? 0
                                    : G == 1024 ? 2
                                                : 1;

/// Rotates the elements of a block's threads. Starts from 16 neighbours in each thread and ends
/// with the positions after the last exchange. All threads of the block must call it; threads
/// without elements hold zeros.
template <class T, int G>
__device__ __forceinline__ void rotate(float (&v)[each], float* shared) {
  rotation_stage<T, 1>(v);
  if constexpr (G >= each) rotation_stage<T, 4>(v);
  if constexpr (G == 64) {
    exchange<G, 0, 1>(v, shared);
    rotation_stage<T, 4>(v);  // stage of stride 16 in the row
  } else if constexpr (G > 64) {
    exchange<G, 0, 1>(v, shared);
    rotation_stage<T, 1>(v);  // stage of stride 16 in the row
    rotation_stage<T, 4>(v);  // stage of stride 64
    if constexpr (G == 1024) {
      exchange<G, 1, 2>(v, shared);
      rotation_stage<T, 4>(v);  // stage of stride 256
    }
  }
}

/// The number of elements of the thread whose first one is element 16 · sixteen of a row: 16, or
/// fewer at the end of the row if groups are shorter than 16.
template <int G>
__device__ __forceinline__ int neighbours(std::int64_t cols, std::int64_t sixteen) {
  if constexpr (G >= each) return each;
  const std::int64_t left = cols - sixteen * each;
  return left < each ? static_cast<int>(left) : each;
}

/// Loads `count` neighbouring elements, widened; in packs if `count` is 16. The reads are plain
/// loads, because the output may be the same memory.
template <class T>
__device__ __forceinline__ void load_neighbours(const T* from, int count, bool packed,
                                                float (&v)[each]) {
  constexpr int V = vector_elements<T>;
  if (packed && count == each) {
#pragma unroll
    for (int p = 0; p < each / V; ++p) {
      Pack<T, V> pack;
      pack.words = reinterpret_cast<const uint4*>(from)[p];
#pragma unroll
      for (int i = 0; i < V; ++i)
        v[p * V + i] = value(pack, i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < each; ++i)
      if (i < count) v[i] = widen(load_element(from + i));
  }
}

__device__ __forceinline__ void clear(float (&v)[each]) {
#pragma unroll
  for (int i = 0; i < each; ++i)
    v[i] = 0.0f;
}

struct RotateArguments {
  const void* x;
  void* y;
  std::int64_t cols, sixteens, x_stride, y_stride;  // sixteens: length of a row in units of 16
  bool packed;                                      // packs of both matrices are aligned
  Tiles tiles;
  const unsigned* changed;  // see Launch
};

constexpr int rotate_threads = 256;

// Rotates a matrix. Lower bound: an element is read once and written once: f32 8, f16 and bf16 4
// bytes, between f32 and a 16-bit type 6. 2 operations an element and stage, 8 bytes of shared
// memory an element and exchange. There is one exchange more than the stages need, so that threads
// store neighbours. sm_75 to 120: at most 80 registers, 21 KiB of shared memory.
template <class T, class Y, int G>
__global__ void __launch_bounds__(rotate_threads) rotate_kernel(RotateArguments a) {
  __shared__ __align__(16) float shared[slots(rotate_threads * each)];
  if (is_unchanged(a.changed)) return;
  for (std::int64_t tile = blockIdx.x; tile < a.tiles.count; tile += gridDim.x) {
    const Place at = place_of(tile, a.tiles.across);
    const std::int64_t sixteen = at.across * rotate_threads + threadIdx.x;
    const bool inside = sixteen < a.sixteens;
    const int count = neighbours<G>(a.cols, sixteen);
    float v[each];
    clear(v);
    if (inside)
      load_neighbours(static_cast<const T*>(a.x) + at.down * a.x_stride + sixteen * each, count,
                      a.packed, v);
    rotate<T, G>(v, shared);
    if constexpr (exchanges_of<G> != 0) exchange<G, exchanges_of<G>, 0>(v, shared);
    if (!inside) continue;
    Y* const to = static_cast<Y*>(a.y) + at.down * a.y_stride + sixteen * each;
    constexpr int V = vector_elements<Y>;
    if (a.packed && count == each) {
#pragma unroll
      for (int p = 0; p < each / V; ++p)
        store_whole(reinterpret_cast<uint4*>(to) + p,
                    rounded_pack<Y, V>([&](int i) { return v[p * V + i]; }).words);
    } else {
#pragma unroll
      for (int i = 0; i < each; ++i)
        if (i < count) store_element(to + i, narrow<Y>(v[i]));
    }
  }
}

struct RotateRowsArguments {
  const void* x;
  std::int8_t* q;
  float* absmax;
  std::int64_t rows, cols, sixteens, x_stride, q_stride;
  std::int64_t first_row;  // first row of this grid
  bool packed;             // packs of x are aligned, and also each 16 codes of q
};

constexpr int most_row_threads = 512;
constexpr int most_chunks = 2;

// Rotates rows and quantizes them. A row stays in the registers of blockDim.x threads, R times 16
// elements each. Lower bound: each element is read once and its code written once: f32 5, f16 and
// bf16 3 bytes. 8 bytes of shared memory an element and exchange, and 2 for the codes, so that
// threads store 16 neighbours. The instructions are the limit in the L2 cache: sm_90, bf16, groups
// of 256, R = 1: 872 in all (were 1080), of which aligned rows run about 640 for 16 elements. At
// most 80 registers with R = 1 and 125 with R = 2 (sm_75 to 120), 43 KiB of shared memory at 512
// threads.
template <class T, int G, int R>
__global__ void __launch_bounds__(most_row_threads, 1)
    rotate_rowwise_kernel(RotateRowsArguments a) {
  SWITCHBACK_DYNAMIC_SHARED(float, all_shared);
  __shared__ unsigned maxima[32];
  let_next_kernel_begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const std::int64_t row =
      a.first_row + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int sixteens = row < a.rows ? static_cast<int>(a.sixteens) : 0;
  float* const shared = all_shared + threadIdx.y * slots(threads * each);
  const T* const from = static_cast<const T*>(a.x) + row * a.x_stride;
  float v[R][each];
  Largest<float, 1> largest;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int sixteen = r * threads + thread;
    clear(v[r]);
    if (sixteen < sixteens)
      load_neighbours(from + static_cast<std::int64_t>(sixteen) * each,
                      neighbours<G>(a.cols, sixteen), a.packed, v[r]);
    rotate<T, G>(v[r], shared);
#pragma unroll
    for (int i = 0; i < each; ++i)
      largest.most = max(largest.most, magnitude_bits(v[r][i]));
  }
  const float absmax = absmax_from_bits(row_max(largest.most, maxima));
  const Scale<float> scale = scale_of<float>(absmax);
  if (thread == 0 && row < a.rows) store_element(a.absmax + row, absmax);
  constexpr int exchanges = exchanges_of<G>;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(shared);
  std::uint8_t* const first_byte = bytes + first_place<G, exchanges>(thread);
  std::int8_t* const to = a.q + row * a.q_stride;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    __syncthreads();  // no thread still reads the shared memory
#pragma unroll
    for (int i = 0; i < each; i += 4) {
      const unsigned four = codes(v[r][i], v[r][i + 1], v[r][i + 2], v[r][i + 3], scale);
      if constexpr (by_four<G, exchanges>) {
        *reinterpret_cast<unsigned*>(first_byte + distance<G, exchanges>(i)) = four;
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          first_byte[distance<G, exchanges>(i + j)] = static_cast<std::uint8_t>(four >> (8 * j));
      }
    }
    __syncthreads();
    const int sixteen = r * threads + thread;
    if (sixteen >= sixteens) continue;
    const uint4 mine = reinterpret_cast<const uint4*>(bytes)[thread];
    std::int8_t* const out = to + static_cast<std::int64_t>(sixteen) * each;
    if (a.packed) {
      *reinterpret_cast<uint4*>(out) = mine;
    } else {
#pragma unroll
      for (int i = 0; i < each; ++i)
        if (i < neighbours<G>(a.cols, sixteen))
          out[i] = static_cast<std::int8_t>(word(mine, i / 4) >> (8 * (i % 4)));
    }
  }
}

template <class T, class Y, int G>
cudaError_t start_rotate(const Launch& launch, ConstAnyMatrix x, AnyMatrix y) {
  const auto sixteens = divide_up<std::int64_t>(x.cols, each);
  Tiles tiles;
  tiles.across = divide_up<std::int64_t>(sixteens, rotate_threads);
  tiles.count = tiles.across * x.rows;
  const RotateArguments a = {x.data,
                             y.data,
                             x.cols,
                             sixteens,
                             x.stride,
                             y.stride,
                             is_packed<T>(x) && is_packed<Y>(ConstAnyMatrix(y)),
                             tiles,
                             launch.changed};
  return core::cuda::launch("rotate", rotate_kernel<T, Y, G>, dim3(grid_of(tiles.count)),
                            dim3(rotate_threads), 0, launch.stream, a);
}

template <class T, int G>
cudaError_t start_rows(const Launch& launch, ConstAnyMatrix x, Codes q, float* absmax) {
  const bool packed = is_packed<T>(x) && is_packed(q.data, q.rows, q.cols, q.stride, each, each);
  RotateRowsArguments a = {
      x.data,   q.data,   absmax, x.rows, x.cols, divide_up<std::int64_t>(x.cols, each),
      x.stride, q.stride, 0,      packed};
  const auto with = [&](auto kernel, dim3 block) {
    const std::size_t shared_bytes =
        sizeof(float) * block.y * static_cast<std::size_t>(slots(static_cast<int>(block.x) * each));
    cudaError_t status = cudaSuccess;
    for (a.first_row = 0; a.first_row < a.rows && status == cudaSuccess;
         a.first_row += most_blocks * block.y)
      status =
          core::cuda::launch("rotate_quantize", kernel,
                             dim3(grid_of(divide_up<std::int64_t>(a.rows - a.first_row, block.y))),
                             block, shared_bytes, launch.stream, a);
    return status;
  };
  if (a.sixteens <= most_row_threads) {
    const int most = a.sixteens > 256 ? most_row_threads : 256;
    return with(rotate_rowwise_kernel<T, G, 1>,
                block_of_rows(threads_of_row(a.sixteens, 1, most), most));
  }
  // A chunk ends where a group ends: 64 threads hold the largest group.
  const std::int64_t of_chunk = divide_up<std::int64_t>(a.sixteens, most_chunks);
  return with(rotate_rowwise_kernel<T, G, most_chunks>,
              dim3(static_cast<unsigned>(divide_up<std::int64_t>(of_chunk, 64) * 64)));
}

}  // namespace

cudaError_t launch_rotate(const Launch& launch, ConstAnyMatrix x, Rotation rotation, AnyMatrix y) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    return for_group(rotation, [&]<int G>(std::integral_constant<int, G>) {
      if constexpr (sizeof(T) == sizeof(float))
        return for_type(y.dtype, [&](auto output) {
          return start_rotate<T, decltype(output), G>(launch, x, y);
        });
      else if (y.dtype == DType::f32)
        return start_rotate<T, float, G>(launch, x, y);
      else
        return start_rotate<T, T, G>(launch, x, y);
    });
  });
}

bool rotate_rowwise_together(ConstAnyMatrix x) noexcept {
  return x.cols <= std::int64_t{most_chunks} * most_row_threads * each;
}

cudaError_t launch_rotate_rowwise(const Launch& launch, ConstAnyMatrix x, Rotation rotation,
                                  Codes q, float* absmax) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    return for_group(rotation, [&]<int G>(std::integral_constant<int, G>) {
      return start_rows<T, G>(launch, x, q, absmax);
    });
  });
}

}  // namespace switchback::quant::cuda
