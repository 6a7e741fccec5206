// SPDX-License-Identifier: Apache-2.0
// Device code: rows quantized by their own absmax, with and without the block sums of the columns.
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/rowwise.cuh"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

namespace {

// Each row of codes comes from the same row of x.
struct SameRows {
  template <class T>
  __device__ __forceinline__ const T* find(const RowwiseArguments& a, std::int64_t row,
                                           bool&) const {
    return static_cast<const T*>(a.x) + row * a.x_stride;
  }
};

// A thread's R packs of each of U rows.
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

// The scales of U rows. Some lanes of a warp compute each of them, which takes the same number of
// instructions as one scale.
template <class T, int U>
struct ScalesOfRows {
  static constexpr int warps = 16;      // at most
  static constexpr int lanes = 32 / U;  // for a row
  using Maxima = unsigned[U][warps];    // maxima of each row and warp; zeros for absent warps
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

// Quantizes rows and adds up columns. A block processes sum_block_rows rows, U at a time while the
// next U are in flight. A thread processes the same R packs of each row, so that their sums stay in
// its registers. Lower bound: each element is read once and its code written once, and the block
// sums are written (1/32 byte an element). sm_90: 72 to 127 registers, 1.5 KiB of shared memory at
// most. Instructions an element of bf16 for R = 2 and 4: 10.9 and 11.5, 50 and 52 % of the time
// that an H200 needs for its bytes. (With one pack a thread, where each warp computes the scale of
// every row, it was 18.9.)
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
      // A row's absmax is stored by the first of the lanes of the first warp that have its scale.
      if (threadIdx.x < 32 && lane % RowScales::lanes == 0 && row + lane / RowScales::lanes < rows)
        store_element(a.absmax + first + row + lane / RowScales::lanes, scales.absmax);
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const Scale<T> scale = scales.of_row(u);
        const bool valid = row + u < rows;
        store_striped_codes<false>(now.x[u], scale, to + (row + u) * a.q_stride, valid ? packs : 0);
        // Absent rows are zeros, and a sum that began with zero is never -0.
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

// A group is sum_block_rows rows. Some of its thread blocks add up its columns, the others quantize
// its rows.
struct RowsAndSumsArguments {
  RowwiseArguments rows;
  unsigned of_sums, of_rows;  // numbers of thread blocks of a group
  std::int64_t first_group;   // first group of this grid
};

constexpr int both_threads = 256;
constexpr int both_packs = 8;  // packs of a row in a thread

// The number of thread blocks that a multiprocessor must hold. It limits the registers of a thread:
// to 64, or to 80 if 64 are too few.
constexpr int both_blocks() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
  return 3;
#else
  return 4;
#endif
}

// Adds up the columns in four bytes of a row (one column of f32, or two of a 16-bit type), over a
// group's rows.
template <class T>
__device__ __forceinline__ void add_up(const RowsAndSumsArguments& a, std::int64_t group,
                                       std::int64_t four) {
  constexpr int columns = 4 / static_cast<int>(sizeof(T));
  constexpr int in_flight = 32;
  const std::int64_t fours = a.rows.packs * (vector_elements<T> / columns);
  if (four >= fours) return;
  const std::int64_t first = group * sum_block_rows;
  const auto rows = static_cast<int>(min(a.rows.rows - first, std::int64_t{sum_block_rows}));
  const std::int64_t stride = a.rows.x_stride / columns;
  const auto* from = static_cast<const unsigned*>(a.rows.x) + first * stride + four;
  float sums[columns] = {};
  const auto add = [&sums](unsigned word) {
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      float v = 0.0f;
      if constexpr (columns == 1) {
        v = __uint_as_float(word);
      } else {
        T element;
        element.bits = static_cast<std::uint16_t>(c == 0 ? word : word >> 16);
        v = widen(element);
      }
      sums[c] = __fadd_rn(sums[c], v);
    }
  };
  int row = 0;
#pragma unroll 1
  for (; row + in_flight <= rows; row += in_flight) {
    unsigned words[in_flight];
#pragma unroll
    for (int i = 0; i < in_flight; ++i, from += stride)
      words[i] = __ldg(from);
#pragma unroll
    for (int i = 0; i < in_flight; ++i)
      add(words[i]);
  }
#pragma unroll 1
  for (; row < rows; ++row, from += stride)
    add(__ldg(from));
  float* const out = a.rows.block_sums + (group * fours + four) * columns;
  if constexpr (columns == 1)
    *out = sums[0];
  else
    *reinterpret_cast<float2*>(out) = make_float2(sums[0], sums[1]);
}

// Quantizes rows and adds up columns in separate thread blocks. Lower bound: each element is read
// once and its code written once; the second read of an element comes from the L2 cache, because
// the thread blocks of both kinds run concurrently. Speed on an H200 as a share of a copy of the
// same number of bytes, bf16: 1920 x 4096, which stays in the L2 cache, 0.76, where two launches
// gave 0.23. An earlier kernel of the same shape gave 0.75 at 30720 x 4096, where
// rowwise_sums_kernel gives 0.88.
template <class T>
__global__ void __launch_bounds__(both_threads, both_blocks())
    rows_and_sums_kernel(RowsAndSumsArguments a) {
  __shared__ unsigned maxima[32];
  let_next_kernel_begin();
  const Place place = place_of(blockIdx.x, std::int64_t{a.of_sums} + a.of_rows);
  const std::int64_t group = a.first_group + place.down;
  if (place.across < a.of_sums)
    return add_up<T>(a, group,
                     place.across * both_threads + threadIdx.y * blockDim.x + threadIdx.x);
  const std::int64_t row =
      group * sum_block_rows + (place.across - a.of_sums) * blockDim.y + threadIdx.y;
  const T* const from = static_cast<const T*>(a.rows.x) + row * a.rows.x_stride;
  code_row<T, both_packs>(a.rows, from, row, row < a.rows.rows, maxima);
}

