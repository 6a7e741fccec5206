// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/candidates.hpp"

#include <algorithm>
#include <array>

#include "core/check.hpp"
#include "core/dry_run.hpp"

namespace switchback::gemm_int8 {

namespace {

// A part of a configuration that only some engines support. For the other engines it must have its
// initial value.
struct Part {
  ConfigParts bit;
  std::string_view what;
  bool (*is_used)(const GemmConfig& config);
};
constexpr std::array parts = {
    Part{part_clusters, "clusters", [](const GemmConfig& c) { return c.cluster != 0; }},
    Part{part_order, "an order of tiles",
         [](const GemmConfig& c) { return c.raster != 0 || c.swizzle != 0; }},
    Part{part_cublaslt, "a cuBLASLt algorithm or workspace",
         [](const GemmConfig& c) { return c.cublaslt != CublasLtChoice{}; }},
};

}  // namespace

std::string describe(const GemmConfig& c) {
  return fmt::format("{} {} mc={} nc={} kc={} threads={}", engine_name(c.engine),
                     c.weights == Weights::packed ? "packed" : "plain", c.mc, c.nc, c.kc,
                     c.threads) +
         (c.algorithm != 0 ? fmt::format(" algorithm={}", c.algorithm) : "") +
         describe(c.cublaslt) + (c.cluster != 0 ? fmt::format(" cluster={}", c.cluster) : "") +
         (c.raster != 0 ? fmt::format(" raster={}", c.raster) : "") +
         (c.swizzle != 0 ? fmt::format(" swizzle={}", c.swizzle) : "");
}

namespace {

// The problem that an engine is asked about. An engine that does not accept groups is asked about
// the product of one group.
GemmProblem seen_by(const Engine& engine, const GemmProblem& problem) {
  return problem.has_groups() && !(engine.takes_groups && problem.groups > 0)
             ? mean_problem(problem)
             : problem;
}

std::string_view name_of(const GemmProblem& problem) {
  return problem.has_groups() ? "grouped_gemm" : "gemm";
}

// Returns `first`, and those configurations of `more` that differ from all before them.
std::vector<GemmConfig> distinct(const GemmConfig& first, const std::vector<GemmConfig>& more) {
  std::vector<GemmConfig> found = {first};
  for (const GemmConfig& config : more)
    if (std::find(found.begin(), found.end(), config) == found.end()) found.push_back(config);
  return found;
}

bool reads(const ContextState& state, const Engine& engine, EngineId packed_for) {
  return packed_for == EngineId::none || reads_layout(state.device.kind, engine, packed_for);
}

// How a kernel finds the scales; part of its identity. Groups with one scale for each group find
// their scales in another way, in another kernel. For a single product both ways read the same
// address.
std::int64_t scales_of(const GemmProblem& problem) {
  return problem.has_groups() ? static_cast<std::int64_t>(problem.scale) : 0;
}

// The configurations of those `kernels` that belong to an engine and compute a problem.
std::vector<GemmConfig> configs_of(const GemmProblem& problem, const Engine& engine,
                                   const std::vector<core::KernelId>& kernels) {
  std::vector<GemmConfig> found;
  GemmConfig config;
  for (const core::KernelId& kernel : kernels)
    if (kernel.output == static_cast<std::int64_t>(problem.output) &&
        kernel.variant == scales_of(problem) && from_choice(kernel.config, config) &&
        config.engine == engine.id)
      found.push_back(config);
  return found;
}

}  // namespace

bool needs_validation(const GemmProblem& problem, const GemmConfig& config,
                      const ContextState& state) {
  const Engine* engine = find_engine(state.device.kind, config.engine);
  return engine != nullptr && engine->needs_trust() && !engine->is_trusted(problem, config, state);
}

bool kernel_of(DeviceKind device, const GemmProblem& problem, const GemmConfig& config,
               core::KernelId& kernel) {
  const Engine* engine = find_engine(device, config.engine);
  if (engine == nullptr || engine->kernel_of == nullptr) return false;
  kernel = {static_cast<std::int64_t>(problem.output), scales_of(problem),
            to_choice(engine->kernel_of(config))};
  return true;
}

namespace {

std::vector<GemmConfig> list_candidates(const GemmProblem& problem, const ContextState& state,
                                        bool all) {
  std::vector<GemmConfig> more;
  for (const Engine* engine : engines(state.device.kind)) {
    if (!reads(state, *engine, problem.packed_for) || !refusal(*engine, problem, state).empty())
      continue;
    if (problem.has_groups()) more.push_back(default_config(*engine, problem, state));
    if (problem.has_groups() && !engine->takes_groups) continue;
    (all && engine->all_candidates != nullptr ? engine->all_candidates : engine->candidates)(
        problem, state, more);
  }
  return distinct(default_config(problem, state), more);
}

}  // namespace

std::vector<GemmConfig> candidates(const GemmProblem& problem, const ContextState& state) {
  return list_candidates(problem, state, false);
}

std::vector<GemmConfig> all_candidates(const GemmProblem& problem, const ContextState& state) {
  return list_candidates(problem, state, true);
}

namespace {

// Finds the default configuration of the first engine that needs trust, reads b's layout and has a
// kernel that may run. Returns false if there is no such engine.
bool trusted_default(const GemmProblem& problem, const ContextState& state,
                     const core::KnownKernels& known, GemmConfig& config) {
  if (problem.groups == 0) return false;
  for (const Engine* engine : engines(state.device.kind)) {
    if (!engine->needs_trust() || !refusal(*engine, problem, state).empty() ||
        !reads(state, *engine, problem.packed_for))
      continue;
    const KnownConfigs of_problem = {configs_of(problem, *engine, known.right),
                                     configs_of(problem, *engine, known.wrong)};
    if (engine->default_among(problem, state, of_problem, config)) return true;
  }
  return false;
}

}  // namespace

GemmConfig default_config(const GemmProblem& problem, const ContextState& state) {
  return default_config(problem, state, {});
}

GemmConfig default_config(const Engine& engine, const GemmProblem& problem,
                          const ContextState& state) {
  return engine.default_config(seen_by(engine, problem), state);
}

GemmConfig default_config(const GemmProblem& problem, const ContextState& state,
                          const core::KnownKernels& known) {
  GemmConfig trusted;
  if (trusted_default(problem, state, known, trusted)) return trusted;
  if (problem.packed_for != EngineId::none) {
    const Engine* engine = find_engine(state.device.kind, problem.packed_for);
    core::require(engine != nullptr, "{}: packed_for = {}; no engine has this number",
                  name_of(problem), static_cast<std::int64_t>(problem.packed_for));
    const std::string_view reason = refusal(*engine, problem, state);
    if (reason.empty()) return default_config(*engine, problem, state);
    // Other engines of the device may accept the problem and read the same layout.
    for (const Engine* other : engines(state.device.kind))
      if (!other->needs_trust() && reads_layout(state.device.kind, *other, engine->id) &&
          refusal(*other, problem, state).empty())
        return default_config(*other, problem, state);
    core::fail(Status::unsupported, "{}: b is packed for engine '{}', which cannot run here: {}",
               name_of(problem), engine->name, reason);
  }
  for (const Engine* engine : engines(state.device.kind))
    if (!engine->needs_trust() && refusal(*engine, problem, state).empty())
      return default_config(*engine, problem, state);
  return default_config(*engines(state.device.kind).back(), problem, state);
}

namespace {

// Why the engine itself refuses a configuration; empty if it does not.
std::string refused_by(const Engine& engine, const GemmProblem& problem, const GemmConfig& config,
                       const ContextState& state) {
  // Libraries are not asked about empty products, because they never get one.
  if (engine.invalid_config == nullptr || problem.m == 0 || problem.n == 0) return {};
  return engine.invalid_config(seen_by(engine, problem), config, state);
}

std::string check(const GemmProblem& problem, const GemmConfig& config, const ContextState& state,
                  bool in_range) {
  const Engine* engine = find_engine(state.device.kind, config.engine);
  if (engine == nullptr)
    return fmt::format("engine number {} is unknown", static_cast<std::int64_t>(config.engine));
  if (!reads(state, *engine, problem.packed_for))
    return fmt::format("b is packed for engine '{}', not for '{}'", engine_name(problem.packed_for),
                       engine->name);
  const std::string_view reason = refusal(*engine, problem, state);
  if (!reason.empty()) return fmt::format("engine '{}': {}", engine->name, reason);
  if (!in_range)
    if (std::string invalid = out_of_range(config); !invalid.empty()) return invalid;
  for (const Part& part : parts)
    if ((engine->config_parts & part.bit) == 0 && part.is_used(config))
      return fmt::format("engine '{}' does not support {}", engine->name, part.what);
  std::string refused = refused_by(*engine, problem, config, state);
  return refused.empty() ? refused : fmt::format("engine '{}': {}", engine->name, refused);
}

}  // namespace

std::string check_config(const GemmProblem& problem, const GemmConfig& config,
                         const ContextState& state) {
  return check(problem, config, state, false);
}

std::string check_read_config(const GemmProblem& problem, const GemmConfig& config,
                              const ContextState& state) {
  return check(problem, config, state, true);
}

std::string provenance(const GemmProblem& problem, const GemmConfig& config,
                       const ContextState& state) {
  const Engine* engine = find_engine(state.device.kind, config.engine);
  if (engine == nullptr || engine->provenance == nullptr || problem.m == 0 || problem.n == 0 ||
      !refusal(*engine, problem, state).empty())
    return {};
  return engine->provenance(problem, config, state);
}

void run(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
         const GemmOperands& operands) {
  const std::string reason = check_config(problem, config, state);
  if (!reason.empty()) core::fail(Status::unsupported, "{}: {}", name_of(problem), reason);
  run_checked(state, problem, config, operands);
}

namespace {

void run_groups(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
                const GemmOperands& operands) {
  const Engine& engine = *find_engine(state.device.kind, config.engine);
  // For K = 0 only the epilogue is left, which the last engine of a device computes.
  if (engine.takes_groups && (problem.k > 0 || !state.on_cpu())) {
    GemmProblem p = problem;
    // The size of a packed group, in case the engine packs b for this call.
    if (p.packed_for == EngineId::none)
      p.packed_step_bytes = packed_step(engine.packed_bytes(p.n, p.k));
    return engine.run(state, p, config, operands);
  }
  core::all_or_nothing(state, [&] {
    for (std::int64_t g = 0; g < problem.groups; ++g) {
      const GemmProblem one = problem_of(problem, operands.rows[static_cast<std::size_t>(g)]);
      if (one.m == 0) continue;
      run_checked(state, one, engine.default_config(one, state), operands_of(problem, operands, g));
    }
  });
}

}  // namespace

void run_checked(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
                 const GemmOperands& operands) {
  if (problem.groups == 0 || problem.m == 0 || problem.n == 0) return;
  if (problem.has_groups()) return run_groups(state, problem, config, operands);
  // For K = 0 only the epilogue is left, which the last engine of a device computes.
  const Engine& engine = problem.k == 0 ? *engines(state.device.kind).back()
                                        : *find_engine(state.device.kind, config.engine);
  engine.run(state, problem, config, operands);
}

}  // namespace switchback::gemm_int8
