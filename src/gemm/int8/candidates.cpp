// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/candidates.hpp"

#include <array>

#include "core/check.hpp"

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
    Part{part_clusters, "clusters",
         [](const GemmConfig& c) { return c.cluster != 0 || c.cluster_n != 0; }},
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
         (c.cluster_n != 0 ? fmt::format("x{}", c.cluster_n) : "") +
         (c.raster != 0 ? fmt::format(" raster={}", c.raster) : "") +
         (c.swizzle != 0 ? fmt::format(" swizzle={}", c.swizzle) : "");
}

core::ProblemSize size_of(const GemmProblem& p) noexcept {
  return core::product_size(p.m, p.n, p.k);
}

bool is_risky(const GemmConfig& config) noexcept {
  if (config.cublaslt.unranked) return true;
  for (std::size_t device = 0; device < device_kinds; ++device)
    if (const Engine* engine = find_engine(static_cast<DeviceKind>(device), config.engine))
      if (engine->only_tuned) return true;
  return false;
}

std::vector<GemmConfig> candidates(const GemmProblem& problem, const ContextState& state) {
  std::vector<GemmConfig> found = {default_config(problem, state)};
  std::vector<GemmConfig> more;
  for (const Engine* engine : engines(state.device.kind)) {
    if (problem.packed_for != EngineId::none &&
        !reads_layout(state.device.kind, *engine, problem.packed_for))
      continue;
    if (refusal(*engine, problem, state).empty()) engine->candidates(problem, state, more);
  }
  for (const GemmConfig& config : more) {
    bool known = false;
    for (const GemmConfig& other : found)
      known = known || other == config;
    if (!known) found.push_back(config);
  }
  return found;
}

GemmConfig default_config(const GemmProblem& problem, const ContextState& state) {
  if (problem.packed_for != EngineId::none) {
    const Engine* engine = find_engine(state.device.kind, problem.packed_for);
    core::require(engine != nullptr, "gemm: packed_for = {}; there is no such engine",
                  static_cast<std::int64_t>(problem.packed_for));
    const std::string_view reason = refusal(*engine, problem, state);
    if (reason.empty()) return engine->default_config(problem, state);
    // Other engines of the device may accept the problem and read the same layout.
    for (const Engine* other : engines(state.device.kind))
      if (!other->only_tuned && reads_layout(state.device.kind, *other, engine->id) &&
          refusal(*other, problem, state).empty())
        return other->default_config(problem, state);
    core::fail(Status::unsupported, "gemm: b is packed for engine '{}', which cannot run here: {}",
               engine->name, reason);
  }
  for (const Engine* engine : engines(state.device.kind))
    if (!engine->only_tuned && refusal(*engine, problem, state).empty())
      return engine->default_config(problem, state);
  return engines(state.device.kind).back()->default_config(problem, state);
}

namespace {

std::string check(const GemmProblem& problem, const GemmConfig& config, const ContextState& state,
                  bool in_range) {
  const Engine* engine = find_engine(state.device.kind, config.engine);
  if (engine == nullptr)
    return fmt::format("engine number {} is unknown", static_cast<std::int64_t>(config.engine));
  if (problem.packed_for != EngineId::none &&
      !reads_layout(state.device.kind, *engine, problem.packed_for))
    return fmt::format("b is packed for engine '{}', not for '{}'", engine_name(problem.packed_for),
                       engine->name);
  const std::string_view reason = refusal(*engine, problem, state);
  if (!reason.empty()) return fmt::format("engine '{}': {}", engine->name, reason);
  if (!in_range)
    if (std::string invalid = out_of_range(config); !invalid.empty()) return invalid;
  for (const Part& part : parts)
    if ((engine->config_parts & part.bit) == 0 && part.is_used(config))
      return fmt::format("engine '{}' has no {}", engine->name, part.what);
  // An empty product is not given to a library.
  if (engine->refuses_config == nullptr || problem.m == 0 || problem.n == 0) return {};
  std::string refused = engine->refuses_config(problem, config, state);
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

}  // namespace switchback::gemm_int8
