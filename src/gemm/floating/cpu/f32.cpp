// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/cpu/f32.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/dry_run.hpp"
#include "gemm/floating/cpu/convert.hpp"

namespace switchback::floating {

namespace {

// The sizes of widened panels. Every block of rows of a reads the whole panel of b, so that panel
// should stay in a cache. The size of a panel of a only limits memory; b is widened once for each
// panel of a.
constexpr std::int64_t panel_b_elements = std::int64_t{2} << 20;
constexpr std::int64_t panel_a_elements = std::int64_t{16} << 20;
// With fewer rows or columns than this, the f32 product no longer hides the time for widening.
constexpr std::int64_t smallest_panel = 256;

std::int64_t panel_size(std::int64_t size, std::int64_t k, std::int64_t elements) {
  const std::int64_t fitting = elements / k / 64 * 64;
  return std::min(size, std::max(fitting, smallest_panel));
}

const void* at(const void* base, DType dtype, std::int64_t element) {
  return static_cast<const char*>(base) +
         element * static_cast<std::int64_t>(dtype_size_bytes(dtype));
}

void* at(void* base, DType dtype, std::int64_t element) {
  return static_cast<char*>(base) + element * static_cast<std::int64_t>(dtype_size_bytes(dtype));
}

// The part of an operand x in memory that holds rows [first, first + count) of op(x), each of k
// elements. (For columns of op(b) the caller passes the opposite `transposed`.)
ConstAnyMatrix slice(const void* base, DType dtype, std::int64_t ld, std::int64_t k,
                     bool transposed, std::int64_t first, std::int64_t count) {
  if (transposed) return {at(base, dtype, first), dtype, k, count, ld};
  return {at(base, dtype, first * ld), dtype, count, k, ld};
}

void run_widened(ContextState& context, const Problem& p, const Config& config,
                 const Operands& operands, F32Core core) {
  core::Workspace::Frame frame(context.workspace);
  const float* bias = bias_as_f32(context, frame, p, operands);
  const std::int64_t rows = panel_size(p.m, p.k, panel_a_elements);
  const std::int64_t cols = panel_size(p.n, p.k, panel_b_elements);
  const bool direct = p.output == DType::f32;
  auto* a = frame.take<float>(rows * p.k);
  auto* b = frame.take<float>(cols * p.k);
  auto* sum = direct ? nullptr : frame.take<float>(rows * cols);
  const auto panels = [&] {
    for (std::int64_t i = 0; i < p.m; i += rows) {
      const std::int64_t m = std::min(rows, p.m - i);
      const auto part_a = slice(operands.a, p.input, p.lda, p.k, p.transpose_a, i, m);
      widen(context, part_a, a, part_a.cols);
      for (std::int64_t j = 0; j < p.n; j += cols) {
        const std::int64_t n = std::min(cols, p.n - j);
        const auto part_b = slice(operands.b, p.input, p.ldb, p.k, !p.transpose_b, j, n);
        widen(context, part_b, b, part_b.cols);
        const AnyMatrix part_d(at(operands.d, p.output, i * p.ldd + j), p.output, m, n, p.ldd);
        float* target = direct ? static_cast<float*>(part_d.data) : sum;
        const std::int64_t ld_target = direct ? p.ldd : n;
        core(context,
             {p.transpose_a, p.transpose_b, m, n, p.k, a, part_a.cols, b, part_b.cols, target,
              ld_target, direct && p.accumulate},
             config);
        if (!direct || bias != nullptr)
          finish(context, target, ld_target, bias != nullptr ? bias + j : nullptr,
                 !direct && p.accumulate, part_d);
      }
    }
  };
  // The last panels are smaller, and the library may need more memory for them when other panels
  // are already written. So a dry run takes all memory first.
  if (p.m > rows || p.n > cols)
    core::all_or_nothing(context, panels);
  else
    panels();
}

}  // namespace

void multiply_without_memory(const F32Gemm& g) noexcept {
  constexpr std::int64_t strip = 64;  // columns of d, whose sums stay in registers and the cache
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t first = 0; first < g.n; first += strip) {
      const std::int64_t cols = std::min(strip, g.n - first);
      std::array<float, strip> sums{};
      for (std::int64_t l = 0; l < g.k; ++l) {
        const float a = g.a[g.transpose_a ? l * g.lda + i : i * g.lda + l];
        const float* const b = g.b + (g.transpose_b ? first * g.ldb + l : l * g.ldb + first);
        const std::int64_t next = g.transpose_b ? g.ldb : 1;
        for (std::int64_t j = 0; j < cols; ++j)
          sums[static_cast<std::size_t>(j)] += a * b[j * next];
      }
      float* const d = g.d + i * g.ldd + first;
      for (std::int64_t j = 0; j < cols; ++j)
        d[j] = sums[static_cast<std::size_t>(j)] + (g.accumulate ? d[j] : 0.0f);
    }
}

const float* bias_as_f32(ContextState& context, core::Workspace::Frame& frame,
                         const Problem& problem, const Operands& operands) {
  if (!problem.bias) return nullptr;
  // Copied even if it is f32, because the loops need an aligned bias; it is only one row.
  auto* bias = frame.take<float>(problem.n);
  ConstAnyMatrix row = operands.bias;
  row.stride = row.cols;
  widen(context, row, bias, problem.n);
  return bias;
}

void run_on_f32(ContextState& context, const Problem& p, const Config& config,
                const Operands& operands, F32Core core) {
  if (p.input != DType::f32) return run_widened(context, p, config, operands, core);
  auto* d = static_cast<float*>(operands.d);
  core::Workspace::Frame frame(context.workspace);
  const float* bias = bias_as_f32(context, frame, p, operands);
  core(context,
       {p.transpose_a, p.transpose_b, p.m, p.n, p.k, static_cast<const float*>(operands.a), p.lda,
        static_cast<const float*>(operands.b), p.ldb, d, p.ldd, p.accumulate},
       config);
  if (bias != nullptr) finish(context, d, p.ldd, bias, false, {d, DType::f32, p.m, p.n, p.ldd});
}

}  // namespace switchback::floating
