// SPDX-License-Identifier: Apache-2.0
// Device code: embedding, rotary positions, SwiGLU, dropout and sums. Memory traffic bounds their
// time from below. The results have the same bits as on a CPU with fused multiply-adds.
#include "core/cuda/philox.cuh"
#include "studies/models/cuda/kernels.hpp"
#include "studies/models/cuda/values.cuh"
#include "studies/models/philox.hpp"

namespace switchback::models::cuda {

namespace {

struct EmbedArguments {
  const std::int32_t* tokens;
  const float* table;
  const float* positions;  // or null
  void* y;
  std::int64_t cols, length;
};

template <class T>
__global__ void __launch_bounds__(block_threads) embed_kernel(EmbedArguments a) {
  const std::int64_t row = blockIdx.x;
  const float* const from = a.table + a.tokens[row] * a.cols;
  const float* const position =
      a.positions == nullptr ? nullptr : a.positions + row % a.length * a.cols;
  T* const to = static_cast<T*>(a.y) + row * a.cols;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x)
    to[i] = narrow<T>(position == nullptr ? from[i] : __fadd_rn(from[i], position[i]));
}

struct EmbedBackwardArguments {
  const std::int32_t* tokens;
  const void* dy;
  float* to;
  std::int64_t rows, cols, length;
  bool accumulate;
};

// Backward of the embedding: each thread block has a row of the table, and each thread one of its
// columns. A thread adds the rows of dy that have the block's token, over blocks of 64 rows in
// order, and then adds these sums in order. All thread blocks read all tokens, which fit into the
// cache. Without atomics, the order of sums is that of the rows.
template <class T>
__global__ void __launch_bounds__(block_threads) embed_backward_kernel(EmbedBackwardArguments a) {
  constexpr int warps = block_threads / 32;
  __shared__ unsigned found[warps];
  const auto token = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.y) * block_threads + threadIdx.x;
  const bool inside = col < a.cols;
  float* const to = a.to + token * a.cols + col;
  float sum = a.accumulate && inside ? *to : 0.0f;
  for (std::int64_t first = 0; first < a.rows; first += block_threads) {
    const std::int64_t row = first + threadIdx.x;
    const unsigned mine = __ballot_sync(all_lanes, row < a.rows && a.tokens[row] == token ? 1 : 0);
    __syncthreads();  // waits until the rows found before have been added
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = mine;
    __syncthreads();
    for (int block = 0; block < warps; block += 2) {  // of 64 rows
      if ((found[block] | found[block + 1]) == 0) continue;
      float part = 0.0f;
      for (int warp = block; warp < block + 2; ++warp)
        for (unsigned rest = found[warp]; rest != 0; rest &= rest - 1) {
          const std::int64_t at = first + warp * 32 + (__ffs(static_cast<int>(rest)) - 1);
          if (inside) part = __fadd_rn(part, widen(static_cast<const T*>(a.dy)[at * a.cols + col]));
        }
      sum = __fadd_rn(sum, part);
    }
  }
  if (inside) *to = narrow<float>(sum);
}

// Gradient of the position table: position t is the sum of the rows t, t + length, … of dy in
// order.
template <class T>
__global__ void __launch_bounds__(block_threads) positions_kernel(EmbedBackwardArguments a) {
  const std::int64_t t = blockIdx.x;
  for (std::int64_t i = threadIdx.x; i < a.cols; i += blockDim.x) {
    float sum = a.accumulate ? a.to[t * a.cols + i] : 0.0f;
    for (std::int64_t row = t; row < a.rows; row += a.length)
      sum = __fadd_rn(sum, widen(static_cast<const T*>(a.dy)[row * a.cols + i]));
    a.to[t * a.cols + i] = narrow<float>(sum);
  }
}

struct RopeArguments {
  void* qkv;
  const float* cosines;
  const float* sines;
  std::int64_t rows, length, heads, head_dim;
  float sign;
};

