// SPDX-License-Identifier: Apache-2.0
// Engine zone: column sums and column maxima.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/column_sums.cpp"
#include "hwy/foreach_target.h"
//
#include "quant/cpu/columns.hpp"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

// Adds rows to the column sums: sums[c] += x[0][c], then x[1][c], …: in order, but with one load
// and store of the sum for all rows.
template <int rows, class T>
HWY_INLINE void add_rows(const T* x, std::int64_t stride, std::int64_t cols, float* sums) {
  const F32 d;
  std::int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    VF sum = hn::LoadU(d, sums + c);
    for (int r = 0; r < rows; ++r)
      sum = hn::Add(sum, widen(x + r * stride + c));
    hn::StoreU(sum, d, sums + c);
  }
  for (; c < cols; ++c)
    for (int r = 0; r < rows; ++r)
      sums[c] += static_cast<float>(core::load(x, r * stride + c));
}

void AddPiece(const ConstAnyMatrix& x, const cpu::Cut::Piece& piece, float* sums) {
  with_type(x.dtype, [&]<class T>(T) HWY_ATTR {
    const std::int64_t cols = piece.col_end - piece.col_begin;
    std::int64_t r = piece.row_begin;
    for (; r + 8 <= piece.row_end; r += 8)
      add_rows<8>(row<T>(x, r, piece.col_begin), x.stride, cols, sums);
    for (; r < piece.row_end; ++r)
      add_rows<1>(row<T>(x, r, piece.col_begin), x.stride, cols, sums);
  });
}

template <int rows, class T>
HWY_INLINE void raise_rows(const T* x, std::int64_t stride, std::int64_t cols,
                           Bits<T>* magnitudes) {
  using M = Magnitudes<T>;
  const typename M::D d;
  std::int64_t c = 0;
  for (; c + M::size <= cols; c += M::size) {
    auto max = hn::LoadU(d, magnitudes + c);
    for (int r = 0; r < rows; ++r)
      max = hn::Max(max, M::load(x + r * stride + c));
    hn::StoreU(max, d, magnitudes + c);
  }
  for (; c < cols; ++c)
    for (int r = 0; r < rows; ++r) {
      const auto bits = std::bit_cast<Bits<T>>(core::load(x, r * stride + c));
      magnitudes[c] = std::max<Bits<T>>(magnitudes[c], bits & hwy::LimitsMax<Bits<T>>());
    }
}

void RaisePiece(const ConstAnyMatrix& x, const cpu::Cut::Piece& piece, void* magnitudes) {
  with_type(x.dtype, [&]<class T>(T) HWY_ATTR {
    auto* const bits = static_cast<Bits<T>*>(magnitudes);
    const std::int64_t cols = piece.col_end - piece.col_begin;
    std::int64_t r = piece.row_begin;
    for (; r + 8 <= piece.row_end; r += 8)
      raise_rows<8>(row<T>(x, r, piece.col_begin), x.stride, cols, bits);
    for (; r < piece.row_end; ++r)
      raise_rows<1>(row<T>(x, r, piece.col_begin), x.stride, cols, bits);
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(AddPiece);
HWY_EXPORT(RaisePiece);

namespace cpu {

AddKernel add_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(AddPiece)[table_index(features)];
}
RaiseKernel raise_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(RaisePiece)[table_index(features)];
}

void finish_column_sums(ContextState& state, const float* sums, std::int64_t blocks,
                        const Request& o) {
  constexpr std::int64_t columns = 2048;
  const std::int64_t cols = o.x.cols;
  state.threads.for_ranges(cols, columns, [&](std::int64_t begin, std::int64_t end, int) {
    float total[columns] = {};
    for (std::int64_t b = 0; b < blocks; ++b)
      for (std::int64_t c = begin; c < end; ++c)
        total[c - begin] += sums[b * cols + c];
    for (std::int64_t c = begin; c < end; ++c) {
      const float sum = total[c - begin];
      core::store(o.column_sums.data(), c,
                  canonical(o.accumulate ? core::load(o.column_sums.data(), c) + sum : sum));
    }
  });
}

void column_sums(ContextState& state, const Config& config, const Request& o) {
  static_cast<void>(config);
  const std::int64_t blocks = sum_blocks(o.x.rows);
  core::Workspace::Frame frame(state.workspace);
  float* const sums = frame.take<float>(blocks * o.x.cols);
  const auto add = add_kernel(state.features);
  // Sums of this many columns stay in the first-level cache.
  constexpr std::int64_t columns = 2048;
  const std::int64_t across = (o.x.cols + columns - 1) / columns;
  state.threads.for_each(blocks * across, [&](std::int64_t task, int) {
    const std::int64_t r = task / across * column_sum_block_rows;
    const std::int64_t c = task % across * columns;
    const Cut::Piece piece = {r, std::min(r + column_sum_block_rows, o.x.rows), c,
                              std::min(c + columns, o.x.cols)};
    float* const block = sums + task / across * o.x.cols + c;
    std::fill(block, block + (piece.col_end - c), 0.0f);
    add(o.x, piece, block);
  });
  finish_column_sums(state, sums, blocks, o);
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
