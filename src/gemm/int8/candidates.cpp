// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/candidates.hpp"

#include <algorithm>
#include <array>

#include "core/check.hpp"
#include "core/rehearsal.hpp"

namespace switchback::gemm_int8 {

namespace {

std::string_view scale_name(ScaleMode mode) {
  switch (mode) {
    case ScaleMode::none:
      return "unscaled";
    case ScaleMode::row_col:
      return "row_col";
    case ScaleMode::row_scalar:
      return "row_scalar";
  }
  return "unknown";
}

// What only some engines have. For others it must be as it is made.
struct Part {
  ConfigParts bit;
  std::string_view what;
  bool (*is_used)(const GemmConfig& config);
};
constexpr std::array parts = {
    Part{part_clusters, "clusters", [](const GemmConfig& c) { return c.cluster != 0; }},
    Part{part_order, "order of tiles",
         [](const GemmConfig& c) { return c.raster != 0 || c.swizzle != 0; }},
    Part{part_cublaslt, "algorithms or workspace of cuBLASLt",
         [](const GemmConfig& c) { return c.cublaslt != CublasLtChoice{}; }},
};

}  // namespace

std::string describe(const GemmProblem& p) {
  return fmt::format("m={} n={} k={} {} {} bias={} packed={} strides {},{},{}", p.m, p.n, p.k,
                     dtype_name(p.output), scale_name(p.scale),
                     p.has_bias ? dtype_name(p.bias) : "none", engine_name(p.packed_for),
                     p.stride_a, p.stride_b, p.stride_d) +
         (p.alignment == 1 ? " unaligned" : "");
}

std::string describe(const GemmConfig& c) {
  return fmt::format("{} {} mc={} nc={} kc={} threads={}", engine_name(c.engine),
                     c.weights == Weights::packed ? "packed" : "plain", c.mc, c.nc, c.kc,
                     c.threads) +
         (c.algorithm != 0 ? fmt::format(" algorithm={}", c.algorithm) : "") +
         describe(c.cublaslt) + (c.cluster != 0 ? fmt::format(" cluster={}", c.cluster) : "") +
         (c.raster != 0 ? fmt::format(" raster={}", c.raster) : "") +
         (c.swizzle != 0 ? fmt::format(" swizzle={}", c.swizzle) : "");
}

core::ProblemSize size_of(const GemmProblem& p) noexcept {
  return core::product_size(p.m, p.n, p.k);
}

bool is_risky(const GemmProblem& problem, const GemmConfig& config, const ContextState& state) {
  const Engine* engine = find_engine(state.device.kind, config.engine);
  return engine != nullptr && engine->needs_trust() && !engine->is_trusted(problem, config, state);
}

bool is_risky(const GroupedProblem& problem, const GemmConfig& config, const ContextState& state) {
  const Engine* engine = find_engine(state.device.kind, config.engine);
  return engine != nullptr && engine->needs_trust() &&
         !engine->is_trusted_for_groups(problem, config, state);
}

namespace {

// `first`, and those of `more` that are not known yet.
std::vector<GemmConfig> distinct(const GemmConfig& first, const std::vector<GemmConfig>& more) {
  std::vector<GemmConfig> found = {first};
  for (const GemmConfig& config : more)
    if (std::find(found.begin(), found.end(), config) == found.end()) found.push_back(config);
  return found;
}

bool reads(const ContextState& state, const Engine& engine, EngineId packed_for) {
  return packed_for == EngineId::none || reads_layout(state.device.kind, engine, packed_for);
}

// The problem of each group.
const GemmProblem& each_of(const GemmProblem& problem) {
  return problem;
}
const GemmProblem& each_of(const GroupedProblem& problem) {
  return problem.each;
}

// Groups find their scales in another way where there is one for each group: that is another
// kernel. A single product reads the same address either way.
std::int64_t scales_of(const GemmProblem&) {
  return 0;
}
std::int64_t scales_of(const GroupedProblem& problem) {
  return static_cast<std::int64_t>(problem.each.scale);
}

template <class Problem>
bool find_kernel(DeviceKind device, const Problem& problem, const GemmConfig& config,
                 core::RiskyKernel& kernel) {
  const Engine* engine = find_engine(device, config.engine);
  if (engine == nullptr || engine->kernel_of == nullptr) return false;
  kernel = {static_cast<std::int64_t>(each_of(problem).output), scales_of(problem),
            to_choice(engine->kernel_of(config))};
  return true;
}

// Those of an engine that compute a problem.
template <class Problem>
std::vector<GemmConfig> configs_of(const Problem& problem, const Engine& engine,
                                   const std::vector<core::RiskyKernel>& kernels) {
  std::vector<GemmConfig> found;
  GemmConfig config;
  for (const core::RiskyKernel& kernel : kernels)
    if (kernel.output == static_cast<std::int64_t>(each_of(problem).output) &&
        kernel.variant == scales_of(problem) && from_choice(kernel.config, config) &&
        config.engine == engine.id)
      found.push_back(config);
  return found;
}

}  // namespace

bool kernel_of(DeviceKind device, const GemmProblem& problem, const GemmConfig& config,
               core::RiskyKernel& kernel) {
  return find_kernel(device, problem, config, kernel);
}
bool kernel_of(DeviceKind device, const GroupedProblem& problem, const GemmConfig& config,
               core::RiskyKernel& kernel) {
  return find_kernel(device, problem, config, kernel);
}

namespace {

void add_candidates(const Engine& engine, const GemmProblem& problem, const ContextState& state,
                    bool all, std::vector<GemmConfig>& out) {
  (all && engine.all_candidates != nullptr ? engine.all_candidates : engine.candidates)(problem,
                                                                                        state, out);
}

std::vector<GemmConfig> list_candidates(const GemmProblem& problem, const ContextState& state,
                                        bool all) {
  std::vector<GemmConfig> more;
  for (const Engine* engine : engines(state.device.kind))
    if (reads(state, *engine, problem.packed_for) && refusal(*engine, problem, state).empty())
      add_candidates(*engine, problem, state, all, more);
  return distinct(default_config(problem, state), more);
}

std::vector<GemmConfig> list_candidates(const GroupedProblem& problem, const ContextState& state,
                                        bool all) {
  std::vector<GemmConfig> more;
  for (const Engine* engine : engines(state.device.kind)) {
    if (!reads(state, *engine, problem.each.packed_for) ||
        !refusal(*engine, problem, state).empty())
      continue;
    more.push_back(default_config(*engine, problem, state));
    if (engine->run_grouped == nullptr) continue;
    if (engine->grouped_candidates != nullptr)
      engine->grouped_candidates(problem, state, more);
    else
      add_candidates(*engine, mean_problem(problem), state, all, more);
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

std::vector<GemmConfig> candidates(const GroupedProblem& problem, const ContextState& state) {
  return list_candidates(problem, state, false);
}

std::vector<GemmConfig> all_candidates(const GroupedProblem& problem, const ContextState& state) {
  return list_candidates(problem, state, true);
}

namespace {

// Of an engine and a problem: the default of its kernels that are trusted here or known to be
// right.
bool default_among(const Engine& engine, const GemmProblem& problem, const ContextState& state,
                   const KnownConfigs& known, GemmConfig& config) {
  return engine.default_among(problem, state, known, config);
}
bool default_among(const Engine& engine, const GroupedProblem& problem, const ContextState& state,
                   const KnownConfigs& known, GemmConfig& config) {
  return engine.grouped_default_among(problem, state, known, config);
}

// The default of the first engine whose kernels need trust, reads b and has a kernel that may run.
template <class Problem>
bool trusted_default(const Problem& problem, const ContextState& state,
                     const core::KnownKernels& known, GemmConfig& config) {
  for (const Engine* engine : engines(state.device.kind)) {
    if (!engine->needs_trust() || !refusal(*engine, problem, state).empty() ||
        !reads(state, *engine, each_of(problem).packed_for))
      continue;
    const KnownConfigs of_problem = {configs_of(problem, *engine, known.right),
                                     configs_of(problem, *engine, known.wrong)};
    if (default_among(*engine, problem, state, of_problem, config)) return true;
  }
  return false;
}

}  // namespace

GemmConfig default_config(const GemmProblem& problem, const ContextState& state) {
  return default_config(problem, state, {});
}

GemmConfig default_config(const GemmProblem& problem, const ContextState& state,
                          const core::KnownKernels& known) {
  GemmConfig trusted;
  if (trusted_default(problem, state, known, trusted)) return trusted;
  if (problem.packed_for != EngineId::none) {
    const Engine* engine = find_engine(state.device.kind, problem.packed_for);
    core::require(engine != nullptr, "gemm: packed_for = {}; there is no such engine",
                  static_cast<std::int64_t>(problem.packed_for));
    const std::string_view reason = refusal(*engine, problem, state);
    if (reason.empty()) return engine->default_config(problem, state);
    // Other engines of the device may accept the problem and read the same layout.
    for (const Engine* other : engines(state.device.kind))
      if (!other->needs_trust() && reads_layout(state.device.kind, *other, engine->id) &&
          refusal(*other, problem, state).empty())
        return other->default_config(problem, state);
    core::fail(Status::unsupported, "gemm: b is packed for engine '{}', which cannot run here: {}",
               engine->name, reason);
  }
  for (const Engine* engine : engines(state.device.kind))
    if (!engine->needs_trust() && refusal(*engine, problem, state).empty())
      return engine->default_config(problem, state);
  return engines(state.device.kind).back()->default_config(problem, state);
}

GemmConfig default_config(const Engine& engine, const GroupedProblem& problem,
                          const ContextState& state) {
  return engine.grouped_default != nullptr && problem.groups > 0
             ? engine.grouped_default(problem, state)
             : engine.default_config(mean_problem(problem), state);
}

GemmConfig default_config(const GroupedProblem& problem, const ContextState& state) {
  return default_config(problem, state, {});
}

GemmConfig default_config(const GroupedProblem& problem, const ContextState& state,
                          const core::KnownKernels& known) {
  GemmConfig trusted;
  if (problem.groups > 0 && trusted_default(problem, state, known, trusted)) return trusted;
  const EngineId packed_for = problem.each.packed_for;
  for (const Engine* engine : engines(state.device.kind))
    if (!engine->needs_trust() && refusal(*engine, problem, state).empty() &&
        reads(state, *engine, packed_for))
      return default_config(*engine, problem, state);
  if (packed_for == EngineId::none)
    core::fail(Status::unsupported, "grouped_gemm: no engine that runs on {} has a grouped product",
               state.device);
  core::fail(Status::unsupported,
             "grouped_gemm: packed_b is packed for engine '{}', and no engine that runs here reads "
             "it",
             engine_name(packed_for));
}

namespace {

// What the engine itself says against a configuration.
std::string refused_by(const Engine& engine, const GemmProblem& problem, const GemmConfig& config,
                       const ContextState& state) {
  // An empty product is not given to a library.
  if (engine.refuses_config == nullptr || problem.m == 0 || problem.n == 0) return {};
  return engine.refuses_config(problem, config, state);
}
std::string refused_by(const Engine& engine, const GroupedProblem& problem,
                       const GemmConfig& config, const ContextState& state) {
  if (engine.refuses_grouped_config != nullptr)
    return engine.refuses_grouped_config(problem, config, state);
  return refused_by(engine, mean_problem(problem), config, state);
}

template <class Problem>
std::string check(const Problem& problem, const GemmConfig& config, const ContextState& state,
                  bool in_range) {
  const Engine* engine = find_engine(state.device.kind, config.engine);
  if (engine == nullptr)
    return fmt::format("engine number {} is unknown", static_cast<std::int64_t>(config.engine));
  const EngineId packed_for = each_of(problem).packed_for;
  if (!reads(state, *engine, packed_for))
    return fmt::format("b is packed for engine '{}', not for '{}'", engine_name(packed_for),
                       engine->name);
  const std::string_view reason = refusal(*engine, problem, state);
  if (!reason.empty()) return fmt::format("engine '{}': {}", engine->name, reason);
  if (!in_range)
    if (std::string invalid = out_of_range(config); !invalid.empty()) return invalid;
  for (const Part& part : parts)
    if ((engine->config_parts & part.bit) == 0 && part.is_used(config))
      return fmt::format("engine '{}' has no {}", engine->name, part.what);
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

std::string check_config(const GroupedProblem& problem, const GemmConfig& config,
                         const ContextState& state) {
  return check(problem, config, state, false);
}

std::string check_read_config(const GroupedProblem& problem, const GemmConfig& config,
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
  if (!reason.empty()) core::fail(Status::unsupported, "gemm: {}", reason);
  run_checked(state, problem, config, operands);
}

void run_checked(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
                 const GemmOperands& operands) {
  if (problem.m == 0 || problem.n == 0) return;
  // K = 0: only the epilogue is left, which the last engine of a device computes.
  const Engine& engine = problem.k == 0 ? *engines(state.device.kind).back()
                                        : *find_engine(state.device.kind, config.engine);
  engine.run(state, problem, config, operands);
}

void run(ContextState& state, const GroupedProblem& problem, const GemmConfig& config,
         const GroupedOperands& operands) {
  const std::string reason = check_config(problem, config, state);
  if (!reason.empty()) core::fail(Status::unsupported, "grouped_gemm: {}", reason);
  run_checked(state, problem, config, operands);
}

void run_checked(ContextState& state, const GroupedProblem& problem, const GemmConfig& config,
                 const GroupedOperands& operands) {
  if (problem.groups == 0 || problem.each.m == 0 || problem.each.n == 0) return;
  const Engine& engine = *find_engine(state.device.kind, config.engine);
  // K = 0: only the epilogue is left, which the last engine of a device computes.
  if (engine.run_grouped != nullptr && (problem.each.k > 0 || !state.on_cpu())) {
    GroupedProblem p = problem;
    // Where an engine packs b for the call.
    if (p.each.packed_for == EngineId::none)
      p.packed_step_bytes = packed_step(engine.packed_bytes(p.each.n, p.each.k));
    return engine.run_grouped(state, p, config, operands);
  }
  core::all_or_nothing(state, [&] {
    for (std::int64_t g = 0; g < problem.groups; ++g) {
      const GemmProblem one = problem_of(problem, operands.rows[static_cast<std::size_t>(g)]);
      if (one.m == 0) continue;
      run_checked(state, one, engine.default_config(one, state), operands_of(problem, operands, g));
    }
  });
}

}  // namespace switchback::gemm_int8