// Rotary positions: each thread rotates one pair of elements.
template <class T>
__global__ void __launch_bounds__(block_threads) rope_kernel(RopeArguments a) {
  const std::int64_t half_dim = a.head_dim / 2;
  const std::int64_t pairs = 2 * a.heads * half_dim;  // of a row
  for (std::int64_t at = first_index(); at < a.rows * pairs; at += index_step()) {
    const std::int64_t row = at / pairs;
    const std::int64_t head = at % pairs / half_dim;
    const std::int64_t i = at % half_dim;
    T* const x = static_cast<T*>(a.qkv) + row * 3 * a.heads * a.head_dim + head * a.head_dim + i;
    const std::int64_t angle = row % a.length * half_dim + i;
    const float c = a.cosines[angle];
    const float s = __fmul_rn(a.sines[angle], a.sign);
    const float first = widen(x[0]);
    const float second = widen(x[half_dim]);
    x[0] = narrow<T>(__fmaf_rn(-second, s, __fmul_rn(first, c)));
    x[half_dim] = narrow<T>(__fmaf_rn(first, s, __fmul_rn(second, c)));
  }
}

template <class T>
__device__ __forceinline__ float one_and_exponential(float x) {
  if constexpr (std::is_same_v<T, float>) {
    const float z = -x < 88.0f ? -x : 88.0f;  // limited, so that exp(z) is finite
    return __fadd_rn(1.0f, exponential(z));
  } else {
    return __fadd_rn(1.0f, exponential_of_negated(x < -88.0f ? -88.0f : x));
  }
}

struct SwigluArguments {
  const void* gate_up;
  const void* dh;
  void* to;  // h in forward, dgate_up in backward
  std::int64_t rows, cols;
};

template <class T>
__global__ void __launch_bounds__(block_threads) swiglu_kernel(SwigluArguments a) {
  for (std::int64_t at = first_index(); at < a.rows * a.cols; at += index_step()) {
    const T* const from = static_cast<const T*>(a.gate_up) + at / a.cols * 2 * a.cols + at % a.cols;
    const float gate = widen(from[0]);
    const float under = one_and_exponential<T>(gate);
    const float silu =
        std::is_same_v<T, float> ? __fmul_rn(gate, __fdiv_rn(1.0f, under)) : __fdiv_rn(gate, under);
    static_cast<T*>(a.to)[at] = narrow<T>(__fmul_rn(silu, widen(from[a.cols])));
  }
}

template <class T>
__global__ void __launch_bounds__(block_threads) swiglu_backward_kernel(SwigluArguments a) {
  for (std::int64_t at = first_index(); at < a.rows * a.cols; at += index_step()) {
    const std::int64_t place = at / a.cols * 2 * a.cols + at % a.cols;
    const T* const from = static_cast<const T*>(a.gate_up) + place;
    T* const to = static_cast<T*>(a.to) + place;
    const float gate = widen(from[0]);
    const float g = widen(static_cast<const T*>(a.dh)[at]);
    const float s = __fdiv_rn(1.0f, one_and_exponential<T>(gate));
    const float silu = __fmul_rn(gate, s);
    // Derivative of silu: s + x·s·(1 - s).
    const float slope = __fmaf_rn(silu, __fsub_rn(1.0f, s), s);
    to[0] = narrow<T>(__fmul_rn(__fmul_rn(g, widen(from[a.cols])), slope));
    to[a.cols] = narrow<T>(__fmul_rn(g, silu));
  }
}

struct DropoutArguments {
  void* x;
  std::int64_t size;
  core::cuda::PhiloxKeys keys;
  std::uint64_t stream, first_counter;
  unsigned threshold;
  float scale;
};

// Dropout: each thread has one Philox counter, which gives the random bits of four elements in a
// block of 64; see models/philox.hpp.
template <class T>
__global__ void __launch_bounds__(block_threads) dropout_kernel(DropoutArguments a) {
  const std::int64_t counters =
      (a.size + philox::block_elements - 1) / philox::block_elements * philox::block_counters;
  for (std::int64_t at = first_index(); at < counters; at += index_step()) {
    const std::uint64_t counter = a.first_counter + static_cast<std::uint64_t>(at);
    const uint4 words = core::cuda::philox_words(
        a.keys, make_uint4(static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32),
                           static_cast<unsigned>(a.stream), static_cast<unsigned>(a.stream >> 32)));
    const std::int64_t first =
        at / philox::block_counters * philox::block_elements + at % philox::block_counters;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const std::int64_t i = first + w * philox::block_counters;
      if (i >= a.size) continue;
      const unsigned bits = w == 0 ? words.x : w == 1 ? words.y : w == 2 ? words.z : words.w;
      T& x = static_cast<T*>(a.x)[i];
      x = bits < a.threshold ? T{} : narrow<T>(__fmul_rn(widen(x), a.scale));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    add_kernel(const void* x, void* y, std::int64_t size) {
  for (std::int64_t i = first_index(); i < size; i += index_step()) {
    T& to = static_cast<T*>(y)[i];
    to = narrow<T>(__fadd_rn(widen(to), widen(static_cast<const T*>(x)[i])));
  }
}

}  // namespace

