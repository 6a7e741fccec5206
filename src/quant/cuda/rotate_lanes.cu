// SPDX-License-Identifier: Apache-2.0
// Device code: rows of 16-bit elements, rotated and quantized, with 64 neighbours of a row in each
// lane.
#include "core/cuda/rotation.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/rotate.cuh"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

namespace {

using core::cuda::AsyncCopies;
using core::cuda::largest_magnitude;
using core::cuda::rotation_stage;

constexpr int of_lane = 64;  // elements of a lane
constexpr int of_warp = 32 * of_lane;
constexpr int few_warps = 4;
constexpr int most_warps = 7;      // warps for a row: up to 14,336 elements
constexpr int buffer_units = 320;  // units of 16 bytes of shared memory for a warp

struct RotateLanesArguments {
  const void* x;
  std::int8_t* q;
  float* absmax;
  std::int64_t cols, x_stride, q_stride;
  std::int64_t first_row;  // of this grid
};

// Brings four neighbours of each of four lanes of 64 neighbours to one lane, as the fourth stage of
// a group of 256 needs. All lanes of the warp must call it.
__device__ __forceinline__ void exchange_256(float (&v)[of_lane], uint4* buffer, int lane) {
  // Vectors of lanes that differ by 4 or more are 20 apart, others 5: no bank is used twice.
  float4* const out = reinterpret_cast<float4*>(buffer) + lane / 4 * 20 + lane % 4 * 5;
  const float4* const in = reinterpret_cast<const float4*>(buffer) + lane / 4 * 20 + lane % 4;
  __syncwarp();
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int half = c % 2 * 160;  // the data of the previous exchange may still be read
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = j * 16 + c * 4;
      out[half + j] = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = j * 16 + c * 4;
      const float4 four = in[half + j * 5];
      v[i] = four.x;
      v[i + 1] = four.y;
      v[i + 2] = four.z;
      v[i + 3] = four.w;
    }
  }
}

// Brings four neighbours of each of 16 lanes to one lane, as the last two stages of a group of 1024
// need. All lanes of the warp must call it.
__device__ __forceinline__ void exchange_1024(float (&v)[of_lane], uint4* buffer, int lane) {
  float2* const out = reinterpret_cast<float2*>(buffer) + lane / 16 * 272 + lane % 16 * 17;
  const float2* const in = reinterpret_cast<const float2*>(buffer) + lane / 16 * 272 + lane % 16;
#pragma unroll
  for (int c = 0; c < 4; c += 2) {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 16; ++j)
      out[j] = make_float2(v[j * 4 + c], v[j * 4 + c + 1]);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float2 two = in[j * 17];
      v[j * 4 + c] = two.x;
      v[j * 4 + c + 1] = two.y;
    }
  }
}

// The number of thread blocks that a multiprocessor must hold, which leaves 96 registers for a
// thread, or 128. For some devices the compiler needs a few more than 96 for groups of 256.
constexpr int blocks_of(int warps, [[maybe_unused]] int group) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
  if (group == 256) return warps == few_warps ? 4 : 2;
#endif
  return warps == few_warps ? 5 : 2;
}