RowwiseArguments arguments_of(ConstAnyMatrix x, Codes q, float* absmax, float* block_sums,
                              int pack) {
  return {x.data, q.data, absmax, block_sums, x.rows, x.cols / pack, x.stride, q.stride, 0};
}

template <class T>
cudaError_t start_rowwise(const Launch& launch, ConstAnyMatrix x, Codes q, float* absmax) {
  const bool packed = is_packed<T>(x) && are_packed<T>(q) && steps_are_packed<T>(launch.matrices);
  RowwiseArguments a = arguments_of(x, q, absmax, nullptr, packed ? vector_elements<T> : 1);
  a.x_step = launch.matrices.x;
  a.q_step = launch.matrices.q;
  a.changed = launch.changed;
  return for_matrices(launch.matrices.count, [&](std::int64_t first, unsigned matrices) {
    RowwiseArguments some = a;
    some.x = static_cast<const T*>(a.x) + first * a.x_step;
    some.q += first * a.q_step;
    some.absmax += first * a.rows;
    return start_rows<T>("quantize_rowwise", launch, some, packed, SameRows{}, matrices);
  });
}

constexpr int most_sums_threads = 512;

// The number of packs of a row that a thread of rowwise_sums_kernel has: few, unless the block
// would then be too large. 0: there is no such kernel.
int sums_each(const Launch& launch, std::int64_t packs) {
  const int threads = block_threads(launch, default_threads);
  for (const int each : {2, 4})
    if (packs <= std::int64_t{each} * threads && packs <= std::int64_t{each} * most_sums_threads)
      return each;
  return packs <= std::int64_t{4} * most_sums_threads ? 4 : 0;
}

// Whether rowwise_sums_kernel is used, which reads each element once: if there are enough blocks of
// rows. Fewer blocks would leave most of the device idle, which costs more than a second read. A
// second read from the L2 cache is also cheaper than reading once.
bool reads_sums_once(const Launch& launch, ConstAnyMatrix x, std::int64_t packs) {
  const auto bytes = static_cast<std::int64_t>(dtype_size_bytes(x.dtype)) + 1;
  const bool from_cache = x.rows * x.cols * bytes <= static_cast<std::int64_t>(launch.l2_bytes);
  return x.rows >= launch.multiprocessors * std::int64_t{sum_block_rows} && packs >= 64 &&
         sums_each(launch, packs) != 0 && (launch.block_threads > 0 || !from_cache);
}

bool side_by_side(const Launch& launch, std::int64_t packs) {
  return launch.block_threads == 0 && packs <= both_threads * both_packs;
}

template <class T>
cudaError_t start_rows_and_sums(const Launch& launch, RowsAndSumsArguments a) {
  constexpr std::int64_t of_row = both_threads * 4 / sizeof(T);  // columns of a thread block
  a.of_sums =
      static_cast<unsigned>(divide_up<std::int64_t>(a.rows.packs * vector_elements<T>, of_row));
  const dim3 block = block_of_few_rows(a.rows.packs, both_packs, both_threads, 2);
  a.of_rows = static_cast<unsigned>(sum_block_rows) / block.y;
  return start_groups("quantize_rows_and_sums", launch, rows_and_sums_kernel<T>, a,
                      divide_up<std::int64_t>(a.rows.rows, sum_block_rows),
                      std::int64_t{a.of_sums} + a.of_rows, block, 0);
}

template <class T>
cudaError_t start_rowwise_sums(const Launch& launch, ConstAnyMatrix x, Codes q, float* absmax,
                               float* block_sums) {
  const RowwiseArguments a = arguments_of(x, q, absmax, block_sums, vector_elements<T>);
  if (!reads_sums_once(launch, x, a.packs)) return start_rows_and_sums<T>(launch, {a, 0, 0, 0});
  const int each = sums_each(launch, a.packs);
  const std::int64_t threads =
      divide_up<std::int64_t>(divide_up<std::int64_t>(a.packs, each), 32) * 32;
  const auto with = [&](auto kernel) {
    return core::cuda::launch("quantize_rowwise_column_sums", kernel,
                              dim3(grid_of(divide_up<std::int64_t>(a.rows, sum_block_rows))),
                              dim3(static_cast<unsigned>(threads)), 0, launch.stream, a);
  };
  if (each == 2) return with(rowwise_sums_kernel<T, 2, 4>);
  return with(rowwise_sums_kernel<T, 4, 1>);
}

}  // namespace

bool rowwise_splits(const Launch& launch, std::int64_t rows, std::int64_t cols) noexcept {
  // One block for each row would leave half of the device idle, or more.
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
  bool takes = false;
  (void)for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    const std::int64_t packs = x.cols / vector_elements<T>;
    takes = is_packed<T>(x) && are_packed<T>(q) &&
            (reads_sums_once(launch, x, packs) || side_by_side(launch, packs));
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

}  // namespace switchback::quant::cuda
