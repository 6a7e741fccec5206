// SPDX-License-Identifier: Apache-2.0
#include "quant/dispatch.hpp"

#include "core/assert.hpp"
#include "core/context_state.hpp"
#include "core/cuda/platform.hpp"
#include "core/dry_run.hpp"
#include "core/workspace.hpp"
#include "quant/config.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/device_engine.hpp"
#include "quant/passes.hpp"
#include "quant/reference.hpp"

namespace switchback::quant {

core::DeviceTable<const DeviceEngine*>& device_engines() noexcept {
  static auto table =
      core::cuda::table_of<core::DeviceTable<const DeviceEngine*>>(nullptr, cuda::engine());
  return table;
}

namespace {

// Finds a tuned configuration that can run here; false if there is none. If the one that was found
// cannot run, the source is told why.
bool find_tuned(ContextState& state, const Problem& problem, Config& config) {
  if (state.config_source == nullptr) return false;
  const ConfigQuery query = to_query(problem);
  ConfigChoice choice;
  if (!state.find_config(query, choice)) return false;
  const std::string reason = from_choice(choice, config)
                                 ? check_config(problem, config, state)
                                 : core::no_configuration(tunable.config, choice);
  if (reason.empty()) return true;
  state.refuse_config(query, choice, reason);
  return false;
}

// Takes scratch memory for v, the matrix from which the results of a request are computed.
AnyMatrix take_value(core::Workspace::Frame& frame, const Request& r) {
  const Source source = source_of(r);
  const DType dtype = source == Source::codes      ? DType::f32
                      : source == Source::gradient ? r.g.dtype
                                                   : r.x.dtype;
  return core::take_matrix(frame, dtype, r.x.rows, r.x.cols);
}

void run_passes(ContextState& state, Request request) {
  core::Workspace::Frame frame(state.workspace);
  if (lacks_value(request)) request.value = take_value(frame, request);
  if (lacks_rotated(request))
    request.rotated = core::take_matrix(frame, DType::f32, request.x.rows, request.x.cols);
  core::all_or_nothing(state, [&] {
    for_each_pass(request, [&](Op op, const Request& part) { run(state, op, part); });
  });
}

// The scales of one matrix, out of the scales of all matrices.
std::span<float> scales_of(std::span<float> all, std::int64_t matrix, std::int64_t count) {
  const std::size_t each = all.size() / static_cast<std::size_t>(count);
  return all.subspan(static_cast<std::size_t>(matrix) * each, each);
}

Request matrix_of(Request r, std::int64_t matrix) {
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(r.x.dtype));
  r.x.data = static_cast<const std::byte*>(r.x.data) + matrix * r.matrices.step * element;
  for (CodesOut* const out : {&r.q, &r.q_t}) {
    out->codes.data += matrix * out->step;
    out->absmax = scales_of(out->absmax, matrix, r.matrices.count);
  }
  r.matrices = {};
  return r;
}

// The scales of rows do not depend on where a matrix ends, so consecutive matrices are treated as
// one.
void join_matrices(Request& r) {
  if (r.q.scales != Scales::per_row || r.q_t.scales != Scales::none) return;
  if (r.matrices.step != r.x.rows * r.x.stride || r.q.step != r.x.rows * r.q.codes.stride) return;
  r.x.rows = r.q.codes.rows = r.x.rows * r.matrices.count;
  r.matrices = {};
}

void run_matrices(ContextState& state, Request request) {
  join_matrices(request);
  const OpParts* const op = single_pass(request);
  SWITCHBACK_ASSERT(op != nullptr && is_of_matrices(op->op));
  if (!state.on_cpu() || request.matrices.count == 1) return run(state, op->op, request);
  for (std::int64_t i = 0; i < request.matrices.count; ++i)
    run(state, op->op, matrix_of(request, i));
}

}  // namespace

void run(ContextState& state, const Request& request) {
  if (results_wanted(request) == 0) return;
  if (request.matrices.count != 1) return run_matrices(state, request);
  if (const OpParts* op = single_pass(request)) return run(state, op->op, request);
  run_passes(state, request);
}

void run(ContextState& state, Op op, const Request& request) {
  const ConstAnyMatrix floats =
      parts_of(op).source == Source::codes ? ConstAnyMatrix(request.value) : request.x;
  SWITCHBACK_ASSERT(floats.rows == 0 || floats.cols == 0 ||
                    results_made(parts_of(op), request) == results_wanted(request));
  Problem problem;
  problem.op = op;
  problem.dtype = floats.dtype;
  problem.rows = floats.rows;
  problem.cols = floats.cols;
  problem.block_rows = request.q_t.block_rows;
  problem.device = state.device.kind;
  if (state.on_cpu()) {
    problem.threads = state.threads.count();
    problem.isa = state.features.level();
  }
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(floats.dtype));
  problem.alignment = core::alignment_class(
      state, {floats.data, request.q.codes.data, request.q_t.codes.data, request.x.data},
      {floats.stride * element});
  Config config;
  if (!is_tuned(op) || !find_tuned(state, problem, config)) config = default_config(problem, state);
  run(state, problem, config, request);
}

namespace {

void run_reference(const GatheredRows& o) {
  for (std::int64_t r = 0; r < o.q.rows; ++r)
    if (o.rows[r] != nullptr)
      reference::run({.x = {o.rows[r], o.dtype, 1, o.q.cols, o.q.cols},
                      .q = {Scales::per_row,
                            {o.q.data + r * o.q.stride, 1, o.q.cols, o.q.stride},
                            {o.absmax + r, 1}}});
}

}  // namespace

void quantize_gathered(ContextState& state, const GatheredRows& o) {
  SWITCHBACK_ASSERT(state.on_cpu());
  Problem problem;
  problem.op = Op::rowwise;
  problem.dtype = o.dtype;
  problem.rows = o.q.rows;
  problem.cols = o.q.cols;
  problem.threads = state.threads.count();
  problem.isa = state.features.level();
  const Config config = default_config(problem, state);
  if (config.engine == Engine::reference || o.q.rows == 0 || o.q.cols == 0)
    state.threads.for_each(1, [&](std::int64_t, int) { run_reference(o); });
  else
    cpu::rowwise_gathered(state, config, o);
}

}  // namespace switchback::quant
