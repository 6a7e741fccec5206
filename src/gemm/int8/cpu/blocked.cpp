// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cpu/blocked.hpp"

#include <algorithm>

#include "core/assert.hpp"
#include "core/per_worker.hpp"
#include "gemm/int8/cpu/blocked_product.hpp"
#include "gemm/int8/cpu/epilogue.hpp"
#include "hwy/cache_control.h"

namespace switchback::gemm_int8 {

namespace {

// Prepares the start values of the int32 sums of all rows, and a copy of A if the kernel needs one.
void prepare_a(BlockedProduct& product, core::Workspace::Frame& frame, core::Threads& threads) {
  const GemmProblem& p = product.p;
  const MicroKernel& kernel = product.kernel;
  const RowPreparation rows(kernel, p, product.panels != nullptr);
  const std::int64_t units = ceil_div(p.m, kernel.rows_together);
  const std::int64_t padded_m = units * kernel.rows_together;
  auto* start = frame.take<std::int32_t>(padded_m);
  auto* copy = rows.copy_bytes > 0 ? frame.take<std::int8_t>(padded_m * rows.copy_bytes) : nullptr;
  const std::int64_t grain = preparation_grain(kernel, p.k);
  threads.for_ranges(units, grain, [&](std::int64_t begin, std::int64_t end, int) {
    rows.prepare(kernel, p, product.o.a, begin * kernel.rows_together,
                 std::min(end * kernel.rows_together, p.m), copy, start);
  });
  product.use(rows, copy, start);
}

}  // namespace

std::size_t blocked_packed_bytes(const MicroKernel& kernel, std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(round_up(n, kernel.cols)) *
             static_cast<std::size_t>(whole_groups(kernel, k)) +
         static_cast<std::size_t>(kernel.overread_bytes);
}

namespace {

// Where the codes of a row of B[·,k] are in the packed strips, from this code on: an offset in
// bytes.
std::int64_t place_in_strips(const MicroKernel& kernel, std::int64_t k, std::int64_t row,
                             std::int64_t code) {
  const std::int64_t strip = row / kernel.strip_cols;
  return kernel.strip_cols * (strip * whole_groups(kernel, k) + code) +
         row % kernel.strip_cols * kernel.group;
}

}  // namespace

void blocked_pack_rows(const MicroKernel& kernel, std::int64_t k, const core::CodeBlock& block,
                       void* out, Stores stores) {
  // Pieces of this many codes stay in the first-level cache while the rows of a panel are packed.
  constexpr std::int64_t piece = 512;
  const MatrixView<const std::int8_t>& b = block.codes;
  auto* const strips = static_cast<std::int8_t*>(out);
  const bool streams = stores == Stores::streaming && kernel.stream_rows != nullptr;
  const MicroKernel::Pack pack = streams ? kernel.stream_rows : kernel.pack_rows;
  for (std::int64_t code = 0; code < b.cols; code += piece)
    for (std::int64_t row = 0; row < b.rows; row += MicroKernel::pack_width)
      pack(b.data + row * b.stride + code, b.stride,
           static_cast<int>(std::min<std::int64_t>(MicroKernel::pack_width, b.rows - row)),
           std::min(piece, b.cols - code),
           strips + place_in_strips(kernel, k, block.row + row, block.col + code));
  if (streams) hwy::FlushStream();
}

void blocked_pack_columns(const MicroKernel& kernel, std::int64_t k, const core::CodeBlock& block,
                          void* out, Stores stores) {
  const MatrixView<const std::int8_t>& b = block.codes;
  const auto place = [&](std::int64_t col, std::int64_t row) {
    return static_cast<std::int8_t*>(out) +
           place_in_strips(kernel, k, block.col + col, block.row + row);
  };
  const auto pack = [&](std::int64_t col, std::int64_t row) {
    kernel.pack_columns(
        b.data + row * b.stride + col, b.stride,
        static_cast<int>(std::min<std::int64_t>(MicroKernel::pack_width, b.cols - col)),
        b.rows - row, place(col, row));
  };
  std::int64_t col = 0;
  if (stores == Stores::streaming && kernel.stream_columns != nullptr &&
      block.col % kernel.strip_cols == 0) {
    constexpr std::int64_t width = MicroKernel::stream_width;
    const std::int64_t strip_bytes = kernel.strip_cols * whole_groups(kernel, k);
    const std::int64_t whole = b.rows & -std::int64_t{kernel.group};
    for (; col + width <= b.cols; col += width) {
      kernel.stream_columns(b.data + col, b.stride, whole, place(col, 0), strip_bytes);
      if (whole == b.rows) continue;
      for (std::int64_t c = col; c < col + width; c += MicroKernel::pack_width)
        pack(c, whole);
    }
    hwy::FlushStream();
  }
  for (; col < b.cols; col += MicroKernel::pack_width)
    pack(col, 0);
}

void blocked_pack(const MicroKernel& kernel, core::Threads& threads,
                  MatrixView<const std::int8_t> b, void* out) {
  if (b.cols == 0) return;
  threads.for_ranges(b.rows, kernel.cols, [&](std::int64_t begin, std::int64_t end, int) {
    blocked_pack_rows(
        kernel, b.cols,
        {.row = begin, .codes = {b.data + begin * b.stride, end - begin, b.cols, b.stride}}, out,
        Stores::cached);
  });
}

namespace {

// Restores the codes of B's rows [row, row + rows) and codes [code, code + codes) from the strips,
// as the caller gave them. `code` is a multiple of a group.
void unpack_block(const MicroKernel& kernel, std::int64_t k, const void* strips, std::int64_t row,
                  std::int64_t rows, std::int64_t code, std::int64_t codes, std::int8_t* out,
                  std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < codes; c += kernel.group) {
      const std::int8_t* group =
          static_cast<const std::int8_t*>(strips) + place_in_strips(kernel, k, row + r, code + c);
      const std::int64_t count = std::min<std::int64_t>(kernel.group, codes - c);
      for (std::int64_t i = 0; i < count; ++i)
        out[r * stride + c + i] = static_cast<std::int8_t>(group[i] ^ kernel.stored_xor);
    }
}

}  // namespace

