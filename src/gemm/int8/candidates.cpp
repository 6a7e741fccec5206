// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/candidates.hpp"

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

// Why the engine cannot run the problem here; empty when it can.
std::string_view refusal(const Engine& engine, const GemmProblem& problem,
                         const ContextState& state) {
  const std::string_view reason = engine.unavailable(state);
  return reason.empty() ? engine.rejects(problem) : reason;
}

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

ConfigQuery config_query(const GemmProblem& p, const ContextState& state) noexcept {
  ConfigQuery query;
  query.op = ConfigOp::gemm_int8;
  query.words = {p.m,
                 p.n,
                 p.k,
                 p.stride_a,
                 p.stride_b,
                 p.stride_d,
                 static_cast<std::int64_t>(p.output),
                 static_cast<std::int64_t>(p.scale),
                 p.has_bias ? 1 + static_cast<std::int64_t>(p.bias) : 0,
                 static_cast<std::int64_t>(p.packed_for),
                 static_cast<std::int64_t>(state.features.level()),
                 state.threads.count(),
                 static_cast<std::int64_t>(state.device.kind),
                 p.alignment};
  return query;
}

bool from_query(const ConfigQuery& query, GemmProblem& p) noexcept {
  const auto& w = query.words;
  if (query.op != ConfigOp::gemm_int8) return false;
  for (std::size_t i = 0; i < 6; ++i)
    if (w[i] < 0) return false;
  if (!query.within(6, static_cast<std::int64_t>(DType::s32)) ||
      w[6] == static_cast<std::int64_t>(DType::s8) ||
      !query.within(7, static_cast<std::int64_t>(ScaleMode::row_scalar)) ||
      !query.within(8, 1 + static_cast<std::int64_t>(DType::bf16)) || w[9] < 0 ||
      !query.within(13, 16))
    return false;
  p.m = w[0];
  p.n = w[1];
  p.k = w[2];
  p.stride_a = w[3];
  p.stride_b = w[4];
  p.stride_d = w[5];
  p.output = static_cast<DType>(w[6]);
  p.scale = static_cast<ScaleMode>(w[7]);
  p.has_bias = w[8] > 0;
  p.bias = p.has_bias ? static_cast<DType>(w[8] - 1) : DType::f32;
  p.packed_for = static_cast<EngineId>(w[9]);
  p.alignment = w[13];
  return (p.scale == ScaleMode::none) == (p.output == DType::s32);
}

ConfigChoice to_choice(const GemmConfig& c) noexcept {
  const CublasLtChoiceWords cublaslt = to_words(c.cublaslt);
  ConfigChoice choice;
  choice.words = {static_cast<std::int64_t>(c.engine),
                  static_cast<std::int64_t>(c.weights),
                  c.mc,
                  c.nc,
                  c.kc,
                  c.threads,
                  c.algorithm,
                  cublaslt[0],
                  cublaslt[1],
                  cublaslt[2],
                  cublaslt[3],
                  c.cluster,
                  c.cluster_n,
                  c.raster,
                  c.swizzle};
  return choice;
}

GemmConfig from_choice(const ConfigChoice& choice) noexcept {
  const auto& w = choice.words;
  return {static_cast<EngineId>(w[0]),
          static_cast<Weights>(w[1]),
          w[2],
          w[3],
          w[4],
          w[5],
          w[6],
          from_words({w[7], w[8], w[9], w[10]}),
          w[11],
          w[12],
          w[13],
          w[14]};
}

std::vector<GemmConfig> candidates(const GemmProblem& problem, const Context& context) {
  const ContextState& state = context.state();
  std::vector<GemmConfig> found = {default_config(problem, context)};
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
    // Others of the device may take the problem and read the same layout.
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

std::string check_config(const GemmProblem& problem, const GemmConfig& config,
                         const ContextState& state) {
  const Engine* engine = find_engine(state.device.kind, config.engine);
  if (engine == nullptr)
    return fmt::format("engine number {} is unknown", static_cast<std::int64_t>(config.engine));
  if (problem.packed_for != EngineId::none &&
      !reads_layout(state.device.kind, *engine, problem.packed_for))
    return fmt::format("b is packed for engine '{}', not for '{}'", engine_name(problem.packed_for),
                       engine->name);
  const std::string_view reason = refusal(*engine, problem, state);
  if (!reason.empty()) return fmt::format("engine '{}': {}", engine->name, reason);
  if (config.weights != Weights::plain && config.weights != Weights::packed)
    return fmt::format("weights = {} is neither plain (0) nor packed (1)",
                       static_cast<std::int64_t>(config.weights));
  if (config.mc < 0 || config.nc < 0 || config.kc < 0 || config.threads < 0 ||
      config.algorithm < 0 || config.cluster < 0 || config.cluster_n < 0 || config.raster < 0 ||
      config.swizzle < 0)
    return fmt::format(
        "mc={} nc={} kc={} threads={} algorithm={} cluster={}x{} raster={} swizzle={}; "
        "none may be negative",
        config.mc, config.nc, config.kc, config.threads, config.algorithm, config.cluster,
        config.cluster_n, config.raster, config.swizzle);
  if (config.algorithm >= most_ranked_algorithms)
    return fmt::format("algorithm={}; a ranking has at most {} places", config.algorithm,
                       most_ranked_algorithms);
  if (std::string invalid = out_of_range(config.cublaslt); !invalid.empty()) return invalid;
  const bool is_fused = engine->id == EngineId::fused;
  if (!is_fused && (config.cluster != 0 || config.cluster_n != 0))
    return fmt::format("engine '{}' has no clusters", engine->name);
  if (!is_fused && (config.raster != 0 || config.swizzle != 0))
    return fmt::format("engine '{}' has no order of tiles", engine->name);
  if (is_fused && config.cublaslt != CublasLtChoice{})
    return fmt::format("engine '{}' has no algorithms or workspace of cuBLASLt", engine->name);
  if (!is_fused && config.cublaslt == CublasLtChoice{}) return {};
  if (engine->refuses_config == nullptr)
    return fmt::format("engine '{}' has no algorithms or workspace of cuBLASLt", engine->name);
  // An empty product is not the library's.
  if (problem.m == 0 || problem.n == 0) return {};
  std::string refused = engine->refuses_config(problem, config, state);
  return refused.empty() ? refused : fmt::format("engine '{}': {}", engine->name, refused);
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
  // Nothing to sum: only the epilogue is left, which the last engine of a device does.
  const Engine& engine = problem.k == 0 ? *engines(state.device.kind).back()
                                        : *find_engine(state.device.kind, config.engine);
  engine.run(state, problem, config, operands);
}

}  // namespace switchback::gemm_int8
