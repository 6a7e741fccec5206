// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: int8 products as the tuner sees them: what the members of a GemmProblem and a
// GemmConfig are called in caches, and which values they may have.
#include "core/tunable.hpp"

#include "gemm/cublaslt/words.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/config.hpp"
#include "gemm/int8/problem.hpp"

namespace switchback::gemm_int8 {

namespace {

using core::number;
using core::row;
using core::value_name;
using core::Word;
using core::Written;

std::string_view scale_value(std::int64_t value) noexcept {
  switch (static_cast<ScaleMode>(value)) {
    case ScaleMode::none:
      return "none";
    case ScaleMode::row_col:
      return "row_col";
    case ScaleMode::row_scalar:
      return "row_scalar";
  }
  return {};
}

// A bias is one word: 0, or 1 + its type.
std::string_view bias_value(std::int64_t value) noexcept {
  return value == 0 ? "none" : dtype_name(static_cast<DType>(value - 1));
}
constexpr std::int64_t bias_of(const GemmProblem& p) noexcept {
  return p.has_bias ? 1 + number(p.bias) : 0;
}
constexpr void set_bias(GemmProblem& p, std::int64_t word) noexcept {
  p.has_bias = word > 0;
  p.bias = p.has_bias ? static_cast<DType>(word - 1) : DType::f32;
}

constexpr Word engine_word(std::string_view name) {
  return {.name = name,
          .most = number(last_engine_id),
          .value_name = value_name<engine_name, EngineId>};
}

constexpr core::WordTable problem_table(
    row<&GemmProblem::m>({.name = "m"}), row<&GemmProblem::n>({.name = "n"}),
    row<&GemmProblem::k>({.name = "k"}), row<&GemmProblem::stride_a>({.name = "lda"}),
    row<&GemmProblem::stride_b>({.name = "ldb"}), row<&GemmProblem::stride_d>({.name = "ldd"}),
    row<&GemmProblem::output>({.name = "output",
                               .most = number(DType::s32),
                               .value_name = value_name<dtype_name, DType>}),
    row<&GemmProblem::scale>(
        {.name = "scale", .most = number(ScaleMode::row_scalar), .value_name = scale_value}),
    row({.name = "bias", .most = 1 + number(DType::bf16), .value_name = bias_value}, bias_of,
        set_bias),
    row<&GemmProblem::packed_for>(engine_word("packed_for")),
    row<&GemmProblem::alignment>({.name = "alignment", .most = 16}));

constexpr Word size_word(std::string_view name, Written written = Written::always) {
  return {.name = name, .rule = "none may be negative", .written = written};
}

constexpr core::WordTable config_table(
    row<&GemmConfig::engine>(engine_word("engine")),
    row<&GemmConfig::weights>(
        {.name = "packed", .most = 1, .rule = "it must be plain (0) or packed (1)"}),
    row<&GemmConfig::mc>(size_word("mc")), row<&GemmConfig::nc>(size_word("nc")),
    row<&GemmConfig::kc>(size_word("kc")), row<&GemmConfig::threads>(size_word("threads")),
    row<&GemmConfig::algorithm>({.name = "algorithm",
                                 .most = most_ranked_algorithms - 1,
                                 .rule = "a ranking has at most 64 places"}),
    CublasLtRow<&GemmConfig::cublaslt>(), row<&GemmConfig::cluster>(size_word("cluster")),
    row<&GemmConfig::cluster_n>(size_word("cluster_n", Written::unless_zero)),
    row<&GemmConfig::raster>(size_word("raster", Written::unless_zero)),
    row<&GemmConfig::swizzle>(size_word("swizzle", Written::unless_zero)));
static_assert(most_ranked_algorithms == 64, "as the rule above says");

}  // namespace

constinit const core::Tunable tunable =
    core::make_tunable<GemmProblem, GemmConfig, problem_table, config_table>(ConfigOp::gemm_int8,
                                                                             "gemm_int8", "int8 ");

ConfigQuery to_query(const GemmProblem& problem, const ContextState& state) noexcept {
  const ConfigOrigin origin = {state.device.kind, state.threads.count(), state.features.level()};
  return core::make_query(ConfigOp::gemm_int8, origin, problem_table, problem);
}

bool from_query(const ConfigQuery& query, GemmProblem& problem) noexcept {
  GemmProblem found;
  if (!core::read_query(ConfigOp::gemm_int8, problem_table, query, found) ||
      found.output == DType::s8 || (found.scale == ScaleMode::none) != (found.output == DType::s32))
    return false;
  problem = found;
  return true;
}

ConfigChoice to_choice(const GemmConfig& config) noexcept {
  return core::make_choice(config_table, config);
}

bool from_choice(const ConfigChoice& choice, GemmConfig& config) noexcept {
  GemmConfig found;
  if (!config_table.read(choice.words, found) || !is_valid(found.cublaslt)) return false;
  config = found;
  return true;
}

std::string out_of_range(const GemmConfig& config) {
  const ConfigChoice choice = to_choice(config);
  GemmConfig same;
  if (from_choice(choice, same)) return {};
  std::string reason = core::out_of_range(config_table.words(), choice.words);
  return reason.empty() ? out_of_range(config.cublaslt) : reason;
}

}  // namespace switchback::gemm_int8
