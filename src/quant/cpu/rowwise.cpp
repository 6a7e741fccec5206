// SPDX-License-Identifier: Apache-2.0
// Engine zone: rowwise quantization, alone and with column sums.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/rowwise.cpp"
#include "hwy/foreach_target.h"
//
#include "core/dry_run.hpp"
#include "hwy/cache_control.h"
#include "quant/cpu/columns.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/pieces.hpp"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// The rows to quantize: row(r) points to the elements of row r, and next(r, end) is the first row
// from r on that is to be quantized.
template <class T>
struct RowsOfMatrix {
  ConstAnyMatrix x;
  [[nodiscard]] const T* row(std::int64_t r) const { return HWY_NAMESPACE::row<T>(x, r); }
  [[nodiscard]] std::int64_t next(std::int64_t r, std::int64_t) const { return r; }
};
template <class T>
struct RowsAnywhere {
  const void* const* rows;
  [[nodiscard]] const T* row(std::int64_t r) const { return static_cast<const T*>(rows[r]); }
  [[nodiscard]] std::int64_t next(std::int64_t r, std::int64_t end) const {
    while (r < end && rows[r] == nullptr)
      ++r;
    return r;
  }
};

// Quantizes the rows [begin, end). Each element is read from memory once: while a row is quantized
// from the cache, the absmax of the next one is computed.
template <bool stream, class T, class Rows>
void rowwise_rows(const Rows& rows, MatrixView<std::int8_t> q, float* absmaxes, std::int64_t begin,
                  std::int64_t end) {
  std::int64_t r = rows.next(begin, end);
  if (r >= end) return;
  RunningMax<T> max;
  add_run(max, rows.row(r), q.cols);
  while (r < end) {
    const float absmax = absmax_from_bits(max.result());
    core::store(absmaxes, r, absmax);
    const T* const x = rows.row(r);
    std::int8_t* const codes = row(q, r);
    r = rows.next(r + 1, end);
    const T* const next = r < end ? rows.row(r) : x;
    max = RunningMax<T>();
    code_run<stream>(x, q.cols, Scale::of(absmax), codes, next, max);
  }
}

template <class T, class Rows>
void rowwise_rows(const Rows& rows, MatrixView<std::int8_t> q, float* absmaxes, std::int64_t begin,
                  std::int64_t end, bool stream) {
  if (stream) {
    rowwise_rows<true, T>(rows, q, absmaxes, begin, end);
    hwy::FlushStream();
  } else {
    rowwise_rows<false, T>(rows, q, absmaxes, begin, end);
  }
}

void RowwiseRows(const Request& o, std::int64_t begin, std::int64_t end, bool stream) {
  with_type(o.x.dtype, [&]<class T>(T) HWY_ATTR {
    rowwise_rows<T>(RowsOfMatrix<T>{o.x}, o.q.codes, o.q.absmax.data(), begin, end, stream);
  });
}

void RowwiseGathered(const GatheredRows& o, std::int64_t begin, std::int64_t end, bool stream) {
  with_type(o.dtype, [&]<class T>(T) HWY_ATTR {
    rowwise_rows<T>(RowsAnywhere<T>{o.rows}, o.q, o.absmax, begin, end, stream);
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(RowwiseRows);
HWY_EXPORT(RowwiseGathered);

namespace cpu {

RowwiseKernel rowwise_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(RowwiseRows)[table_index(features)];
}

namespace {

// Quantizes fewer rows than there are threads: all threads share each row.
void rowwise_by_pieces(ContextState& state, const Config& config, const Request& o,
                       std::int64_t elements) {
  const Cut cut(o.x.rows, o.x.cols, elements);
  const auto absmax = absmax_kernel(state.features);
  const auto codes = codes_kernel(state.features);
  core::Workspace::Frame frame(state.workspace);
  auto* const bits = frame.take<std::atomic<std::uint32_t>>(o.x.rows);
  for (std::int64_t r = 0; r < o.x.rows; ++r)
    new (bits + r) std::atomic<std::uint32_t>(0);
  state.threads.for_each(cut.tasks(), [&](std::int64_t task, int) {
    const Cut::Piece piece = cut.piece(task);
    raise(bits[piece.row_begin], absmax(o.x, piece));
  });
  state.threads.for_each(cut.tasks(), [&](std::int64_t task, int) {
    const Cut::Piece piece = cut.piece(task);
    const float scale = absmax_from_bits(bits[piece.row_begin].load(std::memory_order_relaxed));
    if (piece.col_begin == 0) core::store(o.q.absmax.data(), piece.row_begin, scale);
    codes(o.x, o.q.codes, piece, Scale::of(scale), config.stream);
  });
}

}  // namespace

void rowwise(ContextState& state, const Config& config, const Request& o) {
  const std::int64_t elements = task_elements(state, config, o.x.rows, o.x.cols);
  if (o.x.rows < state.threads.count() && o.x.cols > elements)
    return rowwise_by_pieces(state, config, o, elements);
  const auto kernel = rowwise_kernel(state.features);
  const std::int64_t rows = std::max<std::int64_t>(1, elements / o.x.cols);
  state.threads.for_ranges(o.x.rows, rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel(o, begin, end, config.stream);
  });
}

void rowwise_gathered(ContextState& state, const Config& config, const GatheredRows& o) {
  const std::int64_t elements = task_elements(state, config, o.q.rows, o.q.cols);
  const auto kernel = HWY_DISPATCH_TABLE(RowwiseGathered)[table_index(state.features)];
  const std::int64_t rows = std::max<std::int64_t>(1, elements / o.q.cols);
  state.threads.for_ranges(o.q.rows, rows, [&](std::int64_t begin, std::int64_t end, int) {
    kernel(o, begin, end, config.stream);
  });
}

void rowwise_column_sums(ContextState& state, const Config& config, const Request& o) {
  // If there are too few blocks of rows for all threads, sums and codes are two operations, each
  // over all threads.
  if (!sums_go_along(state, o.x.rows)) {
    return core::all_or_nothing(state, [&] {
      column_sums(state, config, o);
      rowwise(state, config, o);
    });
  }
  const auto kernel = rowwise_kernel(state.features);
  with_column_sums(state, o, [&](std::int64_t begin, std::int64_t end, int) {
    kernel(o, begin, end, config.stream);
  });
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
