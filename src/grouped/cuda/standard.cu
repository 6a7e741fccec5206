// SPDX-License-Identifier: Apache-2.0
// Device code: the floating-point products of groups, without tensor cores. A block computes 64
// columns by 64 rows of a result (16 rows if groups are small). It reads 16 elements of the inner
// dimension at a time into shared memory as f32. Each sum is one chain of f32 fused multiply-adds
// in the order of the inner dimension, so its bits depend only on its own group.
#include "core/cuda/groups.cuh"
#include "core/cuda/launch.cuh"
#include "gemm/int8/cuda/dequantize.cuh"
#include "grouped/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::grouped::cuda {

namespace {

namespace quant = quant::cuda;
using core::cuda::divide_up;
using core::cuda::divided;
using core::cuda::first_slot;
using core::cuda::load_element;
using core::cuda::narrow;
using core::cuda::report_groups;
using core::cuda::row_block;
using core::cuda::row_blocks;
using core::cuda::RowBlock;
using core::cuda::rows_of;
using core::cuda::store_element;
using core::cuda::widen;

constexpr int side = 16;  // threads of a block in each of two directions
constexpr int threads = side * side;
constexpr int columns = 4 * side;  // columns of a tile
constexpr int depth = 16;          // inner elements that shared memory holds

struct StandardArguments {
  GroupArrays groups;
  const void* a;
  const void* b;
  void* d;
  const void* bias;  // matrix [groups, n] or null
  DType bias_type;
  bool accumulate;
  std::int64_t a_stride, b_stride, d_stride, bias_stride;
  std::int64_t b_step;  // elements from a group's matrix to the next group's
  std::int64_t m;       // only for dW: rows of each group's dW
  std::int64_t n;
  std::int64_t k;  // inner dimension; for dW it is the group's number of rows instead
  std::int64_t tiles, across;
};

// An operand of a product, from a tile's first row on. Element l of row r is at r · stride + l if
// the elements of the inner dimension are consecutive (`together`), else at l · stride + r. Rows
// from `rows` on are zeros.
template <class T, bool together>
struct Operand {
  const T* data;
  std::int64_t rows;
  std::int64_t stride;

  // Loads elements [begin, begin + depth) of the inner dimension; those from `inner` on are zeros.
  template <int R>
  __device__ __forceinline__ void load(float (&to)[depth][R + 1], std::int64_t begin,
                                       std::int64_t inner) const {
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < R * depth; i += threads) {
      const int r = together ? i / depth : i % R;
      const int l = together ? i % depth : i / R;
      const std::int64_t at = together ? r * stride + begin + l : (begin + l) * stride + r;
      to[l][r] = r < rows && begin + l < inner ? widen(load_element(data + at)) : 0.0f;
    }
  }
};

// Multiplies two operands. Thread (x, y) adds the product for row y + 16·i and column x + 16·j of
// the tile to sums[i][j].
template <int I, class A, class B>
__device__ __forceinline__ void add_products(float (&left)[depth][I * side + 1],
                                             float (&right)[depth][columns + 1], const A& a,
                                             const B& b, std::int64_t inner, float (&sums)[I][4]) {
  const int x = static_cast<int>(threadIdx.x) % side;
  const int y = static_cast<int>(threadIdx.x) / side;
  for (std::int64_t begin = 0; begin < inner; begin += depth) {
    a.template load<I * side>(left, begin, inner);
    b.template load<columns>(right, begin, inner);
    __syncthreads();
#pragma unroll
    for (int l = 0; l < depth; ++l) {
      float of_a[I];
      float of_b[4];
#pragma unroll
      for (int i = 0; i < I; ++i)
        of_a[i] = left[l][y + i * side];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        of_b[j] = right[l][x + j * side];
#pragma unroll
      for (int i = 0; i < I; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          sums[i][j] = __fmaf_rn(of_a[i], of_b[j], sums[i][j]);
    }
    __syncthreads();
  }
}

// Stores d = round(sum + bias (+ d)), each step in f32. `d` and `bias` begin at the tile.
template <class Out, int I>
__device__ __forceinline__ void store_sums(const StandardArguments& p, Out* d, std::int64_t bias,
                                           std::int64_t rows, std::int64_t cols,
                                           const float (&sums)[I][4]) {
  const int x = static_cast<int>(threadIdx.x) % side;
  const int y = static_cast<int>(threadIdx.x) / side;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int col = x + j * side;
    if (col >= cols) continue;
    float of_column = 0.0f;
    if (p.bias != nullptr) of_column = products::cuda::load_float(p.bias, p.bias_type, bias + col);
#pragma unroll
    for (int i = 0; i < I; ++i) {
      const int row = y + i * side;
      if (row >= rows) continue;
      Out* const to = d + row * p.d_stride + col;
      float sum = sums[i][j];
      if (p.bias != nullptr) sum = __fadd_rn(sum, of_column);
      if (p.accumulate) sum = __fadd_rn(sum, widen(load_element(to)));
      store_element(to, narrow<Out>(sum));
    }
  }
}

