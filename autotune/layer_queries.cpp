// SPDX-License-Identifier: Apache-2.0
#include "autotune/layer_queries.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"
#include "gemm/blockwise/problem.hpp"
#include "gemm/floating/problem.hpp"
#include "gemm/int8/engine.hpp"
#include "gemm/int8/grouped.hpp"
#include "linear/mode.hpp"
#include "quant/blocks.hpp"
#include "quant/problem.hpp"
#include "switchback/linear.hpp"

namespace switchback::autotune {

namespace {

class Lister {
 public:
  Lister(const ContextState& state, const TuneShape& shape, Problems problems)
      : state_(state), shape_(shape), problems_(state.on_cpu() ? Problems::all : problems) {
    if (lists(Problems::fields) && shape.bias) biases_.push_back(false);
  }

  std::vector<ConfigQuery> list() { return shape_.groups > 0 ? list_grouped() : list_single(); }

 private:
  [[nodiscard]] bool lists(Problems some) const { return problems_ >= some; }

  std::vector<ConfigQuery> list_single() {
    using quant::Op;
    const std::int64_t m = shape_.rows;
    const std::int64_t n = shape_.out_features;
    const std::int64_t k = shape_.in_features;
    floating_products(m);
    if (blockwise::is_tuned(state_)) weight_gradient(n, k, m);
    quantize(Op::rowwise, m, k);
    quantize(Op::rowwise, m, n);
    // The weight of an engine that takes codes block by block is quantized without a choice.
    if (gemm_int8::packing_engine(state_).pack_rows == nullptr || !quant::has_blocks(state_))
      for (const Op op : {Op::rowwise, Op::columnwise_transpose, Op::global, Op::global_transpose,
                          Op::rowwise_and_columnwise_transpose, Op::global_and_transpose})
        quantize(op, n, k);
    using gemm_int8::ScaleMode;
    for (const gemm_int8::EngineId packed : layouts())
      for (const ScaleMode scale : {ScaleMode::row_col, ScaleMode::row_scalar}) {
        for (const bool bias : biases_of(packed))
          int8(m, n, k, scale, packed, bias);
        int8(m, k, n, scale, packed, false);
      }
    if (shape_.bias) {
      quantize(Op::rowwise_column_sums, m, n);
      quantize(Op::column_sums, m, n);
    }
    for (const linear::WeightCodes codes : {linear::WeightCodes::cached, linear::WeightCodes::made})
      for (const linear::Pass pass : {linear::Pass::forward, linear::Pass::dx})
        for (const bool bias : biases_)
          layer(pass, codes, bias);
    // What decides whether dw is computed from codes, of any layer.
    if (blockwise::is_tuned(state_))
      layer(linear::Pass::forward, linear::WeightCodes::cached, false);
    for (const bool bias : biases_)
      layer(linear::Pass::step, linear::WeightCodes::made, bias);
    // What mode global_mem_efficient has besides. (Casts are records' floor under quantize
    // operations, and no part of a layer.)
    quantize(Op::dequantize_rowwise, m, k);
    return std::move(queries_);
  }