void blocked_unpack(const MicroKernel& kernel, core::Threads& threads, const void* from,
                    MatrixView<std::int8_t> b) {
  threads.for_ranges(b.rows, kernel.cols, [&](std::int64_t begin, std::int64_t end, int) {
    unpack_block(kernel, b.cols, from, begin, end - begin, 0, b.cols, b.data + begin * b.stride,
                 b.stride);
  });
}

void blocked_pack_transposed(const MicroKernel& kernel, core::Threads& threads, std::int64_t n,
                             std::int64_t k, const void* from, void* out) {
  if (n == 0 || k == 0) return;
  // A task unpacks some columns of B. They are rows of the transpose, so tasks write different
  // panels.
  constexpr std::int64_t rows_of_block = 64;
  threads.for_ranges(k, kernel.cols, [&](std::int64_t begin, std::int64_t end, int) {
    alignas(64) std::int8_t codes[rows_of_block * MicroKernel::max_cols];
    for (std::int64_t col = begin; col < end; col += MicroKernel::max_cols) {
      const std::int64_t cols = std::min<std::int64_t>(MicroKernel::max_cols, end - col);
      for (std::int64_t row = 0; row < n; row += rows_of_block) {
        const std::int64_t rows = std::min(rows_of_block, n - row);
        unpack_block(kernel, k, from, row, rows, col, cols, codes, MicroKernel::max_cols);
        blocked_pack_columns(
            kernel, n,
            {.row = row, .col = col, .codes = {codes, rows, cols, MicroKernel::max_cols}}, out,
            Stores::cached);
      }
    }
  });
}

void blocked_run(const MicroKernel& kernel, ContextState& state, const GemmProblem& p,
                 const GemmConfig& config, const GemmOperands& o) {
  SWITCHBACK_ASSERT(p.m > 0 && p.n > 0 && p.k > 0);
  SWITCHBACK_ASSERT((p.packed_for == EngineId::none) == (o.packed_b == nullptr));
  core::Workspace::Frame frame(state.workspace);
  const std::int64_t mc = block_size(config.mc, p.m, kernel.rows);
  const std::int64_t nc = block_size(config.nc, p.n, kernel.cols);
  BlockedProduct product{.kernel = kernel,
                         .p = p,
                         .o = o,
                         .kc = block_size(config.kc, p.k, kernel.group),
                         .padded_k = whole_groups(kernel, p.k)};
  product.streams =
      streams_output(kernel.streams, state.threads, p.output, p.m, p.n, p.stride_d, o.d);
  std::int8_t* packed_here = nullptr;
  if (o.packed_b != nullptr) {
    product.panels = static_cast<const std::int8_t*>(o.packed_b);
  } else if (config.weights == Weights::packed) {
    packed_here =
        frame.take<std::int8_t>(static_cast<std::int64_t>(blocked_packed_bytes(kernel, p.n, p.k)));
    product.panels = packed_here;
  }
  const std::int64_t row_blocks = ceil_div(p.m, mc);
  const std::int64_t tasks = row_blocks * ceil_div(p.n, nc);
  // Every worker has memory for sums: the last worker may run a task even if there are few tasks.
  const core::PerWorker<std::int32_t> sums(frame, state.threads.count(), product.sums_size(mc, nc));
  product.scales = epilogue_scales(frame, p, o);
  prepare_a(product, frame, state.threads);
  // All memory is taken: nothing can fail after this point.
  if (packed_here != nullptr)
    blocked_pack(kernel, state.threads, {o.b, p.n, p.k, p.stride_b}, packed_here);

  // Consecutive tasks share columns: a worker reads a block of B for all rows before the next
  // block.
  for_tasks(state.threads, config.threads, tasks, [&](std::int64_t task, int worker) {
    const std::int64_t row = task % row_blocks * mc;
    const std::int64_t col = task / row_blocks * nc;
    const std::int64_t next_task = std::min(task + 1, tasks - 1);
    product.block({row, std::min(row + mc, p.m), col, std::min(col + nc, p.n)},
                  next_task / row_blocks * nc, sums.of(worker));
  });
}

}  // namespace switchback::gemm_int8
