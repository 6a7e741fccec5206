// SPDX-License-Identifier: Apache-2.0
// Device code: quantizes the rows that slots read. These are the kernels of quantize_rowwise, which
// here find their rows on the device.
#include "grouped/cuda/slot_rows.cuh"
#include "quant/cuda/rowwise.cuh"

namespace switchback::grouped::cuda {

namespace {

namespace quant = quant::cuda;

struct RowsOfSlots {
  SlotRows slots;

  template <class T>
  __device__ __forceinline__ const T* find(const quant::RowwiseArguments& a, std::int64_t slot,
                                           bool& exists) const {
    std::int64_t element = 0;
    exists = exists && find_row(slots, slot, element);
    return static_cast<const T*>(a.x) + element;
  }
};

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

}  // namespace switchback::grouped::cuda
