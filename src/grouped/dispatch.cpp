// SPDX-License-Identifier: Apache-2.0
#include "grouped/dispatch.hpp"

#include "core/check.hpp"
#include "core/rehearsal.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/packed_weight.hpp"
#include "grouped/groups.hpp"

namespace switchback::grouped {

namespace {

using gemm_int8::Engine;
using gemm_int8::EngineId;
using gemm_int8::GroupedOperands;
using gemm_int8::GroupedProblem;
using gemm_int8::ScaleMode;

constexpr std::string_view op = "grouped_gemm";

struct Product {
  GroupedProblem problem;
  GroupedOperands operands;
};

Product product_of(const GroupedGemmArgs& args) {
  Product product;
  auto& [p, o] = product;
  p.groups = args.groups.count;
  p.strided = args.groups.ends.empty();
  p.rows = args.groups.rows;
  p.d_column_stride = args.d_column_stride;
  gemm_int8::GemmProblem& each = p.each;
  each.m = args.a.rows;
  each.k = args.a.cols;
  each.stride_a = args.a.stride;
  o.first.a = args.a.data;
  if (args.packed_b != nullptr) {
    const PackedWeightState& packed = args.packed_b->state();
    each.n = packed.rows;
    each.packed_for = packed.engine->id;
    p.packed_step_bytes = packed.step_bytes;
    o.first.packed_b = packed.buffer.as<const void>();
  } else {
    each.n = p.groups > 0 ? args.b.rows / p.groups : 0;
    each.stride_b = args.b.stride;
    o.first.b = args.b.data;
  }
  each.stride_d = args.d.stride;
  each.output = args.d.dtype;
  o.first.d = args.d.data;
  o.groups = args.groups;
  if (each.output == DType::s32) return product;
  each.scale = static_cast<std::int64_t>(args.absmax_b.size()) == p.groups * each.n
                   ? ScaleMode::row_col
                   : ScaleMode::row_scalar;
  o.first.absmax_a = args.absmax_a.data();
  o.first.absmax_b = args.absmax_b.data();
  if (args.bias.data != nullptr) {
    each.has_bias = true;
    each.bias = args.bias.dtype;
    o.first.bias = args.bias.data;
  }
  return product;
}

// The engine that was forced, or the one that b is packed for, or the first that runs here.
const Engine& engine_for(const ContextState& state, const GroupedProblem& p,
                         std::string_view forced) {
  const auto refusal = [&](const Engine& engine) -> std::string_view {
    const std::string_view unavailable = engine.unavailable(state);
    if (!unavailable.empty()) return unavailable;
    const std::string_view rejected = engine.rejects(p.each);
    if (!rejected.empty()) return rejected;
    if (!state.on_cpu() && engine.run_grouped == nullptr) return "it has no grouped product";
    return {};
  };
  if (!forced.empty()) {
    const Engine& engine = gemm_int8::named_engine(op, forced, state);
    const std::string_view reason = refusal(engine);
    if (!reason.empty())
      core::fail(Status::unsupported, "{}: engine '{}' cannot run {}: {}", op, forced,
                 gemm_int8::describe(p), reason);
    return engine;
  }
  const EngineId packed_for = p.each.packed_for;
  for (const Engine* engine : gemm_int8::engines(state.device.kind))
    if (!engine->only_tuned && refusal(*engine).empty() &&
        (packed_for == EngineId::none ||
         gemm_int8::reads_layout(state.device.kind, *engine, packed_for)))
      return *engine;
  if (packed_for == EngineId::none)
    core::fail(Status::unsupported, "{}: no engine that runs on {} has a grouped product", op,
               state.device);
  core::fail(Status::unsupported,
             "{}: packed_b is packed for engine '{}', and no engine that runs here reads it", op,
             gemm_int8::engine_name(packed_for));
}

// The products one after another.
void run_each(ContextState& state, const Engine& engine, const GroupedProblem& p,
              const GroupedOperands& o) {
  core::all_or_nothing(state, [&] {
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const gemm_int8::GemmProblem one =
          gemm_int8::problem_of(p, o.rows[static_cast<std::size_t>(g)]);
      if (one.m == 0) continue;
      gemm_int8::GemmConfig config = engine.default_config(one, state);
      gemm_int8::run_checked(state, one, config, gemm_int8::operands_of(p, o, g));
    }
  });
}

}  // namespace

void multiply(ContextState& state, const GroupedGemmArgs& args) {
  auto [problem, operands] = product_of(args);
  const gemm_int8::GemmOperands& first = operands.first;
  problem.each.alignment =
      core::alignment_class(state, {first.a, first.b, first.packed_b, first.d});
  const Engine& engine = engine_for(state, problem, args.engine);
  if (problem.groups == 0 || problem.each.m == 0 || problem.each.n == 0) return;
  core::Workspace::Frame frame(state.workspace);
  operands.rows = rows_of(state, frame, args.groups);
  // K = 0: only the epilogue is left, which the last engine of a device computes.
  const bool grouped = engine.run_grouped != nullptr && (problem.each.k > 0 || !state.on_cpu());
  if (!grouped) return run_each(state, engine, problem, operands);
  engine.run_grouped(state, problem, engine.grouped_default(problem, state), operands);
}

void pack(ContextState& state, MatrixView<const std::int8_t> b, std::int64_t n, std::int64_t groups,
          PackedWeight& out, std::string_view engine) {
  const Engine& packer = gemm_int8::packing_engine("pack_weights", state, engine);
  if (out.empty()) out = PackedWeight();  // a moved-from object has no state
  PackedWeightState& packed = out.state();
  const std::int64_t step = gemm_int8::packed_step(packer.packed_bytes(n, b.cols));
  packed.buffer.reserve(static_cast<std::size_t>(step * groups), state.runtime);
  packed.engine = nullptr;  // until the copies are queued: a device can fail here
  for (std::int64_t g = 0; g < groups; ++g)
    packer.pack(state, {b.data + g * n * b.stride, n, b.cols, b.stride},
                packed.buffer.as<std::byte>() + g * step);
  packed.engine = &packer;
  packed.device = state.device;
  packed.rows = n;
  packed.cols = b.cols;
  packed.groups = groups;
  packed.step_bytes = step;
}

}  // namespace switchback::grouped
