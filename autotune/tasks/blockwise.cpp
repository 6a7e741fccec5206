// SPDX-License-Identifier: Apache-2.0
// Tuner: blockwise int8 products. Every engine stores the bits of the specification, so that
// results are compared bit for bit.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "autotune/tasks/expected_rows.hpp"
#include "autotune/tasks/tasks.hpp"
#include "core/context_state.hpp"
#include "core/matrix_rows.hpp"
#include "gemm/blockwise/engine.hpp"
#include "measure/caches.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"

namespace switchback::autotune {

namespace {

using blockwise::BlockwiseConfig;
using blockwise::BlockwiseOperands;
using blockwise::BlockwiseProblem;
using blockwise::Engine;

class BlockwiseTask final : public Task {
 public:
  BlockwiseTask(Context& context, const BlockwiseProblem& problem, Purpose purpose)
      : context_(context), problem_(problem) {
    const BlockwiseProblem& p = problem_;
    a_ = measure::Matrix(context, DType::s8, p.n, p.padded_m, p.stride_a, p.alignment);
    b_ = measure::Matrix(context, DType::s8, p.k, p.padded_m, p.stride_b, p.alignment);
    absmax_a_ = measure::Matrix(context, DType::f32, p.blocks(), p.n);
    absmax_b_ = measure::Matrix(context, DType::f32, p.blocks(), p.k);
    d_ = measure::Matrix(context, p.output, p.n, p.k, p.stride_d);
    fill_codes(a_, 1);
    fill_codes(b_, 2);
    measure::fill_scales(context, absmax_a_.floats(), 3);
    measure::fill_scales(context, absmax_b_.floats(), 4);
    if (p.accumulate) {
      before_ = measure::Matrix(context, p.output, p.n, p.k);
      measure::fill_random(context, before_.any(), 5);
      measure::copy(context, before_.any(), d_.any());
    }
    const auto bytes = static_cast<double>(a_.size_bytes() + b_.size_bytes() + d_.size_bytes());
    if (purpose == Purpose::timing) further_.resize(measure::rotation(context, bytes) - 1);
    for (Further& set : further_)
      set = {measure::copy_of(context, a_), measure::copy_of(context, b_),
             measure::copy_of(context, d_)};
  }

  std::vector<ConfigChoice> candidates() override {
    std::vector<ConfigChoice> choices;
    for (const BlockwiseConfig& config : blockwise::candidates(problem_, context_.state()))
      choices.push_back(blockwise::to_choice(config));
    return choices;
  }

  // At the full size: a kernel's last tiles are as far from its first as they get.
  std::string check(const ConfigChoice& choice) override {
    BlockwiseConfig config;
    if (!blockwise::from_choice(choice, config)) return "the numbers are no configuration";
    if (expected_.empty()) {
      std::string why_not;
      expected_.expect(
          context_.state().device.kind, problem_.n,
          static_cast<double>(problem_.k) * static_cast<double>(problem_.m),
          [&](std::int64_t first, std::int64_t rows) { return by_oracle(first, rows, why_not); });
      if (!why_not.empty()) {
        expected_ = {};
        return why_not;
      }
    }
    if (problem_.accumulate)
      measure::copy(context_, before_.any(), d_.any());
    else
      measure::poison(context_, d_.any());
    blockwise::run(context_.state(), problem_, config, operands(a_, b_, d_));
    return expected_.difference(context_, d_.any(),
                                rows_to_keep(context_.state().device.kind, problem_.n, problem_.k));
  }

  void run(const ConfigChoice& choice) override {
    const std::size_t set = next_++ % (further_.size() + 1);
    BlockwiseConfig config;
    if (!blockwise::from_choice(choice, config)) return;
    const BlockwiseOperands o =
        set == 0 ? operands(a_, b_, d_)
                 : operands(further_[set - 1].a, further_[set - 1].b, further_[set - 1].d);
    blockwise::run(context_.state(), problem_, config, o);
  }

  bool is_risky(const ConfigChoice& choice) override {
    BlockwiseConfig config;
    return blockwise::from_choice(choice, config) && blockwise::is_risky(config);
  }

 private:
  // Operands elsewhere in memory, for runs to take turns with.
  struct Further {
    measure::Matrix a, b, d;
  };
  // Some rows and columns of d: rows of a, and of b.
  struct Part {
    std::int64_t row, rows, column, columns;
  };

  // Codes of blocks, 0 from m on.
  void fill_codes(const measure::Matrix& codes, std::uint64_t seed) {
    AnyMatrix m = codes.any();
    measure::fill_random(context_, m, seed);
    const std::int64_t padding = problem_.padded_m - problem_.m;
    if (padding == 0) return;
    const measure::Matrix zeros(DType::s8, m.rows, padding);
    std::fill_n(static_cast<std::int8_t*>(zeros.data()), m.rows * padding, std::int8_t{0});
    m.data = static_cast<std::int8_t*>(m.data) + problem_.m;
    m.cols = padding;
    measure::copy(context_, zeros.any(), m);
  }

