// SPDX-License-Identifier: Apache-2.0
// Device code: causal attention in tiles of queries and keys (Dao et al. 2022, arXiv 2205.14135). A
// block of 16 by 16 threads has 64 rows and a part of their columns; thread (x, y) has rows y + 16i
// and columns x + 16j of each product. All sums are in f32 and in a fixed order. Backward computes
// the weights twice, once for the gradients of keys and values and once for those of queries, so
// that atomics are not needed.
#include "studies/models/cuda/kernels.hpp"
#include "studies/models/cuda/values.cuh"

namespace switchback::models::cuda {

namespace {

constexpr int side = 16;   // threads along each side of a thread block
constexpr int each = 4;    // rows, and columns of scores, that a thread computes
constexpr int tile = 64;   // queries or keys in a tile
constexpr int depth = 16;  // depth of a product that is in shared memory at a time
static_assert(tile == side * each && block_threads == side * side);

struct AttentionArguments {
  const void* qkv;
  const void* out;
  const void* dout;
  float* logsumexp;
  float* dots;  // dot product of out and dout for each query
  void* to;     // out or dqkv
  std::int64_t length, heads, dim, tiles;
  float scale;
};

// The rows of one head in a matrix that has all heads.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
};

// What a thread block computes: a tile of rows of one head. The blocks of one head have adjacent
// numbers.
struct HeadTile {
  std::int64_t head, first;
};
__device__ __forceinline__ HeadTile tile_of(const AttentionArguments& a, bool last_first) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) % a.tiles;
  return {static_cast<std::int64_t>(blockIdx.x) / a.tiles,
          (last_first ? a.tiles - 1 - at : at) * tile};
}

// The queries (part 0), keys (part 1) or values (part 2) of a head in qkv.
template <class T>
__device__ __forceinline__ HeadRows<T> part_of(const AttentionArguments& a, T* qkv,
                                               std::int64_t head, int part) {
  const std::int64_t width = a.heads * a.dim;
  return {qkv + head / a.heads * a.length * 3 * width + part * width + head % a.heads * a.dim,
          3 * width};
}
template <class T>
__device__ __forceinline__ HeadRows<T> rows_of(const AttentionArguments& a, T* data,
                                               std::int64_t head) {
  const std::int64_t width = a.heads * a.dim;
  return {data + head / a.heads * a.length * width + head % a.heads * a.dim, width};
}

__device__ __forceinline__ int thread_x() {
  return static_cast<int>(threadIdx.x) % side;
}
__device__ __forceinline__ int thread_y() {
  return static_cast<int>(threadIdx.x) / side;
}

struct Shared {
  float left[depth][tile + 1];
  float right[depth][2 * tile + 1];
  float weights[tile][tile + 1];
};

// Loads a tile transposed: to[k, r] = rows[first + r, from + k], with zeros outside of the matrix.
template <class T, int width>
__device__ __forceinline__ void load_transposed(const AttentionArguments& a,
                                                const HeadRows<const T>& rows, std::int64_t first,
                                                std::int64_t from, float (&to)[depth][width]) {
  const int k = thread_x();
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int r = thread_y() + side * i;
    const bool inside = first + r < a.length && from + k < a.dim;
    to[k][r] = inside ? widen(rows.data[(first + r) * rows.stride + from + k]) : 0.0f;
  }
}

// Multiplies two tiles: s[i, j] is the dot product of a row of `left` and a row of `right`.
template <class T>
__device__ __forceinline__ void multiply_rows(const AttentionArguments& a,
                                              const HeadRows<const T>& left,
                                              std::int64_t left_first,
                                              const HeadRows<const T>& right,
                                              std::int64_t right_first, Shared& shared,
                                              float (&s)[each][each]) {
#pragma unroll
  for (int i = 0; i < each; ++i)
#pragma unroll
    for (int j = 0; j < each; ++j)
      s[i][j] = 0;
  for (std::int64_t from = 0; from < a.dim; from += depth) {
    __syncthreads();
    load_transposed<T>(a, left, left_first, from, shared.left);
    load_transposed<T>(a, right, right_first, from, shared.right);
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < depth; ++k) {
      float x[each], y[each];
#pragma unroll
      for (int i = 0; i < each; ++i) {
        x[i] = shared.left[k][thread_y() + side * i];
        y[i] = shared.right[k][thread_x() + side * i];
      }
#pragma unroll
      for (int i = 0; i < each; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j)
          s[i][j] = __fmaf_rn(x[i], y[j], s[i][j]);
    }
  }
}

