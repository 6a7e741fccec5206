// SPDX-License-Identifier: Apache-2.0
#include "quant/gathered.hpp"

#include "core/assert.hpp"
#include "quant/config.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/reference.hpp"

namespace switchback::quant {

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