cudaError_t launch_embed(cudaStream_t stream, const std::int32_t* tokens, ConstAnyMatrix table,
                         ConstAnyMatrix positions, AnyMatrix y) {
  return with_type(y.dtype, [&]<class T>(T) {
    return launch(
        "embed", embed_kernel<T>, grid_of_rows(y.rows), dim3(block_threads), 0, stream,
        EmbedArguments{tokens, static_cast<const float*>(table.data),
                       static_cast<const float*>(positions.data), y.data, y.cols, positions.rows});
  });
}

cudaError_t launch_embed_backward(cudaStream_t stream, const std::int32_t* tokens,
                                  ConstAnyMatrix dy, MatrixView<float> dtable,
                                  MatrixView<float> dpositions, bool accumulate) {
  return with_type(dy.dtype, [&]<class T>(T) {
    const auto of = [&](const MatrixView<float>& to) {
      return EmbedBackwardArguments{tokens,  dy.data, to.data,   dy.rows,
                                    dy.cols, to.rows, accumulate};
    };
    cudaError_t status = cudaSuccess;
    if (dtable.rows > 0)
      status = launch("embed_backward", embed_backward_kernel<T>,
                      dim3(static_cast<unsigned>(dtable.rows),
                           static_cast<unsigned>(divide_up<std::int64_t>(dy.cols, block_threads))),
                      dim3(block_threads), 0, stream, of(dtable));
    if (status == cudaSuccess && dpositions.rows > 0)
      status = launch("embed_positions", positions_kernel<T>, grid_of_rows(dpositions.rows),
                      dim3(block_threads), 0, stream, of(dpositions));
    return status;
  });
}

cudaError_t launch_rope(cudaStream_t stream, const Rope& args, AnyMatrix qkv, bool inverse) {
  const RopeArguments a = {qkv.data,      args.cosines.data(),   args.sines.data(),
                           qkv.rows,      args.length,           args.heads,
                           args.head_dim, inverse ? -1.0f : 1.0f};
  return with_type(qkv.dtype, [&]<class T>(T) {
    return launch("rope", rope_kernel<T>, grid_of(qkv.rows * args.heads * args.head_dim),
                  dim3(block_threads), 0, stream, a);
  });
}

cudaError_t launch_swiglu(cudaStream_t stream, ConstAnyMatrix gate_up, AnyMatrix h) {
  return with_type(h.dtype, [&]<class T>(T) {
    return launch("swiglu", swiglu_kernel<T>, grid_of(h.rows * h.cols), dim3(block_threads), 0,
                  stream, SwigluArguments{gate_up.data, nullptr, h.data, h.rows, h.cols});
  });
}

cudaError_t launch_swiglu_backward(cudaStream_t stream, ConstAnyMatrix gate_up, ConstAnyMatrix dh,
                                   AnyMatrix dgate_up) {
  return with_type(dh.dtype, [&]<class T>(T) {
    return launch("swiglu_backward", swiglu_backward_kernel<T>, grid_of(dh.rows * dh.cols),
                  dim3(block_threads), 0, stream,
                  SwigluArguments{gate_up.data, dh.data, dgate_up.data, dh.rows, dh.cols});
  });
}

cudaError_t launch_dropout(cudaStream_t stream, const Dropout& args, AnyMatrix x) {
  const std::int64_t size = x.rows * x.cols;
  const DropoutArguments a = {
      x.data,
      size,
      core::cuda::PhiloxKeys(args.key),
      args.stream,
      static_cast<std::uint64_t>(args.first / philox::block_elements * philox::block_counters),
      static_cast<unsigned>(static_cast<double>(args.p) * 4294967296.0),
      1.0f / (1.0f - args.p)};
  return with_type(x.dtype, [&]<class T>(T) {
    return launch("dropout", dropout_kernel<T>, grid_of(divide_up<std::int64_t>(size, 4)),
                  dim3(block_threads), 0, stream, a);
  });
}

cudaError_t launch_add(cudaStream_t stream, ConstAnyMatrix x, AnyMatrix y) {
  return with_type(y.dtype, [&]<class T>(T) {
    return launch("add", add_kernel<T>, grid_of(y.rows * y.cols), dim3(block_threads), 0, stream,
                  x.data, y.data, y.rows * y.cols);
  });
}

}  // namespace switchback::models::cuda