// Adds weights · rows to the sums of a thread: sums[i, j] += weights[row, k] · rows[first + k,
// column + j …], for a tile of rows k. Rows after the last one of the matrix are left out.
template <class T, int N>
__device__ __forceinline__ void add_weighted(const AttentionArguments& a,
                                             const HeadRows<const T>& rows, std::int64_t first,
                                             std::int64_t column, Shared& shared,
                                             float (&sums)[each][each * N]) {
  for (int from = 0; from < tile && first + from < a.length; from += depth) {
    __syncthreads();
    const std::int64_t row = first + from + thread_y();
#pragma unroll
    for (int j = 0; j < each * N; ++j) {
      const int c = thread_x() + side * j;
      const bool inside = row < a.length && column + c < a.dim;
      shared.right[thread_y()][c] =
          inside ? widen(rows.data[row * rows.stride + column + c]) : 0.0f;
    }
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < depth; ++k) {
      float x[each];
#pragma unroll
      for (int i = 0; i < each; ++i)
        x[i] = shared.weights[thread_y() + side * i][from + k];
#pragma unroll
      for (int j = 0; j < each * N; ++j) {
        const float y = shared.right[k][thread_x() + side * j];
#pragma unroll
        for (int i = 0; i < each; ++i)
          sums[i][j] = __fmaf_rn(x[i], y, sums[i][j]);
      }
    }
  }
  __syncthreads();
}

__device__ __forceinline__ void put_weights(const float (&s)[each][each], Shared& shared) {
  __syncthreads();
#pragma unroll
  for (int i = 0; i < each; ++i)
#pragma unroll
    for (int j = 0; j < each; ++j)
      shared.weights[thread_y() + side * i][thread_x() + side * j] = s[i][j];
}

template <class T, int N>
__device__ __forceinline__ void put_rows(const AttentionArguments& a, const HeadRows<T>& to,
                                         std::int64_t first, std::int64_t column,
                                         const float (&sums)[each][each * N],
                                         const float (&factors)[each]) {
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const std::int64_t row = first + thread_y() + side * i;
    if (row >= a.length) continue;
#pragma unroll
    for (int j = 0; j < each * N; ++j) {
      const std::int64_t c = column + thread_x() + side * j;
      if (c < a.dim) to.data[row * to.stride + c] = narrow<T>(__fmul_rn(sums[i][j], factors[i]));
    }
  }
}

// Combines the values of the threads that share a row of the tile.
template <class Combine>
__device__ __forceinline__ float combined_row(float value, Combine combine) {
#pragma unroll
  for (int lanes = side / 2; lanes > 0; lanes /= 2)
    value = combine(value, __shfl_xor_sync(all_lanes, value, lanes));
  return value;
}

// The queries, keys and values of one head.
template <class T>
struct Operands {
  HeadRows<const T> queries, keys, values;
};
template <class T>
__device__ __forceinline__ Operands<T> operands_of(const AttentionArguments& a, std::int64_t head) {
  const T* const qkv = static_cast<const T*>(a.qkv);
  return {part_of(a, qkv, head, 0), part_of(a, qkv, head, 1), part_of(a, qkv, head, 2)};
}

// Forward: each thread block computes N · 64 columns of the output for a tile of queries.
template <class T, int N>
__global__ void __launch_bounds__(block_threads, 1) attention_kernel(AttentionArguments a) {
  __shared__ Shared shared;
  const HeadTile t = tile_of(a, true);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * N * tile;
  const auto [queries, keys, values] = operands_of<T>(a, t.head);
  const float lowest = __uint_as_float(0xFF800000u);  // -Inf
  float sums[each][each * N] = {};
  float max[each], total[each];
#pragma unroll
  for (int i = 0; i < each; ++i) {
    max[i] = lowest;
    total[i] = 0;
  }
  for (std::int64_t first = 0; first <= t.first; first += tile) {
    float s[each][each];
    multiply_rows<T>(a, queries, t.first, keys, first, shared, s);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const std::int64_t query = t.first + thread_y() + side * i;
      float most = max[i];
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const std::int64_t key = first + thread_x() + side * j;
        s[i][j] = key <= query ? __fmul_rn(s[i][j], a.scale) : lowest;
        most = fmaxf(most, s[i][j]);
      }
      most = combined_row(most, Largest{});
      // Every query sees a key of the first tile, so `most` is not -Inf.
      const float factor = exponential(__fsub_rn(max[i], most));
      float more = 0;
#pragma unroll
      for (int j = 0; j < each; ++j) {
        s[i][j] = exponential(__fsub_rn(s[i][j], most));
        more = __fadd_rn(more, s[i][j]);
      }
      total[i] = __fmaf_rn(total[i], factor, combined_row(more, Sum{}));
      max[i] = most;
#pragma unroll
      for (int j = 0; j < each * N; ++j)
        sums[i][j] = __fmul_rn(sums[i][j], factor);
    }
    put_weights(s, shared);
    add_weighted<T, N>(a, values, first, column, shared, sums);
  }
  float factors[each];