  // Of a grouped layer, with packed and with strided groups. What its floating products ask for
  // depends on the rows of each group, which are taken to be equally many.
  std::vector<ConfigQuery> list_grouped() {
    using quant::Op;
    const std::int64_t m = shape_.rows;
    const std::int64_t n = shape_.out_features;
    const std::int64_t k = shape_.in_features;
    const std::int64_t each = std::max<std::int64_t>(1, m / shape_.groups);
    floating_products(each);
    quantize(Op::rowwise, m, k);
    quantize(Op::rowwise, m, n);
    quantize(Op::rowwise, shape_.groups * n, k);
    for (const Op op : {Op::columnwise_transpose, Op::global, Op::global_transpose,
                        Op::rowwise_and_columnwise_transpose, Op::global_and_transpose})
      quantize(op, n, k);
    if (shape_.bias) quantize(Op::column_sums, each, n);
    using gemm_int8::GroupedLayout;
    using gemm_int8::ScaleMode;
    for (const GroupedLayout layout : {GroupedLayout::packed, GroupedLayout::strided})
      for (const gemm_int8::EngineId packed : layouts())
        for (const ScaleMode scale : {ScaleMode::row_col, ScaleMode::row_scalar}) {
          for (const bool bias : biases_of(packed))
            grouped_int8(layout, n, k, scale, packed, bias);
          grouped_int8(layout, k, n, scale, packed, false);
        }
    using linear::RowsLayout;
    for (const linear::WeightCodes codes : {linear::WeightCodes::cached, linear::WeightCodes::made})
      for (const bool bias : biases_) {
        for (const RowsLayout layout :
             {RowsLayout::packed, RowsLayout::strided, RowsLayout::gathered})
          grouped_layer(linear::Pass::forward, layout, codes, bias);
        // Gradients are rows of slots, also where forward gathered them.
        for (const RowsLayout layout : {RowsLayout::packed, RowsLayout::strided})
          grouped_layer(linear::Pass::dx, layout, codes, bias);
      }
    quantize(Op::dequantize_rowwise, m, k);
    return std::move(queries_);
  }

  // Of m rows. A layer that quantizes computes dW this way.
  void floating_products(std::int64_t m) {
    const std::int64_t n = shape_.out_features;
    const std::int64_t k = shape_.in_features;
    if (lists(Problems::all)) {
      for (const bool bias : biases_)
        standard(m, n, k, false, true, bias);  // X · Wᵀ
      standard(m, k, n, false, false);         // G · W
    }
    standard(n, k, m, true, false);  // Gᵀ · X
  }

  // How the codes of W lie: packed in a layer, and in a record's fields as they are made.
  [[nodiscard]] std::vector<gemm_int8::EngineId> layouts() const {
    std::vector<gemm_int8::EngineId> all = {gemm_int8::packing_engine(state_).id};
    if (lists(Problems::fields)) all.push_back(gemm_int8::EngineId::none);
    return all;
  }
  // Only a layer has a bias, and a layer packs.
  [[nodiscard]] std::vector<bool> biases_of(gemm_int8::EngineId packed) const {
    return packed == gemm_int8::EngineId::none ? std::vector<bool>{false} : biases_;
  }

  void add(const ConfigQuery& query) {
    if (std::find(queries_.begin(), queries_.end(), query) == queries_.end())
      queries_.push_back(query);
  }

  void quantize(quant::Op op, std::int64_t rows, std::int64_t cols) {
    quant::Problem p;
    p.op = op;
    p.dtype = shape_.dtype;
    p.rows = rows;
    p.cols = cols;
    p.device = state_.device.kind;
    const auto element = static_cast<std::int64_t>(dtype_size_bytes(p.dtype));
    if (!state_.on_cpu()) p.alignment = cols * element % 16 == 0 ? 16 : 1;
    if (state_.on_cpu()) {
      p.threads = state_.threads.count();
      p.isa = state_.features.level();
    }
    add(quant::to_query(p));
  }

  void int8(std::int64_t m, std::int64_t n, std::int64_t k, gemm_int8::ScaleMode scale,
            gemm_int8::EngineId packed, bool bias) {
    if (k <= max_exact_k)
      add(gemm_int8::to_query(int8_problem(m, n, k, scale, packed, bias), state_));
  }

  void grouped_int8(gemm_int8::GroupedLayout layout, std::int64_t n, std::int64_t k,
                    gemm_int8::ScaleMode scale, gemm_int8::EngineId packed, bool bias) {
    gemm_int8::GroupedProblem p;
    p.groups = shape_.groups;
    p.strided = layout == gemm_int8::GroupedLayout::strided;
    if (p.strided) p.rows = shape_.rows / shape_.groups;
    if (k > max_exact_k || (p.strided && p.rows == 0)) return;
    p.each = int8_problem(p.strided ? p.rows * p.groups : shape_.rows, n, k, scale, packed, bias);
    add(gemm_int8::to_query(p, state_));
  }