// Rotates rows and quantizes them. A block processes a row, and a warp 2048 neighbouring elements
// of it. Lower bound: each element is read once and its code written once, 3 bytes; 3.5 operations
// an element and two stages, 8 bytes of shared memory an element, and 8 more from groups of 256 on.
// Registers are the limit: 96 leave 20 warps to a multiprocessor. Speed on an H200 as a share of a
// copy of the same number of bytes, bf16, 30720 x 4096: groups of 256 0.87, 1024 0.83. An earlier
// kernel of the same shape: 30720 x 3072, where a quarter of the lanes have no elements, 0.59;
// 1920 x 4096, which stays in the L2 cache, 0.33, where the kernel of rotate.cu gives 0.64.
template <class T, int G, int at_most>
__global__ void __launch_bounds__(at_most * 32, blocks_of(at_most, G))
    rotate_lanes_kernel(RotateLanesArguments a) {
  SWITCHBACK_DYNAMIC_SHARED(uint4, buffers);
  __shared__ unsigned maxima[most_warps];
  let_next_kernel_begin();
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const auto warp = static_cast<int>(threadIdx.x / 32);
  const std::int64_t row = a.first_row + blockIdx.x;
  uint4* const buffer = buffers + warp * buffer_units;
  // Lanes of this warp that have elements; 32 or more means all.
  const int lanes = static_cast<int>(a.cols / of_lane) - warp * 32;
  float v[of_lane];
  {
    AsyncCopies<8> copies;
    const auto* const from = reinterpret_cast<const uint4*>(static_cast<const T*>(a.x) +
                                                            row * a.x_stride + warp * of_warp) +
                             lane;
    uint4* const to = buffer + lane / 8 * 9 + lane % 8;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      copies.add(to + i * 36, from + i * 32, i * 4 + lane / 8 < lanes);
    copies.end_group();
    copies.wait(0);
    __syncwarp();
#pragma unroll
    for (int p = 0; p < 8; ++p) {
      const Pack<T, 8> pack = {buffer[lane * 9 + p]};
#pragma unroll
      for (int i = 0; i < 8; ++i)
        v[p * 8 + i] = value(pack, i);
    }
  }
  rotation_stage<T, 1>(v);
  if constexpr (G >= 16) rotation_stage<T, 4>(v);
  if constexpr (G >= 64) rotation_stage<T, 16>(v);
  if constexpr (G == 256) {
    exchange_256(v, buffer, lane);
    rotation_stage<T, 16>(v);
  } else if constexpr (G == 1024) {
    exchange_1024(v, buffer, lane);
    rotation_stage<T, 4>(v);
    rotation_stage<T, 16>(v);
  }
  float largest[4] = {};
#pragma unroll
  for (int i = 0; i < of_lane; ++i)
    largest[i % 4] = largest_magnitude(largest[i % 4], v[i]);
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    bits = max(bits, magnitude_bits(largest[i]));
  bits = warp_max(bits);
  if (lane == 0) maxima[warp] = bits;
  __syncthreads();
  const auto warps = static_cast<int>(blockDim.x / 32);
  for (int w = 0; w < warps; ++w)
    bits = max(bits, maxima[w]);
  const float absmax = absmax_from_bits(bits);
  if (threadIdx.x == 0) store_element(a.absmax + row, absmax);
  const Scale<float> scale = scale_of<float>(absmax);
  // Word w of the codes holds those of elements 4w … 4w + 3 of v.
  const auto four_codes = [&](int w) {
    return codes(v[w * 4], v[w * 4 + 1], v[w * 4 + 2], v[w * 4 + 3], scale);
  };
  std::int8_t* const to = a.q + row * a.q_stride + warp * of_warp;
  if constexpr (G == 1024) {
    std::int8_t* const mine = to + lane / 16 * 1024 + lane % 16 * 4;
    const bool inside = lane / 16 * 16 < lanes;
#pragma unroll
    for (int w = 0; w < 16; ++w) {
      const unsigned word = four_codes(w);
      if (inside) *reinterpret_cast<unsigned*>(mine + w * 64) = word;
    }
  } else {
    if constexpr (G <= 64) __syncwarp();  // all lanes have read the buffer
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const uint4 sixteen = make_uint4(four_codes(c * 4), four_codes(c * 4 + 1),
                                       four_codes(c * 4 + 2), four_codes(c * 4 + 3));
      if constexpr (G <= 64)
        buffer[lane * 5 + c] = sixteen;
      else if (lane / 4 * 4 < lanes)
        *reinterpret_cast<uint4*>(to + lane / 4 * 256 + lane % 4 * 16 + c * 64) = sixteen;
    }
    if constexpr (G <= 64) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (i * 8 + lane / 4 < lanes)
          reinterpret_cast<uint4*>(to)[i * 32 + lane] = buffer[(i * 8 + lane / 4) * 5 + lane % 4];
    }
  }
}

int warps_of(std::int64_t cols) {
  return static_cast<int>(divide_up<std::int64_t>(cols, of_warp));
}

template <class T, int G>
cudaError_t start(const Launch& launch, RotateLanesArguments a, std::int64_t rows) {
  const int warps = warps_of(a.cols);
  const auto kernel = warps <= few_warps ? rotate_lanes_kernel<T, G, few_warps>
                                         : rotate_lanes_kernel<T, G, most_warps>;
  cudaError_t status = cudaSuccess;
  for (a.first_row = 0; a.first_row < rows && status == cudaSuccess; a.first_row += most_blocks)
    status = core::cuda::launch("rotate_quantize_lanes", kernel, dim3(grid_of(rows - a.first_row)),
                                dim3(static_cast<unsigned>(warps) * 32),
                                sizeof(uint4) * buffer_units * static_cast<std::size_t>(warps),
                                launch.stream, a);
  return status;
}

}  // namespace

bool rotate_rowwise_by_lanes(const Launch& launch, ConstAnyMatrix x, Codes q) noexcept {
  if (dtype_size_bytes(x.dtype) != 2 || x.cols % of_lane != 0) return false;
  if (!is_packed(x.data, x.rows, x.cols, x.stride, 8, 16) ||
      !is_packed(q.data, q.rows, q.cols, q.stride, 16, 16))
    return false;
  // At most a quarter of the lanes may have no elements.
  const std::int64_t warps = warps_of(x.cols);
  if (warps > most_warps || x.cols * 4 < warps * of_warp * 3) return false;
  return x.rows * x.cols * 3 > static_cast<std::int64_t>(launch.l2_bytes);
}

cudaError_t launch_rotate_rowwise_by_lanes(const Launch& launch, ConstAnyMatrix x,
                                           Rotation rotation, Codes q, float* absmax) {
  const RotateLanesArguments a = {x.data, q.data, absmax, x.cols, x.stride, q.stride, 0};
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2)
      return for_group(rotation, [&]<int G>(std::integral_constant<int, G>) {
        return start<T, G>(launch, a, x.rows);
      });
    else
      return cudaErrorInvalidValue;
  });
}

}  // namespace switchback::quant::cuda