#pragma unroll
  for (int i = 0; i < each; ++i) {
    factors[i] = __fdiv_rn(1.0f, total[i]);
    const std::int64_t query = t.first + thread_y() + side * i;
    if (blockIdx.y == 0 && thread_x() == 0 && query < a.length)
      a.logsumexp[t.head * a.length + query] = __fadd_rn(max[i], logf(total[i]));
  }
  put_rows<T, N>(a, rows_of(a, static_cast<T*>(a.to), t.head), t.first, column, sums, factors);
}

// Computes dots, the dot product of out and dout for each query of each head; a warp computes one.
template <class T>
__global__ void __launch_bounds__(block_threads)
    attention_dots_kernel(AttentionArguments a, std::int64_t count) {
  const std::int64_t at = first_index() / 32;
  const std::int64_t head = at / a.length;
  const std::int64_t query = at % a.length;
  float dot = 0;
  if (at < count) {
    const HeadRows<const T> out = rows_of(a, static_cast<const T*>(a.out), head);
    const HeadRows<const T> dout = rows_of(a, static_cast<const T*>(a.dout), head);
    for (std::int64_t i = threadIdx.x % 32; i < a.dim; i += 32)
      dot = __fmaf_rn(widen(out.data[query * out.stride + i]),
                      widen(dout.data[query * dout.stride + i]), dot);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    dot = __fadd_rn(dot, __shfl_xor_sync(all_lanes, dot, lanes));
  if (at < count && threadIdx.x % 32 == 0) a.dots[at] = dot;
}

// What backward needs of a query.
struct Query {
  int sees;  // it sees the keys of the tile below this number
  float logsumexp, dot;
};
__device__ __forceinline__ Query query_of(const AttentionArguments& a, std::int64_t head,
                                          std::int64_t query, std::int64_t first_key) {
  if (query >= a.length) return {0, 0, 0};
  const std::int64_t at = head * a.length + query;
  return {static_cast<int>(query - first_key) + 1, a.logsumexp[at], a.dots[at]};
}
// Replaces a score by its attention weight, and the gradient of the weight by that of the score.
// Both become 0 if the query does not see the key.
__device__ __forceinline__ void to_gradient(const Query& query, int key, float scale, float& weight,
                                            float& gradient) {
  const bool seen = key < query.sees;
  weight = seen ? exponential(__fmaf_rn(weight, scale, -query.logsumexp)) : 0.0f;
  gradient = seen ? __fmul_rn(weight, __fsub_rn(gradient, query.dot)) : 0.0f;
}

// Backward: computes the gradients of a tile of queries.
template <class T, int N>
__global__ void __launch_bounds__(block_threads, 1) attention_dq_kernel(AttentionArguments a) {
  __shared__ Shared shared;
  const HeadTile t = tile_of(a, true);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * N * tile;
  const auto [queries, keys, values] = operands_of<T>(a, t.head);
  const HeadRows<const T> dout = rows_of(a, static_cast<const T*>(a.dout), t.head);
  float dq[each][each * N] = {};
  for (std::int64_t first = 0; first <= t.first; first += tile) {
    float s[each][each], ds[each][each];
    multiply_rows<T>(a, queries, t.first, keys, first, shared, s);
    multiply_rows<T>(a, dout, t.first, values, first, shared, ds);
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const Query query = query_of(a, t.head, t.first + thread_y() + side * i, first);
#pragma unroll
      for (int j = 0; j < each; ++j)
        to_gradient(query, thread_x() + side * j, a.scale, s[i][j], ds[i][j]);
    }
    put_weights(ds, shared);
    add_weighted<T, N>(a, keys, first, column, shared, dq);
  }
  const float factors[each] = {a.scale, a.scale, a.scale, a.scale};
  put_rows<T, N>(a, part_of(a, static_cast<T*>(a.to), t.head, 0), t.first, column, dq, factors);
}

