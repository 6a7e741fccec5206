// SPDX-License-Identifier: Apache-2.0
// Device code: quantizes the row of x that each slot (row of a grouped result) reads. The kernels
// are those of quantize_rowwise and of rows with scaled columns, which here find their rows on the
// device.
#include "grouped/cuda/slot_rows.cuh"
#include "quant/cuda/rowwise.cuh"
#include "quant/cuda/rowwise_scaled.cuh"

namespace switchback::grouped::cuda {

namespace {

namespace quant = quant::cuda;

struct RowsOfSlots {
  SlotRows slots;

  template <class T>
  __device__ __forceinline__ const T* find(const quant::RowwiseArguments& a, std::int64_t slot,
                                           bool& exists) const {
    std::int64_t element = 0;
    exists = exists && find_row(slots, slot, element) >= 0;
    return static_cast<const T*>(a.x) + element;
  }
};

struct ScaledArguments {
  quant::ScaledRowsArguments rows;  // its column_scales are those of group 0
  SlotRows slots;
};

// Arguments that describe only the row of this thread, with the scales of the row's group. If the
// slot belongs to no group, `rows` is 0.
template <class T>
__device__ __forceinline__ quant::ScaledRowsArguments row_of_thread(const ScaledArguments& a) {
  const std::int64_t slot =
      a.rows.first_row + static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  std::int64_t element = 0;
  const std::int64_t group = slot < a.rows.rows ? find_row(a.slots, slot, element) : -1;
  quant::ScaledRowsArguments row = a.rows;
  row.rows = 0;
  if (group < 0) return row;
  row.rows = 1;
  row.x = static_cast<const T*>(a.rows.x) + element;
  row.column_scales += group * a.rows.cols;
  row.q += slot * a.rows.q_stride;
  row.absmax += slot;
  return row;
}

using ScaledShape = quant::ScaledRowsShape<512, 1, 4>;

// For rows of a multiple of eight elements at aligned addresses. Lower bound of memory traffic:
// each element is read once and its code written once (f32 5, f16 and bf16 3 bytes). The scales of
// a column, 4 bytes, are read twice for each row, from a cache: neighbouring slots may have
// different groups, so rows do not share them.
template <class T>
__global__ void __launch_bounds__(ScaledShape::threads, 1) scaled_kernel(ScaledArguments a) {
  __shared__ quant::ScaledRowsShared<ScaledShape> shared;
  quant::code_scaled_rows<T>(row_of_thread<T>(a), 0, shared);
}

// For rows of any length and alignment. Lower bound of memory traffic: that of scaled_kernel, and a
// second read of each element from a cache.
template <class T>
__global__ void __launch_bounds__(1024, 1) scaled_twice_kernel(ScaledArguments a) {
  __shared__ unsigned maxima[32];
  quant::code_scaled_row_twice<T, false>(row_of_thread<T>(a), 0, maxima);
}

}  // namespace

cudaError_t launch_quantize(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x, Codes q,
                            float* absmax) {
  return quant::for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    const bool packed = are_packed<T>(slots, x.data, q.cols) && quant::are_packed<T>(q);
    const int pack = packed ? quant::vector_elements<T> : 1;
    return quant::start_rows<T>(
        "grouped_quantize_rowwise", launch,
        {x.data, q.data, absmax, nullptr, q.rows, q.cols / pack, x.stride, q.stride, 0}, packed,
        RowsOfSlots{slots});
  });
}

cudaError_t launch_quantize_scaled(const Launch& launch, const SlotRows& slots, ConstAnyMatrix x,
                                   const float* column_scales, Codes q, float* absmax) {
  return quant::for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    ScaledArguments a = {quant::scaled_rows_of({x.data, x.dtype, q.rows, q.cols, x.stride},
                                               column_scales, {}, q, absmax),
                         slots};
    a.rows.packed = a.rows.packed && are_packed(slots, x.data, q.cols, quant::each);
    const std::int64_t eights = quant::divide_up<std::int64_t>(q.cols, quant::each);
    const bool fits = a.rows.packed && quant::is_multiple(column_scales, 16) &&
                      eights <= ScaledShape::threads * ScaledShape::E;
    const int threads = fits ? ScaledShape::threads : quant::default_threads;
    const int of_row = quant::threads_of_row(eights, fits ? ScaledShape::E : 1, threads);
    const dim3 block = quant::block_of_rows(fits && of_row < 32 ? 32 : of_row, threads);
    const auto kernel = fits ? scaled_kernel<T> : scaled_twice_kernel<T>;
    cudaError_t status = cudaSuccess;
    for (a.rows.first_row = 0; a.rows.first_row < q.rows && status == cudaSuccess;
         a.rows.first_row += quant::most_blocks * block.y)
      status = core::cuda::launch(
          "grouped_quantize_scaled", kernel,
          dim3(quant::grid_of(quant::divide_up<std::int64_t>(q.rows - a.rows.first_row, block.y))),
          block, 0, launch.stream, a);
    return status;
  });
}

}  // namespace switchback::grouped::cuda
