// SPDX-License-Identifier: Apache-2.0
// Engine zone: absmax of any piece of a matrix, and its codes with one scale.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant/cpu/global.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "quant/cpu/engine.hpp"
#include "quant/cpu/pieces.hpp"
#include "quant/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::quant::HWY_NAMESPACE {

std::uint32_t PieceAbsmax(const ConstAnyMatrix& x, const cpu::Cut::Piece& piece) {
  return with_type(x.dtype, [&]<class T>(T) HWY_ATTR {
    RunningMax<T> max;
    for (std::int64_t r = piece.row_begin; r < piece.row_end; ++r)
      add_run(max, row<T>(x, r, piece.col_begin), piece.col_end - piece.col_begin);
    return max.result();
  });
}

template <bool stream, class T>
void piece_codes(const ConstAnyMatrix& x, const MatrixView<std::int8_t>& q,
                 const cpu::Cut::Piece& piece, const Scale& scale) {
  NoMax none;
  for (std::int64_t r = piece.row_begin; r < piece.row_end; ++r) {
    const T* const from = row<T>(x, r, piece.col_begin);
    code_run<stream>(from, piece.col_end - piece.col_begin, scale, row(q, r, piece.col_begin), from,
                     none);
  }
}

void PieceCodes(const ConstAnyMatrix& x, const MatrixView<std::int8_t>& q,
                const cpu::Cut::Piece& piece, const Scale& scale, bool stream) {
  with_type(x.dtype, [&]<class T>(T) HWY_ATTR {
    if (stream) {
      piece_codes<true, T>(x, q, piece, scale);
      hwy::FlushStream();
    } else {
      piece_codes<false, T>(x, q, piece, scale);
    }
  });
}

}  // namespace switchback::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::quant {

HWY_EXPORT(PieceAbsmax);
HWY_EXPORT(PieceCodes);

namespace cpu {

AbsmaxKernel absmax_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(PieceAbsmax)[table_index(features)];
}
CodesKernel codes_kernel(const core::CpuFeatures& features) {
  return HWY_DISPATCH_TABLE(PieceCodes)[table_index(features)];
}

std::string refusal(const core::CpuFeatures& features) {
#if HWY_ARCH_X86
  if (!features.sse4) return "needs SSE4.2 and SSSE3";
#elif HWY_ARCH_ARM_A64
  if (!features.neon) return "the Context's isa is capped below neon";
#else
  static_cast<void>(features);
#endif
  return "";
}

Scale global_scale(ContextState& state, const Config& config, ConstAnyMatrix x) {
  const Cut cut(x.rows, x.cols, task_elements(state, config, x.rows, x.cols));
  const auto kernel = absmax_kernel(state.features);
  std::atomic<std::uint32_t> bits{0};
  state.threads.for_each(cut.tasks(),
                         [&](std::int64_t task, int) { raise(bits, kernel(x, cut.piece(task))); });
  Scale scale;  // computed inside for_each, because the calling thread may flush subnormals to zero
  state.threads.for_each(
      1, [&](std::int64_t, int) { scale = Scale::of(absmax_from_bits(bits.load())); });
  return scale;
}

void fill_zero(ContextState& state, MatrixView<std::int8_t> q) {
  if (q.data == nullptr) return;
  state.threads.for_ranges(q.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r)
      std::memset(q.data + r * q.stride, 0, static_cast<std::size_t>(q.cols));
  });
}

void global(ContextState& state, const Config& config, const Request& o) {
  ConstAnyMatrix x = o.x;
  MatrixView<std::int8_t> q = o.q.codes;
  // One long row has fewer ends with partial vectors.
  if (x.stride == x.cols && q.stride == q.cols) {
    x = {x.data, x.dtype, 1, x.rows * x.cols, x.rows * x.cols};
    q = {q.data, 1, x.cols};
  }
  const Scale scale = global_scale(state, config, x);
  state.threads.for_each(
      1, [&](std::int64_t, int) { core::store(o.q.absmax.data(), 0, scale.absmax); });
  const Cut cut(x.rows, x.cols, task_elements(state, config, x.rows, x.cols));
  const auto kernel = codes_kernel(state.features);
  const std::int64_t tasks = cut.tasks();
  // Codes are computed from the end, because the data that was read last is still in the caches.
  state.threads.for_each(tasks, [&](std::int64_t task, int) {
    kernel(x, q, cut.piece(tasks - 1 - task), scale, config.stream);
  });
}

}  // namespace cpu
}  // namespace switchback::quant
#endif