// Backward: computes the gradients of a tile of keys and values.
template <class T, int N>
__global__ void __launch_bounds__(block_threads, 1) attention_dkv_kernel(AttentionArguments a) {
  __shared__ Shared shared;
  const HeadTile t = tile_of(a, false);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * N * tile;
  const auto [queries, keys, values] = operands_of<T>(a, t.head);
  const HeadRows<const T> dout = rows_of(a, static_cast<const T*>(a.dout), t.head);
  float dk[each][each * N] = {};
  float dv[each][each * N] = {};
  for (std::int64_t first = t.first; first < a.length; first += tile) {
    float s[each][each], ds[each][each];
    multiply_rows<T>(a, keys, t.first, queries, first, shared, s);
    multiply_rows<T>(a, values, t.first, dout, first, shared, ds);
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const Query query = query_of(a, t.head, first + thread_x() + side * j, t.first);
#pragma unroll
      for (int i = 0; i < each; ++i)
        to_gradient(query, thread_y() + side * i, a.scale, s[i][j], ds[i][j]);
    }
    put_weights(s, shared);
    add_weighted<T, N>(a, dout, first, column, shared, dv);
    put_weights(ds, shared);
    add_weighted<T, N>(a, queries, first, column, shared, dk);
  }
  const float scales[each] = {a.scale, a.scale, a.scale, a.scale};
  const float ones[each] = {1.0f, 1.0f, 1.0f, 1.0f};
  T* const to = static_cast<T*>(a.to);
  put_rows<T, N>(a, part_of(a, to, t.head, 1), t.first, column, dk, scales);
  put_rows<T, N>(a, part_of(a, to, t.head, 2), t.first, column, dv, ones);
}

AttentionArguments arguments_of(const AttentionShape& shape) {
  AttentionArguments a = {};
  a.length = shape.length;
  a.heads = shape.heads;
  a.dim = shape.head_dim;
  a.tiles = divide_up<std::int64_t>(shape.length, tile);
  a.scale = 1.0f / sqrtf(static_cast<float>(shape.head_dim));
  return a;
}

template <int N>
cudaError_t start(const char* name, void (*kernel)(AttentionArguments), cudaStream_t stream,
                  const AttentionShape& shape, const AttentionArguments& a) {
  return launch(name, kernel,
                dim3(static_cast<unsigned>(shape.batch * shape.heads * a.tiles),
                     static_cast<unsigned>(divide_up<std::int64_t>(a.dim, N * tile))),
                dim3(block_threads), 0, stream, a);
}

}  // namespace

cudaError_t launch_attention(cudaStream_t stream, const AttentionShape& shape, ConstAnyMatrix qkv,
                             AnyMatrix out, float* logsumexp) {
  AttentionArguments a = arguments_of(shape);
  a.qkv = qkv.data;
  a.logsumexp = logsumexp;
  a.to = out.data;
  return with_type(qkv.dtype, [&]<class T>(T) {
    return a.dim <= tile ? start<1>("attention", attention_kernel<T, 1>, stream, shape, a)
                         : start<2>("attention", attention_kernel<T, 2>, stream, shape, a);
  });
}

cudaError_t launch_attention_backward(cudaStream_t stream, const AttentionShape& shape,
                                      ConstAnyMatrix qkv, ConstAnyMatrix out,
                                      const float* logsumexp, ConstAnyMatrix dout, float* dots,
                                      AnyMatrix dqkv) {
  AttentionArguments a = arguments_of(shape);
  a.qkv = qkv.data;
  a.out = out.data;
  a.dout = dout.data;
  a.logsumexp = const_cast<float*>(logsumexp);
  a.dots = dots;
  a.to = dqkv.data;
  const std::int64_t count = shape.rows() * shape.heads;
  return with_type(qkv.dtype, [&]<class T>(T) {
    cudaError_t status =
        launch("attention_dots", attention_dots_kernel<T>,
               dim3(static_cast<unsigned>(divide_up<std::int64_t>(count, block_threads / 32))),
               dim3(block_threads), 0, stream, a, count);
    const bool narrow_heads = a.dim <= tile;
    if (status == cudaSuccess)
      status = narrow_heads
                   ? start<1>("attention_dkv", attention_dkv_kernel<T, 1>, stream, shape, a)
                   : start<2>("attention_dkv", attention_dkv_kernel<T, 2>, stream, shape, a);
    if (status == cudaSuccess)
      status = narrow_heads ? start<1>("attention_dq", attention_dq_kernel<T, 1>, stream, shape, a)
                            : start<2>("attention_dq", attention_dq_kernel<T, 2>, stream, shape, a);
    return status;
  });
}

}  // namespace switchback::models::cuda
