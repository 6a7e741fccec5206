// SPDX-License-Identifier: Apache-2.0
#include "gemm/blockwise/trial.hpp"

#include <algorithm>

#include "core/context_state.hpp"
#include "gemm/blockwise/engine.hpp"
#include "measure/expected.hpp"

namespace switchback::blockwise {

namespace {

using measure::Matrix;
using measure::oracle::Codes;

constexpr std::string_view rule =
    "equal: p = fma(f32(sum) · absmax_b, absmax_a, p) of each block in order, d = fma(p, 1/127², "
    "d) of each superblock";

class BlockwiseTrial final : public measure::TrialOf<BlockwiseConfig> {
 public:
  BlockwiseTrial(Context& context, const BlockwiseProblem& p, const measure::TrialOptions& options)
      : TrialOf(context, options, "gemm_blockwise", p.output),
        problem_(p),
        a_(context, DType::s8, p.n, p.padded_m, p.stride_a, p.alignment),
        b_(context, DType::s8, p.k, p.padded_m, p.stride_b, p.alignment),
        absmax_a_(context, DType::f32, p.blocks(), p.n),
        absmax_b_(context, DType::f32, p.blocks(), p.k),
        d_(context, p.output, p.n, p.k, p.stride_d) {
    fill_codes(a_, options.seed);
    fill_codes(b_, options.seed + 1);
    measure::fill_scales(context, absmax_a_.floats(), options.data, options.seed + 2);
    measure::fill_scales(context, absmax_b_.floats(), options.data, options.seed + 3);
    if (p.accumulate) {
      before_ = Matrix(context, p.output, p.n, p.k);
      measure::fill(context, before_.any(), measure::Data::normal, options.seed + 4);
      measure::copy(context, before_.any(), d_.any());
    }
    copies_ = measure::ProductCopies(context, options, a_, b_, d_);
  }

 private:
  std::vector<BlockwiseConfig> configs() override {
    return blockwise::candidates(problem_, context_.state());
  }
  std::vector<BlockwiseConfig> engine_configs() override {
    const ContextState& state = context_.state();
    std::vector<BlockwiseConfig> all = {default_config(problem_, state)};
    for (const Engine* engine : engine_table().of(state.device.kind)) {
      const BlockwiseConfig config = {engine->id, engine->tiles(problem_, state).tile_n.front()};
      if (check_config(problem_, config, state).empty()) all.push_back(config);
    }
    return all;
  }

  // Runs and compares the problem at its full size, because a kernel's last tiles are then as far
  // from its first ones as possible.
  void compare(measure::Checker& checker, const BlockwiseConfig& config) override {
    if (want_.empty()) expect();
    if (problem_.accumulate)
      measure::copy(context_, before_.any(), d_.any());
    else
      measure::poison(context_, d_.any());
    blockwise::run(context_.state(), problem_, config, operands(a_, b_, d_));
    const std::string part = problem_.accumulate ? "dw, accumulated" : "dw";
    checker.exact(op_, part, d_.any(), sample_, want_.any(), rule);
    if (!sample_.is_all(d_.any()))
      checker.like_the_first(
          op_, part, d_.any(),
          measure::rows_to_keep(context_.state().device.kind, problem_.n, problem_.k), kept_);
  }

  void run_config(const BlockwiseConfig& config) override {
    const auto* copy = copies_.next();
    blockwise::run(context_.state(), problem_, config,
                   copy == nullptr ? operands(a_, b_, d_) : operands(copy->a, copy->b, copy->d));
  }
  bool may_crash(const BlockwiseConfig& config) override {
    return blockwise::needs_validation(config);
  }

  // Fills an operand with random codes, and with zeros from column m on.
  void fill_codes(const Matrix& codes, std::uint64_t seed) {
    AnyMatrix m = codes.any();
    measure::fill(context_, m, options_.data, seed);
    const std::int64_t padding = problem_.padded_m - problem_.m;
    if (padding == 0) return;
    const Matrix zeros(DType::s8, m.rows, padding);
    std::fill_n(static_cast<std::int8_t*>(zeros.data()), m.rows * padding, std::int8_t{0});
    m.data = static_cast<std::int8_t*>(m.data) + problem_.m;
    m.cols = padding;
    measure::copy(context_, zeros.any(), m);
  }

  [[nodiscard]] BlockwiseOperands operands(const Matrix& a, const Matrix& b,
                                           const Matrix& d) const {
    return {static_cast<const std::int8_t*>(a.data()), static_cast<const std::int8_t*>(b.data()),
            absmax_a_.floats().data(), absmax_b_.floats().data(), d.data()};
  }

  // Copies some rows of an operand, codes and scales, to the host.
  [[nodiscard]] Codes codes_of(const Matrix& codes, const Matrix& absmax,
                               const measure::Rows& rows) const {
    const Matrix some = measure::gather(context_, codes.any(), rows);
    Codes found{some.rows(),
                some.cols(),
                {},
                measure::oracle::floats_of(context_, absmax.any(),
                                           {measure::all_rows(absmax.rows()), rows})};
    const auto q = some.view<const std::int8_t>();
    for (std::int64_t r = 0; r < q.rows; ++r)
      found.q.insert(found.q.end(), q.data + r * q.stride, q.data + r * q.stride + q.cols);
    return found;
  }

  void expect() {
    const BlockwiseProblem& p = problem_;
    sample_ = measure::sample_of(p.n, p.k, p.m, options_.most_reference_work, options_.seed);
    std::vector<float> before;
    if (p.accumulate) before = measure::oracle::floats_of(context_, before_.any(), sample_);
    const Codes a = codes_of(a_, absmax_a_, sample_.rows);
    const Codes b = codes_of(b_, absmax_b_, sample_.cols);
    want_ = measure::in_dtype(measure::oracle::blockwise_product(
                                  a, b, p.block_rows, measure::all_rows(a.rows), before, p.output),
                              b.rows, p.output);
  }

  BlockwiseProblem problem_;
  Matrix a_, b_, absmax_a_, absmax_b_, d_;
  Matrix before_;  ///< d as it is before the product is added to it
  measure::ProductCopies copies_;
  measure::Sample sample_;
  Matrix want_, kept_;
};

}  // namespace

std::unique_ptr<measure::Trial> make_trial(Context& context, const BlockwiseProblem& problem,
                                           const measure::TrialOptions& options) {
  return std::make_unique<BlockwiseTrial>(context, problem, options);
}

std::vector<BlockwiseProblem> trial_problems(const ContextState& state,
                                             const measure::TrialShape& shape, DType dtype) {
  BlockwiseProblem p;
  p.n = shape.n;
  p.k = p.stride_d = shape.k;
  p.m = shape.m;
  p.block_rows = 128;
  p.padded_m = p.stride_a = p.stride_b = whole_block_rows(p.m, p.block_rows);
  p.alignment = state.on_cpu() ? 0 : 16;
  p.output = dtype;
  std::vector<BlockwiseProblem> problems = {p, p};
  problems.back().accumulate = true;
  return problems;
}

}  // namespace switchback::blockwise
