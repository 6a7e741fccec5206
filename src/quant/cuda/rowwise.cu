// SPDX-License-Identifier: Apache-2.0
// Device code: rows quantized by their own absmax, with and without the block sums of the columns.
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/rowwise.cuh"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace {

// Each row of codes is made of the same row of x.
struct SameRows {
  template <class T>
  __device__ __forceinline__ const T* find(const RowwiseArguments& a, std::int64_t row,
                                           bool&) const {
    return static_cast<const T*>(a.x) + row * a.x_stride;
  }
};

// R packs of U rows.
template <class T, int R, int U>
struct RowsOfPacks {
  static constexpr int V = vector_elements<T>;
  Pack<T, V> x[U][R];

  __device__ __forceinline__ void load(const T* from, std::int64_t stride, int row, int rows,
                                       int packs) {
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int i = 0; i < R; ++i) {
        const int pack = static_cast<int>(threadIdx.x + i * blockDim.x);
        x[u][i] = zero_pack<T, V>();
        if (row + u < rows && pack < packs)
          x[u][i] = load_pack<T, V>(from + (row + u) * stride, pack);
      }
  }
};

// The scales of U rows, each of which some lanes of a warp make: as many instructions as for one.
template <class T, int U>
struct ScalesOfRows {
  static constexpr int warps = 16;      // at most
  static constexpr int lanes = 32 / U;  // of a row
  using Maxima = unsigned[U][warps];    // zeros where there is no warp
  float absmax;
  Scale<T> scale;

  __device__ __forceinline__ ScalesOfRows(const Maxima& maxima, int lane) {
    const int place = lane % lanes;
    unsigned bits = 0;
    if constexpr (lanes >= warps) {
      bits = maxima[lane / lanes][place % warps];
    } else {
      static_assert(lanes * 2 == warps);
      const uint2 two = reinterpret_cast<const uint2*>(maxima[lane / lanes])[place];
      bits = max(two.x, two.y);
    }
    if constexpr (U == 1) {
      bits = warp_max(bits);
    } else {
#pragma unroll
      for (int step = lanes / 2; step > 0; step /= 2)
        bits = max(bits, __shfl_xor_sync(all_lanes, bits, step));
    }
    absmax = absmax_from_bits(bits);
    scale = scale_of<T>(absmax);
  }

  __device__ __forceinline__ Scale<T> of_row(int u) const {
    if constexpr (U == 1) return scale;
    Scale<T> s{};
    s.absmax = __shfl_sync(all_lanes, scale.absmax, u * lanes);
    if constexpr (sizeof(T) == 4) {
      s.lower = __shfl_sync(all_lanes, scale.lower, u * lanes);
      s.upper = __shfl_sync(all_lanes, scale.upper, u * lanes);
    } else {
      s.factor = __shfl_sync(all_lanes, scale.factor, u * lanes);
    }
    return s;
  }
};

// A block takes sum_block_rows rows, U at a time while the next U are on their way; a thread
// takes the same R packs of each, so that their sums stay in its registers. Floor: as rowwise, and
// the block sums are written (1/32 byte an element). sm_90: 72 to 127 registers, 1.5 KiB of shared
// memory at most; instructions an element of bf16 for R = 2 and 4: 10.9 and 11.5, 50 and
// 52 % of the time that an H200 needs for its bytes. (A pack a thread, each warp with the scale of
// every row, took 18.9.)
template <class T, int R, int U>
__global__ void __launch_bounds__(512, 1) rowwise_sums_kernel(RowwiseArguments a) {
  constexpr int V = vector_elements<T>;
  using RowScales = ScalesOfRows<T, U>;
  __shared__ __align__(8) typename RowScales::Maxima maxima[2];
  const int packs = static_cast<int>(a.packs);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (unsigned i = threadIdx.x; i < 2 * U * RowScales::warps; i += blockDim.x)
    maxima[i / (U * RowScales::warps)][i / RowScales::warps % U][i % RowScales::warps] = 0;
  __syncthreads();
  const std::int64_t blocks = divide_up<std::int64_t>(a.rows, sum_block_rows);
  int turn = 0;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const std::int64_t first = block * sum_block_rows;
    const int rows = static_cast<int>(min(a.rows - first, std::int64_t{sum_block_rows}));
    const T* const from = static_cast<const T*>(a.x) + first * a.x_stride;
    std::int8_t* const to = a.q + first * a.q_stride;
    float sums[R][V] = {};
    RowsOfPacks<T, R, U> now;
    now.load(from, a.x_stride, 0, rows, packs);
    for (int row = 0; row < rows; row += U, turn ^= 1) {
      RowsOfPacks<T, R, U> next;
      next.load(from, a.x_stride, row + U, rows, packs);
#pragma unroll
      for (int u = 0; u < U; ++u) {
        Largest<T, V> largest;
#pragma unroll
        for (int i = 0; i < R; ++i)
          largest.add(now.x[u][i]);
        const unsigned bits = warp_max(largest.all());
        if (lane == 0) maxima[turn][u][threadIdx.x / 32] = bits;
      }
      __syncthreads();
      const RowScales scales(maxima[turn], lane);
      // The lanes of the first warp that have a row's scale first.
      if (threadIdx.x < 32 && lane % RowScales::lanes == 0 && row + lane / RowScales::lanes < rows)
        store_element(a.absmax + first + row + lane / RowScales::lanes, scales.absmax);
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const Scale<T> scale = scales.of_row(u);
        const bool valid = row + u < rows;
        store_striped_codes<false>(now.x[u], scale, to + (row + u) * a.q_stride, valid ? packs : 0);
        // Rows that are not there are zeros, and no sum that began with zero is -0.
#pragma unroll
        for (int i = 0; i < R; ++i)
#pragma unroll
          for (int v = 0; v < V; ++v)
            sums[i][v] = __fadd_rn(sums[i][v], value(now.x[u][i], v));
      }
      now = next;
    }
    float* const out = a.block_sums + block * a.packs * V;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int pack = static_cast<int>(threadIdx.x + i * blockDim.x);
      if (pack < packs) {
#pragma unroll
        for (int v = 0; v < V; v += 4)
          reinterpret_cast<float4*>(out)[pack * (V / 4) + v / 4] =
              make_float4(sums[i][v], sums[i][v + 1], sums[i][v + 2], sums[i][v + 3]);
      }
    }
  }
}