// Computes Y or dX: rows of a group times the group's matrix, which is [n,k] for Y and [k,n] for
// dX. 8.4 KiB of shared memory with I = 4, 5.3 with I = 1. The launch bounds ask for three blocks a
// multiprocessor, because without a number ptxas aims at four on 10.0, and spills.
template <class T, class Out, bool is_y, int I>
__global__ void __launch_bounds__(threads, 3) rows_kernel(StandardArguments p) {
  __shared__ float left[depth][I * side + 1];
  __shared__ float right[depth][columns + 1];
  for (std::int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    const std::int64_t down = divided(tile, p.across);
    const std::int64_t col0 = (tile - down * p.across) * columns;
    const RowBlock block = row_block<I * side>(p.groups, down);
    if (block.rows == 0) continue;
    const Operand<T, true> a = {static_cast<const T*>(p.a) + block.slot * p.a_stride, block.rows,
                                p.a_stride};
    const T* const matrix = static_cast<const T*>(p.b) + block.group * p.b_step;
    const Operand<T, is_y> b = {matrix + (is_y ? col0 * p.b_stride : col0), p.n - col0, p.b_stride};
    float sums[I][4] = {};
    add_products<I>(left, right, a, b, p.k, sums);
    store_sums(p, static_cast<Out*>(p.d) + block.slot * p.d_stride + col0,
               block.group * p.bias_stride + col0, block.rows, p.n - col0, sums);
  }
}

// Computes tiles of the groups' dW. Each sum runs over all rows of the group, which may be none.
template <class T, class Out>
__global__ void __launch_bounds__(threads, 3) weights_kernel(StandardArguments p) {
  __shared__ float left[depth][columns + 1];
  __shared__ float right[depth][columns + 1];
  const std::int64_t down = divide_up<std::int64_t>(p.m, columns);
  for (std::int64_t tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    // The tile's row of tiles, counted over all groups.
    const std::int64_t above = divided(tile, p.across);
    const std::int64_t col0 = (tile - above * p.across) * columns;
    const std::int64_t group = divided(above, down);
    const std::int64_t row0 = (above - group * down) * columns;
    const std::int64_t slot = first_slot(p.groups, group);
    const Operand<T, false> a = {static_cast<const T*>(p.a) + slot * p.a_stride + row0, p.m - row0,
                                 p.a_stride};
    const Operand<T, false> b = {static_cast<const T*>(p.b) + slot * p.b_stride + col0, p.n - col0,
                                 p.b_stride};
    float sums[4][4] = {};
    add_products<4>(left, right, a, b, rows_of(p.groups, group, slot), sums);
    store_sums(p, static_cast<Out*>(p.d) + (group * p.m + row0) * p.d_stride + col0, 0, p.m - row0,
               p.n - col0, sums);
  }
}

// Reports invalid groups. A separate kernel, because products have no registers left for it.
__global__ void __launch_bounds__(threads) report_kernel(GroupArrays groups) {
  report_groups(groups);
}

template <class T, class Out>
cudaError_t start(const Launch& launch, StandardArguments p, bool is_dw, bool is_y) {
  p.across = divide_up<std::int64_t>(p.n, columns);
  const auto with = [&](auto kernel, std::int64_t down) {
    p.tiles = down * p.across;
    return core::cuda::launch("grouped_standard", kernel, dim3(quant::grid_of(p.tiles)),
                              dim3(threads), 0, launch.stream, p);
  };
  if (const cudaError_t status = core::cuda::launch("report_groups", report_kernel, dim3(1),
                                                    dim3(threads), 0, launch.stream, p.groups);
      status != cudaSuccess)
    return status;
  if (is_dw)
    return with(weights_kernel<T, Out>, p.groups.count * divide_up<std::int64_t>(p.m, columns));
  // In groups of few rows, tiles of 64 rows would multiply mostly zeros.
  if (p.groups.slots <= side * p.groups.count) {
    const std::int64_t down = row_blocks(p.groups, side);
    return is_y ? with(rows_kernel<T, Out, true, 1>, down)
                : with(rows_kernel<T, Out, false, 1>, down);
  }
  const std::int64_t down = row_blocks(p.groups, 4 * side);
  return is_y ? with(rows_kernel<T, Out, true, 4>, down)
              : with(rows_kernel<T, Out, false, 4>, down);
}

}  // namespace

cudaError_t launch_standard(const Launch& launch, const GroupArrays& groups,
                            const StandardProduct& product) {
  StandardArguments p{};
  p.groups = groups;
  p.a = product.a.data;
  p.b = product.b.data;
  p.d = product.d.data;
  p.bias = product.bias.data;
  p.bias_type = product.bias.dtype;
  p.accumulate = product.accumulate;
  p.a_stride = product.a.stride;
  p.b_stride = product.b.stride;
  p.d_stride = product.d.stride;
  p.bias_stride = product.bias.stride;
  p.m = p.k = product.a.cols;
  p.n = product.d.cols;
  p.b_step = product.b_column_stride > 0 ? product.b_column_stride
                                         : (product.transpose_b ? p.n : p.k) * p.b_stride;
  return quant::for_type(product.a.dtype, [&](auto element) {
    using T = decltype(element);
    return product.d.dtype == product.a.dtype
               ? start<T, T>(launch, p, product.transpose_a, product.transpose_b)
               : start<T, float>(launch, p, product.transpose_a, product.transpose_b);
  });
}

}  // namespace switchback::grouped::cuda