  gemm_int8::GemmProblem int8_problem(std::int64_t m, std::int64_t n, std::int64_t k,
                                      gemm_int8::ScaleMode scale, gemm_int8::EngineId packed,
                                      bool bias) {
    gemm_int8::GemmProblem p;
    p.m = m;
    p.n = n;
    p.k = p.stride_a = k;
    p.stride_b = packed == gemm_int8::EngineId::none ? k : 0;
    p.stride_d = n;
    p.output = shape_.dtype;
    p.scale = scale;
    p.packed_for = packed;
    p.alignment = state_.on_cpu() ? 0 : 16;
    p.has_bias = bias;
    p.bias = bias ? shape_.dtype : DType::f32;
    return p;
  }

  void standard(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b,
                bool bias = false) {
    floating::Problem p;
    p.m = m;
    p.n = n;
    p.k = k;
    p.lda = transpose_a ? m : k;
    p.ldb = transpose_b ? k : n;
    p.ldd = n;
    p.input = p.output = shape_.dtype;
    p.transpose_a = transpose_a;
    p.transpose_b = transpose_b;
    p.bias = bias;
    p.device = state_.device.kind;
    p.alignment = state_.on_cpu() ? 0 : 16;
    p.threads = state_.on_cpu() ? state_.threads.count() : 1;
    if (state_.runtime != nullptr)
      p.compute_capability = state_.runtime->info().compute_capability();
    add(floating::to_query(p));
  }

  // dW of dw = int8_block, in the blocks that a layer has unless it is told otherwise: of the
  // layer's type, and in longer lists of weights in f32.
  void weight_gradient(std::int64_t n, std::int64_t k, std::int64_t m) {
    blockwise::BlockwiseProblem p;
    p.n = n;
    p.k = p.stride_d = k;
    p.m = m;
    p.block_rows = LinearOptions().dw_block_rows;
    p.padded_m = p.stride_a = p.stride_b = whole_block_rows(m, p.block_rows);
    p.alignment = state_.on_cpu() ? 0 : 16;
    p.output = shape_.dtype;
    add(blockwise::to_query(p, state_));
    p.output = DType::f32;
    if (lists(Problems::all)) add(blockwise::to_query(p, state_));
  }

  void layer(linear::Pass pass, linear::WeightCodes codes, bool bias) {
    linear::PassProblem p;
    describe_pass(p, pass, codes, bias);
    add(linear::to_query(p));
  }

  void grouped_layer(linear::Pass pass, linear::RowsLayout layout, linear::WeightCodes codes,
                     bool bias) {
    linear::GroupedPassProblem p;
    describe_pass(p, pass, codes, bias);
    p.groups = shape_.groups;
    p.layout = layout;
    if (layout == linear::RowsLayout::strided) p.m = p.m / p.groups * p.groups;
    if (p.m > 0) add(linear::to_query(p));
  }

  void describe_pass(linear::PassProblem& p, linear::Pass pass, linear::WeightCodes codes,
                     bool bias) {
    p.pass = pass;
    p.weight = codes;
    p.m = shape_.rows;
    p.n = shape_.out_features;
    p.k = shape_.in_features;
    p.dtype = p.output = shape_.dtype;
    p.bias = bias;
    p.device = state_.device.kind;
    if (state_.on_cpu()) {
      p.threads = state_.threads.count();
      p.isa = state_.features.level();
    }
  }

  const ContextState& state_;
  const TuneShape& shape_;
  Problems problems_;
  std::vector<bool> biases_ = {shape_.bias};
  std::vector<ConfigQuery> queries_;
};

}  // namespace

std::vector<ConfigQuery> layer_queries(const ContextState& state, const TuneShape& shape,
                                       Problems problems) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  for (const auto& [name, value] : {std::pair<const char*, std::int64_t>{"rows", shape.rows},
                                    {"in_features", shape.in_features},
                                    {"out_features", shape.out_features}})
    core::require(value >= 1 && value <= most, "tune: {} = {}; it must be 1 to {}", name, value,
                  most);
  core::require(shape.groups >= 0 && shape.groups <= most,
                "tune: groups = {}; it must be 0 (one layer) to {}", shape.groups, most);
  core::check_float("tune", "dtype", shape.dtype);
  return Lister(state, shape, problems).list();
}

}  // namespace switchback::autotune
