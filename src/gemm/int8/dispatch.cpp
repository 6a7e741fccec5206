// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/dispatch.hpp"

#include <string>
#include <utility>

#include "core/assert.hpp"
#include "core/check.hpp"
#include "gemm/int8/block_packer.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/packed_weight.hpp"
#include "gemm/int8/product.hpp"
#include "gemm/int8/tuned.hpp"

namespace switchback::gemm_int8 {

namespace {

// The engine that is forced by name; null if none is forced.
const Engine* forced_engine(const ContextState& state, std::string_view op,
                            const GemmProblem& problem, std::string_view forced) {
  if (!forced.empty()) {
    const Engine* engine = &named_engine(op, forced, state);
    const std::string_view reason = engine->rejects(problem, state);
    if (!reason.empty())
      core::fail(Status::unsupported, "{}: engine '{}' cannot run {}: {}", op, forced,
                 describe(problem), reason);
    return engine;
  }
  if (problem.packed_for != EngineId::none) {
    const Engine* packer = find_engine(state.device.kind, problem.packed_for);
    const std::string_view reason = packer->unavailable(state);
    if (!reason.empty())
      core::fail(Status::unsupported,
                 "{}: packed_b is packed for engine '{}', which is not available: {}", op,
                 packer->name, reason);
  }
  return nullptr;
}

// Runs the tuned configuration. If there is none, runs the default of the forced engine, of the
// engine that b is packed for, or of the first that accepts the problem. A library may have no
// algorithm for a problem that its engine accepts. Then, unless that engine was forced, the
// device's last engine runs: it accepts everything and reads the packed form of the other engines.
void choose_and_run(ContextState& state, std::string_view op, Product product,
                    std::string_view forced) {
  auto& [problem, operands] = product;
  problem.alignment =
      core::alignment_class(state, {operands.a, operands.b, operands.packed_b, operands.d});
  const Engine* engine = forced_engine(state, op, problem, forced);
  if (run_tuned(state, problem, operands, engine)) return;
  const GemmConfig config =
      engine != nullptr ? engine->default_config(problem, state) : default_config(problem, state);
  try {
    return run_checked(state, problem, config, operands);  // engines' default configurations run
  } catch (const Error& error) {
    const Engine& last = *engines(state.device.kind).back();
    if (error.status() != Status::unsupported || !forced.empty() || state.on_cpu() ||
        config.engine == last.id)
      throw;
    last.run(state, problem, last.default_config(problem, state), operands);
  }
}

}  // namespace

void multiply(ContextState& state, const GemmS8S8S32Args& args) {
  const Product product = product_of(args);
  SWITCHBACK_ASSERT(args.d.rows == product.problem.m && args.d.cols == product.problem.n);
  choose_and_run(state, "gemm_s8s8s32", product, args.engine);
}

void multiply(ContextState& state, const GemmArgs& args) {
  Product product = product_of(args);
  SWITCHBACK_ASSERT(args.d.rows == product.problem.m && args.d.cols == product.problem.n);
  add_scales(args, product);
  choose_and_run(state, "gemm", product, args.engine);
}

namespace {

// Makes `out` hold `groups` packed B[n,k] of this engine, whose bytes are not written yet.
PackedWeightState& make_packed(ContextState& state, const Engine& engine, std::int64_t groups,
                               std::int64_t n, std::int64_t k, PackedWeight& out) {
  if (out.empty()) out = PackedWeight();  // a moved-from object has no state
  PackedWeightState& packed = out.state();
  const std::size_t bytes = engine.packed_bytes(n, k);
  const std::int64_t step = packed_step(bytes);
  packed.buffer.reserve(static_cast<std::size_t>(step * (groups - 1)) + bytes, state.runtime);
  packed.engine = &engine;
  packed.device = state.device;
  packed.rows = n;
  packed.cols = k;
  packed.groups = groups;
  packed.step_bytes = step;
  return packed;
}

}  // namespace

PackedRows begin_packed_rows(ContextState& state, std::int64_t groups, std::int64_t n,
                             std::int64_t k, PackedWeight& out, std::string_view engine,
                             bool fresh) {
  const Engine* packer = &packing_engine("pack_weight", state, engine);
  if (packer->packed_stride == nullptr || state.runtime == nullptr) return {};
  PackedWeightState& packed = make_packed(state, *packer, groups, n, k, out);
  const std::size_t bytes = packer->packed_bytes(n, k);
  if (fresh && bytes != static_cast<std::size_t>(n * k))
    state.runtime->fill(packed.buffer.as<void>(), 0,
                        static_cast<std::size_t>(packed.step_bytes * (groups - 1)) + bytes);
  return {{packed.buffer.as<std::int8_t>(), n, k, packer->packed_stride(n, k)}, packed.step_bytes};
}

void pack(ContextState& state, std::string_view op, MatrixView<const std::int8_t> b,
          std::int64_t groups, PackedWeight& out, std::string_view engine) {
  const Engine* packer = &packing_engine(op, state, engine);
  const std::int64_t n = b.rows / groups;
  PackedWeightState& packed = make_packed(state, *packer, groups, n, b.cols, out);
  packed.engine = nullptr;  // until the copies are queued: a device can fail here
  for (std::int64_t g = 0; g < groups; ++g)
    packer->pack(state, {b.data + g * n * b.stride, n, b.cols, b.stride},
                 packed.buffer.as<std::byte>() + g * packed.step_bytes);
  packed.engine = packer;
}

void unpack(ContextState& state, const PackedWeight& b, MatrixView<std::int8_t> codes) {
  const PackedWeightState& from = b.state();
  SWITCHBACK_ASSERT(from.groups == 1 && codes.rows == from.rows && codes.cols == from.cols);
  if (codes.rows == 0 || codes.cols == 0) return;
  from.engine->unpack(state, from.buffer.as<const void>(), codes);
}

void pack_transposed(ContextState& state, const PackedWeight& b, PackedWeight& out) {
  const PackedWeightState& from = b.state();
  SWITCHBACK_ASSERT(from.groups == 1);
  const Engine* packer = from.engine;
  PackedWeightState& packed = make_packed(state, *packer, 1, from.cols, from.rows, out);
  packed.engine = nullptr;
  packer->pack_transposed(state, from.rows, from.cols, from.buffer.as<const void>(),
                          packed.buffer.as<void>());
  packed.engine = packer;
}

bool BlockPacker::begin(ContextState& state, std::int64_t groups, std::int64_t n, std::int64_t k,
                        PackedWeight& out, std::string_view engine) {
  const Engine& packer = packing_engine("pack_weight", state, engine);
  if (packer.pack_rows == nullptr) return false;
  const PackedWeightState& packed = make_packed(state, packer, groups, n, k, out);
  engine_ = &packer;
  k_ = k;
  data_ = packed.buffer.as<std::byte>();
  step_bytes_ = packed.step_bytes;
  // A training step makes two forms of the codes, and much else happens before the second is read.
  // On two cores of Sapphire Rapids with 2 MiB each and 4 MiB of codes a form, steps took 0.82 to
  // 0.92 of the time at 256 rows and 0.94 to 0.98 at 1024. With 1 MiB of codes nothing changed.
  const std::size_t l2 = core::cpu_caches().l2_bytes;
  const bool large = static_cast<std::size_t>(groups * step_bytes_) >= l2;
  stores_ = wanted_.value_or(l2 > 0 && large ? Stores::streaming : Stores::cached);
  return true;
}

void BlockPacker::take(const core::CodeBlock& block) const noexcept {
  std::byte* const out = data_ + block.matrix * step_bytes_;
  if (blocks_ == Blocks::of_b)
    engine_->pack_rows(k_, block, out, stores_);
  else
    engine_->pack_columns(k_, block, out, stores_);
}

}  // namespace switchback::gemm_int8