RowwiseArguments arguments_of(ConstAnyMatrix x, Codes q, float* absmax, float* block_sums,
                              int pack) {
  return {x.data, q.data, absmax, block_sums, x.rows, x.cols / pack, x.stride, q.stride, 0};
}

template <class T>
cudaError_t start_rowwise(const Launch& launch, ConstAnyMatrix x, Codes q, float* absmax) {
  const bool packed = is_packed<T>(x) && are_packed<T>(q);
  return start_rows<T>("quantize_rowwise", launch,
                       arguments_of(x, q, absmax, nullptr, packed ? vector_elements<T> : 1), packed,
                       SameRows{});
}

constexpr int most_sums_threads = 512;

// Packs of a thread: few, unless the block would be too large for that. 0: no such kernel.
int sums_each(const Launch& launch, std::int64_t packs) {
  const int threads = block_threads(launch, default_threads);
  for (const int each : {2, 4})
    if (packs <= std::int64_t{each} * threads && packs <= std::int64_t{each} * most_sums_threads)
      return each;
  return packs <= std::int64_t{4} * most_sums_threads ? 4 : 0;
}

template <class T>
cudaError_t start_rowwise_sums(const Launch& launch, ConstAnyMatrix x, Codes q, float* absmax,
                               float* block_sums) {
  const RowwiseArguments a = arguments_of(x, q, absmax, block_sums, vector_elements<T>);
  const int each = sums_each(launch, a.packs);
  const std::int64_t threads =
      divide_up<std::int64_t>(divide_up<std::int64_t>(a.packs, each), 32) * 32;
  const auto with = [&](auto kernel) {
    return core::SWITCHBACK_CUDA_NS::launch(
        "quantize_rowwise_column_sums", kernel,
        dim3(grid_of(divide_up<std::int64_t>(a.rows, sum_block_rows))),
        dim3(static_cast<unsigned>(threads)), 0, launch.stream, a);
  };
  if (each == 2) return with(rowwise_sums_kernel<T, 2, 4>);
  return with(rowwise_sums_kernel<T, 4, 1>);
}

}  // namespace

bool rowwise_splits(const Launch& launch, std::int64_t rows, std::int64_t cols) noexcept {
  // Whole rows would leave half of the device idle, or more.
  return rows * 2 <= launch.multiprocessors && cols > 16384;
}

cudaError_t launch_rowwise(const Launch& launch, ConstAnyMatrix x, Codes q, float* absmax,
                           unsigned* row_bits) {
  if (row_bits != nullptr) {
    const cudaError_t status = launch_absmax(launch, x, row_bits, true);
    if (status != cudaSuccess) return status;
    return launch_codes(launch, x, q, row_bits, true, absmax);
  }
  return for_type(x.dtype, [&](auto element) {
    return start_rowwise<decltype(element)>(launch, x, q, absmax);
  });
}

bool rowwise_sums_together(const Launch& launch, ConstAnyMatrix x, Codes q) noexcept {
  // Fewer blocks than that leave most of the device idle, which costs more than a second read.
  if (x.rows < launch.multiprocessors * std::int64_t{sum_block_rows}) return false;
  bool takes = false;
  (void)for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t packs = x.cols / vector_elements<T>;
    takes = is_packed<T>(x) && are_packed<T>(q) && packs >= 64 && sums_each(launch, packs) != 0;
    return cudaSuccess;
  });
  return takes;
}

cudaError_t launch_rowwise_column_sums(const Launch& launch, ConstAnyMatrix x, Codes q,
                                       float* absmax, float* block_sums) {
  return for_type(x.dtype, [&](auto element) {
    return start_rowwise_sums<decltype(element)>(launch, x, q, absmax, block_sums);
  });
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
