// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/dispatch.hpp"

#include <string>
#include <utility>

#include "core/assert.hpp"
#include "core/check.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/packed_weight.hpp"
#include "gemm/int8/product.hpp"
#include "gemm/tuned.hpp"

namespace switchback::gemm_int8 {

namespace {

// The engine that the caller forces by name; null if the caller forces none. Throws Error if it
// cannot run the problem.
const Engine* forced_engine(const ContextState& state, std::string_view op,
                            const GemmProblem& problem, std::string_view forced) {
  if (!forced.empty()) {
    const Engine* engine = &named_engine(op, forced, state);
    const std::string_view reason = refusal(*engine, problem, state);
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

void set_alignment(const ContextState& state, Product& product) {
  const GemmOperands& o = product.operands;
  product.problem.alignment = core::alignment_class(state, {o.a, o.b, o.packed_b, o.d});
}

// Runs the tuned configuration if there is one that is valid here and, with a forced engine,
// belongs to that engine. Otherwise returns false.
bool run_tuned(ContextState& state, const GemmProblem& problem, const GemmOperands& operands,
               const Engine* forced) {
  if (state.config_source == nullptr) return false;
  return products::run_tuned<GemmConfig>(
      state, problem.has_groups() ? grouped_tunable : tunable, to_query(problem, state),
      [&](const GemmConfig& config) { return forced == nullptr || config.engine == forced->id; },
      [&](const GemmConfig& config) { return check_read_config(problem, config, state); },
      [&](const GemmConfig& config) { run_checked(state, problem, config, operands); });
}

}  // namespace

void multiply(ContextState& state, std::string_view op, Product& product, std::string_view forced) {
  GemmProblem& problem = product.problem;
  const GemmOperands& operands = product.operands;
  set_alignment(state, product);
  const Engine* engine = forced_engine(state, op, problem, forced);
  const auto by_default = [&] {
    return engine != nullptr ? default_config(*engine, problem, state)
                             : default_config(problem, state);
  };
  if (problem.has_groups() && (problem.groups == 0 || problem.m == 0 || problem.n == 0)) {
    by_default();  // throws if no engine can run the problem
    return;
  }
  if (run_tuned(state, problem, operands, engine)) return;
  const GemmConfig config = by_default();
  try {
    return run_checked(state, problem, config, operands);  // a default configuration needs no check
  } catch (const Error& error) {
    const Engine& last = *engines(state.device.kind).back();
    if (error.status() != Status::unsupported || !forced.empty() || state.on_cpu() ||
        config.engine == last.id)
      throw;
    run_checked(state, problem, default_config(last, problem, state), operands);
  }
}

void multiply(ContextState& state, const GemmS8S8S32Args& args) {
  Product product = product_of(args);
  SWITCHBACK_ASSERT(args.d.rows == product.problem.m && args.d.cols == product.problem.n);
  multiply(state, "gemm_s8s8s32", product, args.engine);
}

void multiply(ContextState& state, const GemmArgs& args) {
  Product product = product_of(args);
  SWITCHBACK_ASSERT(args.d.rows == product.problem.m && args.d.cols == product.problem.n);
  add_scales(args, product);
  multiply(state, "gemm", product, args.engine);
}

bool multiply_rotated(ContextState& state, const GemmArgs& args, int group) {
  Product product = product_of(args);
  auto& [problem, operands] = product;
  SWITCHBACK_ASSERT(args.d.rows == problem.m && args.d.cols == problem.n);
  SWITCHBACK_ASSERT(args.bias.data == nullptr);
  add_scales(args, product);
  set_alignment(state, product);
  if (size_of(problem).is_empty) return false;
  for (const Engine* engine : engines(state.device.kind)) {
    if (engine->rotates == nullptr || (!args.engine.empty() && args.engine != engine->name))
      continue;
    if (!refusal(*engine, problem, state).empty() || !engine->rotates(problem, group, state))
      continue;
    engine->run_rotated(state, problem, group, operands);
    return true;
  }
  return false;
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
  // `out` counts as empty until the copies are queued: a device can fail here
  packed.engine = nullptr;
  for (std::int64_t g = 0; g < groups; ++g)
    packer->pack(state, {b.data + g * n * b.stride, n, b.cols, b.stride},
                 packed.buffer.as<std::byte>() + g * packed.step_bytes);
  packed.engine = packer;
}

void unpack(ContextState& state, const PackedWeight& b, MatrixView<std::int8_t> codes) {
  const PackedWeightState& from = b.state();
  SWITCHBACK_ASSERT(codes.rows == from.groups * from.rows && codes.cols == from.cols);
  if (codes.rows == 0 || codes.cols == 0) return;
  for (std::int64_t g = 0; g < from.groups; ++g)
    from.engine->unpack(
        state, from.buffer.as<const std::byte>() + g * from.step_bytes,
        {codes.data + g * from.rows * codes.stride, from.rows, from.cols, codes.stride});
}

void pack_transposed(ContextState& state, const PackedWeight& b, PackedWeight& out) {
  const PackedWeightState& from = b.state();
  const Engine* packer = from.engine;
  PackedWeightState& packed = make_packed(state, *packer, from.groups, from.cols, from.rows, out);
  packed.engine = nullptr;
  for (std::int64_t g = 0; g < from.groups; ++g)
    packer->pack_transposed(state, from.rows, from.cols,
                            from.buffer.as<const std::byte>() + g * from.step_bytes,
                            packed.buffer.as<std::byte>() + g * packed.step_bytes);
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
  // Codes that exceed a second-level cache are packed with non-temporal stores. A training step
  // makes two forms of the codes, and much else happens before the second form is read. On two
  // cores of Sapphire Rapids with 2 MiB of L2 each and 4 MiB of codes a form, steps took 0.82 to
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
