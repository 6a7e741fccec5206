// SPDX-License-Identifier: Apache-2.0
// Test support: runs every quantize operation on one input.
#pragma once

#include <string>

#include "quant/outputs.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {

/// Runs every quantize operation that reads floats.
template <class T>
void run_every_op(Context& context, const Matrix<T>& x, Outputs& out) {
  const std::int64_t rows = x.rows();
  const std::int64_t cols = x.cols();
  const ConstAnyMatrix input = x.view();
  quantize_rowwise(context, input, out.codes("rowwise", rows, cols),
                   out.floats("absmax of rowwise", rows));
  for (const bool accumulate : {false, true}) {
    const std::string how = accumulate ? ", accumulated" : "";
    quantize_rowwise_column_sums(context, input, out.codes("rowwise with sums" + how, rows, cols),
                                 out.floats("absmax with sums" + how, rows),
                                 out.floats("sums with rowwise" + how, cols), accumulate);
    column_sums(context, input, out.floats("column sums" + how, cols), accumulate);
  }
  quantize_columnwise_transpose(context, input, out.codes("columnwise", cols, rows),
                                out.floats("absmax of columnwise", cols));
  quantize_global(context, input, out.codes("global", rows, cols),
                  out.floats("absmax of global", 1));
  quantize_global_transpose(context, input, out.codes("global transposed", cols, rows),
                            out.floats("absmax of global transposed", 1));
  quantize_rowwise_and_columnwise_transpose(
      context, input, out.codes("rowwise of both", rows, cols),
      out.floats("absmax of rowwise of both", rows), out.codes("columnwise of both", cols, rows),
      out.floats("absmax of columnwise of both", cols));
  quantize_global_and_transpose(context, input, out.codes("global of both", rows, cols),
                                out.codes("global transposed of both", cols, rows),
                                out.floats("absmax of global of both", 1));
  for (const std::int64_t block_rows : {128, 256}) {
    if (block_rows > 128 && rows <= 128) continue;  // up to 128 rows are one block in both cases
    const std::string of_blocks = " of blocks of " + std::to_string(block_rows);
    const std::int64_t padded = whole_block_rows(rows, block_rows);
    const std::int64_t scales = padded / block_rows * cols;
    quantize_blockwise_transpose(context, input, block_rows,
                                 out.codes("codes" + of_blocks, cols, padded),
                                 out.floats("absmax" + of_blocks, scales));
    const auto sums = out.floats("sums with codes" + of_blocks, block_rows == 128 ? cols : 0);
    quantize_rowwise_and_blockwise_transpose(
        context, input, out.codes("rowwise with codes" + of_blocks, rows, cols),
        out.floats("absmax of rowwise with codes" + of_blocks, rows), block_rows,
        out.codes("codes with rowwise" + of_blocks, cols, padded),
        out.floats("absmax with rowwise" + of_blocks, scales), sums, true);
  }
  cast_to_int8(context, input, out.codes("cast", rows, cols));
}

}  // namespace switchback::test