  [[nodiscard]] BlockwiseOperands operands(const measure::Matrix& a, const measure::Matrix& b,
                                           const measure::Matrix& d) const {
    return {static_cast<const std::int8_t*>(a.data()), static_cast<const std::int8_t*>(b.data()),
            absmax_a_.floats().data(), absmax_b_.floats().data(), d.data()};
  }

  // Rows of d by the last engine of the device. Where that is not the reference, the reference
  // vouches for it in a corner of them, of as many rows and columns as take it no longer than a
  // moment.
  measure::Matrix by_oracle(std::int64_t first, std::int64_t rows, std::string& why_not) {
    const Engine& oracle = *blockwise::engine_table().of(context_.state().device.kind).back();
    const measure::Matrix d = part_of_d(oracle, {first, rows, 0, problem_.k}, false);
    if (!oracle.is_oracle && why_not.empty()) {
      constexpr std::int64_t most_products = std::int64_t{1} << 22;
      constexpr std::int64_t most_rows = 4;
      Part corner = {first, std::min(rows, most_rows), 0, 0};
      corner.columns =
          std::clamp<std::int64_t>(most_products / (corner.rows * problem_.m), 1, problem_.k);
      if (first > 0) {
        corner.row = first + rows - corner.rows;
        corner.column = problem_.k - corner.columns;
      }
      const measure::Matrix want = part_of_d(blockwise::reference_engine, corner, true);
      why_not =
          measure::difference(context_,
                              columns_of(core::rows_of(d.any(), corner.row - first, corner.rows),
                                         corner.column, corner.columns),
                              want.any());
      if (!why_not.empty())
        why_not = fmt::format("engine '{}', from ({},{}) on: {}", oracle.name, corner.row,
                              corner.column, why_not);
    }
    return measure::host_copy(context_, d.any());
  }

  static AnyMatrix columns_of(AnyMatrix m, std::int64_t first, std::int64_t columns) {
    m.data = static_cast<std::byte*>(m.data) +
             first * static_cast<std::int64_t>(dtype_size_bytes(m.dtype));
    m.cols = columns;
    return m;
  }

  // A part of d by an engine, in the memory that it runs on: the host's, or the device's.
  measure::Matrix part_of_d(const Engine& engine, const Part& part, bool on_host) {
    const auto make = [&](DType type, std::int64_t rows, std::int64_t cols) {
      return on_host ? measure::Matrix(type, rows, cols)
                     : measure::Matrix(context_, type, rows, cols);
    };
    const auto cut = [&](AnyMatrix m) {
      measure::Matrix own = make(m.dtype, m.rows, m.cols);
      measure::copy(context_, m, own.any());
      return own;
    };
    measure::Matrix host_a;
    measure::Matrix host_b;
    AnyMatrix a = core::rows_of(a_.any(), part.row, part.rows);
    AnyMatrix b = core::rows_of(b_.any(), part.column, part.columns);
    if (on_host) {
      host_a = measure::host_copy(context_, a);
      host_b = measure::host_copy(context_, b);
      a = host_a.any();
      b = host_b.any();
    }
    const measure::Matrix absmax_a = cut(columns_of(absmax_a_.any(), part.row, part.rows));
    const measure::Matrix absmax_b = cut(columns_of(absmax_b_.any(), part.column, part.columns));
    measure::Matrix d = problem_.accumulate
                            ? cut(columns_of(core::rows_of(before_.any(), part.row, part.rows),
                                             part.column, part.columns))
                            : make(problem_.output, part.rows, part.columns);
    BlockwiseProblem p = problem_;
    p.n = part.rows;
    p.k = part.columns;
    p.stride_a = a.stride;
    p.stride_b = b.stride;
    p.stride_d = p.k;
    engine.run(context_.state(), p, {engine.id},
               {static_cast<const std::int8_t*>(a.data), static_cast<const std::int8_t*>(b.data),
                absmax_a.floats().data(), absmax_b.floats().data(), d.data()});
    context_.synchronize();  // before its operands go
    return d;
  }

  Context& context_;
  BlockwiseProblem problem_;
  measure::Matrix a_, b_, absmax_a_, absmax_b_, d_;
  measure::Matrix before_;  ///< d before something is added to it
  std::vector<Further> further_;
  std::size_t next_ = 0;
  ExpectedRows expected_;
};

}  // namespace

std::unique_ptr<Task> make_blockwise_task(Context& context, const BlockwiseProblem& problem,
                                          Purpose purpose) {
  return std::make_unique<BlockwiseTask>(context, problem, purpose);
}

}  // namespace switchback::autotune
