// SPDX-License-Identifier: Apache-2.0
// Engine zone: the vector engine (Google Highway). Each kernel family is one function, and all of
// them are parallel. Matrices are not empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/context_state.hpp"
#include "quant/config.hpp"
#include "quant/cpu/scale.hpp"
#include "quant/dispatch.hpp"
#include "quant/request.hpp"

namespace switchback::quant::cpu {

/// Why the engine cannot run on a CPU with these features; empty if it can.
std::string refusal(const core::CpuFeatures& features);

void rowwise(ContextState& state, const Config& config, const Request& o);
void rowwise_gathered(ContextState& state, const Config& config, const GatheredRows& o);
void rowwise_column_sums(ContextState& state, const Config& config, const Request& o);
void column_sums(ContextState& state, const Config& config, const Request& o);
void global(ContextState& state, const Config& config, const Request& o);
/// Computes columnwise_transpose, global_transpose and the operations that write both layouts.
void transpose(ContextState& state, const Config& config, const Request& o);
/// Computes blockwise_transpose, rowwise_and_blockwise_transpose and blockwise_stochastic.
void blockwise(ContextState& state, const Config& config, const Request& o);
void dequantize_rowwise(ContextState& state, const Config& config, const Request& o);
void cast_to_int8(ContextState& state, const Config& config, const Request& o);
/// Computes activation_forward, or activation_backward if g is given.
void activation(ContextState& state, const Config& config, const Request& o);
/// Computes what activation() computes, and quantizes the result, which may be rotated first.
void activation_quantize(ContextState& state, const Config& config, const Request& o);

void rotate(ContextState& state, const Config& config, const Request& o);
/// Rotates x, then quantizes each row by its absmax after the rotation.
void rotate_quantize(ContextState& state, const Config& config, const Request& o);
/// Multiplies each column by its scale, then quantizes the rows; with or without column sums.
void rowwise_scaled(ContextState& state, const Config& config, const Request& o);
void rowwise_stochastic(ContextState& state, const Config& config, const Request& o);

/// The arguments of a kernel that quantizes columns with stochastic rounding and stores the codes
/// transposed: q_t[cols,rows] of x[rows,cols]. x begins at (row, col) of the whole matrix; `col` is
/// a multiple of columns_of_counter. `divisor` is that of ColumnScales.
struct StochasticColumns {
  ConstAnyMatrix x;
  std::int64_t row, col;
  const float* divisor;
  MatrixView<std::int8_t> q_t;
};
using StochasticColumnsKernel = void (*)(const StochasticColumns& columns,
                                         const StochasticRounding& rounding);
StochasticColumnsKernel stochastic_columns_kernel(const core::CpuFeatures& features);

/// The number of floats of scratch memory in which one row is multiplied by the scales of columns:
/// a multiple of 64, so that kernels can read whole quads of vectors.
constexpr std::int64_t scaled_row_scratch(std::int64_t cols) {
  return (cols + 63) / 64 * 64;
}

/// Computes the scale of the whole matrix, with all threads.
Scale global_scale(ContextState& state, const Config& config, ConstAnyMatrix x);
/// Fills a matrix, which may have no data, with zeros.
void fill_zero(ContextState& state, MatrixView<std::int8_t> q);

/// Divides a matrix into tasks: pieces of long rows, or several short rows.
struct Cut {
  std::int64_t rows, cols;            ///< of the whole matrix
  std::int64_t task_rows, task_cols;  ///< size of a task, at most
  std::int64_t across;                ///< number of tasks side by side

  Cut(std::int64_t rows_, std::int64_t cols_, std::int64_t task_elements)
      : rows(rows_),
        cols(cols_),
        task_rows(std::max<std::int64_t>(1, task_elements / cols_)),
        // A multiple of 64 keeps every piece at the alignment of its row.
        task_cols(cols_ <= task_elements ? cols_ : (task_elements + 63) / 64 * 64),
        across((cols_ + task_cols - 1) / task_cols) {}

  [[nodiscard]] std::int64_t tasks() const { return (rows + task_rows - 1) / task_rows * across; }

  struct Piece {
    std::int64_t row_begin, row_end, col_begin, col_end;
  };
  [[nodiscard]] Piece piece(std::int64_t task) const {
    const std::int64_t r = task / across * task_rows;
    const std::int64_t c = task % across * task_cols;
    return {r, std::min(r + task_rows, rows), c, std::min(c + task_cols, cols)};
  }
};

/// The number of elements of a task: every thread gets a task, and a task is not larger than the
/// config's.
inline std::int64_t task_elements(const ContextState& state, const Config& config,
                                  std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t worth_a_thread = 8192;
  const std::int64_t fair = (rows * cols + state.threads.count() - 1) / state.threads.count();
  return std::clamp(fair, worth_a_thread, std::max(worth_a_thread, config.task_elements));
}

}  // namespace switchback::quant::cpu
