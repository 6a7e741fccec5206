// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/elementwise.hpp"

#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"

namespace switchback::core::cuda {

void convert_matrix(Runtime& runtime, ConstAnyMatrix from, AnyMatrix to, bool accumulate) {
  const ConvertArguments arguments = {from.data,   to.data,   to.rows,   to.cols,
                                      from.stride, to.stride, accumulate};
  const DType from_type = from.data == nullptr ? DType::f32 : from.dtype;
  check(launch_convert(from_type, to.dtype, arguments, runtime.cuda_stream()), "kernel convert",
        "{}", ConstAnyMatrix(to));
}

}  // namespace switchback::core::cuda
