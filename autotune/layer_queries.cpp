// SPDX-License-Identifier: Apache-2.0
#include "autotune/layer_queries.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/check.hpp"
#include "gemm/floating/problem.hpp"
#include "gemm/int8/engine.hpp"
#include "linear/mode.hpp"
#include "quant/blocks.hpp"
#include "quant/problem.hpp"

namespace switchback::autotune {

namespace {

class Lister {
 public:
  Lister(const ContextState& state, const TuneShape& shape) : state_(state), shape_(shape) {}

  std::vector<ConfigQuery> list() {
    using quant::Op;
    const std::int64_t m = shape_.rows;
    const std::int64_t n = shape_.out_features;
    const std::int64_t k = shape_.in_features;
    const bool both[] = {false, true};
    const auto biases = std::span(both).first(shape_.bias ? 2 : 1);
    for (const bool bias : biases)
      standard(m, n, k, false, true, bias);  // X · Wᵀ
    standard(m, k, n, false, false);         // G · W
    standard(n, k, m, true, false);          // Gᵀ · X
    quantize(Op::rowwise, m, k);
    quantize(Op::rowwise, m, n);
    // The weight of an engine that takes codes block by block is quantized without a choice.
    if (gemm_int8::packing_engine(state_).pack_rows == nullptr || !quant::has_blocks(state_))
      for (const Op op : {Op::rowwise, Op::columnwise_transpose, Op::global, Op::global_transpose,
                          Op::rowwise_and_columnwise_transpose, Op::global_and_transpose})
        quantize(op, n, k);
    using gemm_int8::ScaleMode;
    const gemm_int8::EngineId packer = gemm_int8::packing_engine(state_).id;
    for (const gemm_int8::EngineId packed : {packer, gemm_int8::EngineId::none})
      for (const ScaleMode scale : {ScaleMode::row_col, ScaleMode::row_scalar}) {
        int8(m, n, k, scale, packed, false);
        int8(m, k, n, scale, packed, false);
        // Only a layer has a bias, and a layer packs.
        if (shape_.bias && packed == packer) int8(m, n, k, scale, packed, true);
      }
    quantize(Op::rowwise_column_sums, m, n);
    quantize(Op::column_sums, m, n);
    for (const linear::WeightCodes codes : {linear::WeightCodes::cached, linear::WeightCodes::made})
      for (const linear::Pass pass : {linear::Pass::forward, linear::Pass::dx})
        for (const bool bias : biases)
          layer(pass, codes, bias);
    // What mode global_mem_efficient has besides. (Casts are records' floor under quantize
    // operations, and no part of a layer.)
    quantize(Op::dequantize_rowwise, m, k);
    return std::move(queries_);
  }

 private:
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
    if (k > max_exact_k) return;
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
    add(gemm_int8::to_query(p, state_));
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

  void layer(linear::Pass pass, linear::WeightCodes codes, bool bias) {
    linear::PassProblem p;
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
    add(linear::to_query(p));
  }

  const ContextState& state_;
  const TuneShape& shape_;
  std::vector<ConfigQuery> queries_;
};

}  // namespace

std::vector<ConfigQuery> layer_queries(const ContextState& state, const TuneShape& shape) {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  for (const auto& [name, value] : {std::pair<const char*, std::int64_t>{"rows", shape.rows},
                                    {"in_features", shape.in_features},
                                    {"out_features", shape.out_features}})
    core::require(value >= 1 && value <= most, "tune: {} = {}; it must be 1 to {}", name, value,
                  most);
  core::check_float("tune", "dtype", shape.dtype);
  return Lister(state, shape).list();
}

}  // namespace switchback::autotune
