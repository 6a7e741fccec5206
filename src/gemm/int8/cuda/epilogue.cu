// SPDX-License-Identifier: Apache-2.0
// The dequantize that follows a product with int32 results. Lower bound: per element, 4 bytes read
// and the output written. Each thread has the columns of 16 bytes of d, whose scales and bias stay
// in registers, and several rows in flight.
#include <type_traits>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "gemm/int8/cuda/dequantize.cuh"
#include "gemm/int8/cuda/kernels.hpp"

namespace switchback::products::cuda {

namespace {

using core::cuda::divide_up;
using core::cuda::launch;
using core::cuda::load_element;
using core::cuda::narrow;
using core::cuda::store_element;

constexpr int block_cols = 32;  // threads of a block that share a row
constexpr int block_rows = 8;
constexpr int unroll = 4;  // rows that a thread has in flight

template <class T>
struct Vector {
  T values[16 / sizeof(T)];
};

// Stores the 16 bytes of a vector at once, with the streaming hint: the next product needs the
// caches for its own data. It uses the intrinsic with words: nvcc splits an assignment of the
// struct, or of a uint4, into stores of 4 bytes for sm_75 to sm_90, which make four times the
// transactions.
template <class T>
__device__ __forceinline__ void store_vector(T* to, const Vector<T>& from) {
  unsigned words[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (sizeof(T) == 4) {
      memcpy(&words[w], &from.values[w], 4);
    } else {
      std::uint16_t low;
      std::uint16_t high;
      memcpy(&low, &from.values[2 * w], 2);
      memcpy(&high, &from.values[2 * w + 1], 2);
      words[w] = static_cast<unsigned>(low) | static_cast<unsigned>(high) << 16;
    }
  }
  __stcs(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
}

// Each thread has v columns. `vectors` says that rows of sums and of d can be moved 16 bytes at a
// time.
template <class Out, bool scaled, bool vectors>
__global__ void __launch_bounds__(block_cols* block_rows) epilogue_kernel(EpilogueArguments e) {
  constexpr int v = vectors ? static_cast<int>(16 / sizeof(Out)) : 1;
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * block_cols + threadIdx.x) * v;
  if (col >= e.cols) return;
  const int here = e.cols - col < v ? static_cast<int>(e.cols - col) : v;

  float scale_b[v];
  float bias[v];
  if constexpr (scaled) {
#pragma unroll
    for (int i = 0; i < v; ++i) {
      const std::int64_t at = i < here ? col + i : col;
      scale_b[i] = load_element(e.absmax_b + (e.scalar_b ? 0 : at));
      bias[i] = e.bias != nullptr ? load_float(e.bias, e.bias_type, at) : no_bias;
    }
  }
  const auto convert = [&](std::int32_t acc, float scale_a, int i) {
    if constexpr (scaled)
      return narrow<Out>(dequantize(acc, scale_a, scale_b[i], bias[i]));
    else
      return static_cast<Out>(acc);
  };

  Out* const d = static_cast<Out*>(e.d);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * block_rows;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * block_rows + threadIdx.y;
  if (vectors && here == v && e.acc != nullptr) {
    for (; row < e.rows; row += unroll * step) {
      int4 acc[unroll][(v + 3) / 4];
      float scale_a[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const std::int64_t r = row + u * step;
        if (r >= e.rows) break;
#pragma unroll
        for (int i = 0; i < (v + 3) / 4; ++i)
          acc[u][i] = reinterpret_cast<const int4*>(e.acc + r * e.acc_stride + col)[i];
        scale_a[u] = scaled ? load_element(e.absmax_a + r) : 1.0f;
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const std::int64_t r = row + u * step;
        if (r >= e.rows) break;
        Vector<Out> out;
#pragma unroll
        for (int i = 0; i < (v + 3) / 4; ++i) {
          const std::int32_t sums[4] = {acc[u][i].x, acc[u][i].y, acc[u][i].z, acc[u][i].w};
#pragma unroll
          for (int j = 0; j < 4 && i * 4 + j < v; ++j)
            out.values[i * 4 + j] = convert(sums[j], scale_a[u], i * 4 + j);
        }
        store_vector(d + r * e.d_stride + col, out);
      }
    }
    return;
  }
  for (; row < e.rows; row += step) {
    const float scale_a = scaled ? load_element(e.absmax_a + row) : 1.0f;
#pragma unroll
    for (int i = 0; i < v; ++i) {
      if (i >= here) break;
      const std::int32_t acc = e.acc != nullptr ? e.acc[row * e.acc_stride + col + i] : 0;
      store_element(d + row * e.d_stride + col + i, convert(acc, scale_a, i));
    }
  }
}

template <class Out>
cudaError_t start(const EpilogueArguments& e, int multiprocessors, cudaStream_t stream) {
  constexpr bool scaled = !std::is_same_v<Out, std::int32_t>;
  constexpr std::int64_t v = 16 / sizeof(Out);
  const bool vectors = reinterpret_cast<std::uintptr_t>(e.d) % 16 == 0 && e.d_stride % v == 0 &&
                       reinterpret_cast<std::uintptr_t>(e.acc) % 16 == 0 && e.acc_stride % 4 == 0;
  const std::int64_t across = divide_up<std::int64_t>(e.cols, block_cols * (vectors ? v : 1));
  // Eight thread blocks for every multiprocessor, but not more than there are rows for.
  const std::int64_t wanted = divide_up<std::int64_t>(std::int64_t{multiprocessors} * 8, across);
  const std::int64_t fitting = divide_up<std::int64_t>(e.rows, block_rows * unroll);
  std::int64_t down = wanted < fitting ? wanted : fitting;
  if (down > 65535) down = 65535;
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  const dim3 block(block_cols, block_rows);
  return vectors
             ? launch("epilogue", epilogue_kernel<Out, scaled, true>, grid, block, 0, stream, e)
             : launch("epilogue", epilogue_kernel<Out, scaled, false>, grid, block, 0, stream, e);
}

}  // namespace

cudaError_t launch_epilogue(DType output, const EpilogueArguments& arguments, int multiprocessors,
                            cudaStream_t stream) {
  return core::cuda::for_output_type(
      output, [&]<class Out>(Out) { return start<Out>(arguments, multiprocessors, stream); });
}

}  // namespace switchback::products::cuda
