// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: describes int8 products, single ones and those of groups, to the tuner: the names
// of the members of a GemmProblem and a GemmConfig in caches, and the values that they may have.
#include "core/tunable.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "core/rows_bucket.hpp"
#include "gemm/cublaslt/choice.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/config.hpp"
#include "gemm/int8/engine.hpp"
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

// A bias is one word of a query: 0 for no bias, or 1 + its type.
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

constexpr Word output_word = {
    .name = "output", .most = number(DType::s32), .value_name = value_name<dtype_name, DType>};
constexpr Word scale_word = {
    .name = "scale", .most = number(ScaleMode::row_scalar), .value_name = scale_value};
constexpr Word bias_word = {
    .name = "bias", .most = 1 + number(DType::bf16), .value_name = bias_value};
constexpr Word alignment_word = {.name = "alignment", .most = 16};

constexpr core::WordTable problem_table(
    row<&GemmProblem::m>({.name = "m"}), row<&GemmProblem::n>({.name = "n"}),
    row<&GemmProblem::k>({.name = "k"}), row<&GemmProblem::stride_a>({.name = "lda"}),
    row<&GemmProblem::stride_b>({.name = "ldb"}), row<&GemmProblem::stride_d>({.name = "ldd"}),
    row<&GemmProblem::output>(output_word), row<&GemmProblem::scale>(scale_word),
    row(bias_word, bias_of, set_bias), row<&GemmProblem::packed_for>(engine_word("packed_for")),
    row<&GemmProblem::alignment>(alignment_word));

constexpr Word size_word(std::string_view name) {
  return {.name = name, .rule = "it must not be negative"};
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
    row<&GemmConfig::raster>(size_word("raster")), row<&GemmConfig::swizzle>(size_word("swizzle")));
static_assert(most_ranked_algorithms == 64, "the rule above states this number");

constexpr std::string_view layout_name(GroupLayout layout) noexcept {
  switch (layout) {
    case GroupLayout::packed:
      return "packed";
    case GroupLayout::strided:
      return "strided";
    case GroupLayout::columns:
      return "columns";
    case GroupLayout::none:
      break;
  }
  return "unknown";
}

constexpr core::WordTable grouped_table(
    row(
        {.name = "m"}, [](const GemmProblem& p) { return core::rows_bucket(p.m); },
        [](GemmProblem& p, std::int64_t slots) { p.m = slots; }),
    row<&GemmProblem::groups>({.name = "groups"}),
    row<&GemmProblem::layout>({.name = "layout",
                               .most = number(GroupLayout::columns),
                               .value_name = value_name<layout_name, GroupLayout>}),
    row<&GemmProblem::n>({.name = "n"}), row<&GemmProblem::k>({.name = "k"}),
    row<&GemmProblem::stride_a>({.name = "lda"}), row<&GemmProblem::stride_b>({.name = "ldb"}),
    row<&GemmProblem::stride_d>({.name = "ldd"}), row<&GemmProblem::output>(output_word),
    row<&GemmProblem::scale>(scale_word), row(bias_word, bias_of, set_bias),
    row<&GemmProblem::packed_for>(engine_word("packed_for")),
    row<&GemmProblem::alignment>(alignment_word));

// A rule that the word table cannot express: outputs have scales unless they are int32.
bool is_problem(const GemmProblem& p) noexcept {
  return p.output != DType::s8 && (p.scale == ScaleMode::none) == (p.output == DType::s32);
}

// The functions of a Tunable that concern kernels which may need a validation.
bool kernel_of_query(const ConfigQuery& query, const ConfigChoice& choice, core::KernelId& kernel) {
  GemmProblem problem;
  GemmConfig config;
  return from_query(query, problem) && from_choice(choice, config) &&
         kernel_of(query.origin.device, problem, config, kernel);
}

bool validated_default(const ConfigQuery& query, const ContextState& state,
                       const core::KnownKernels& known, ConfigChoice& choice) {
  GemmProblem problem;
  if (!from_query(query, problem)) return false;
  const GemmConfig config = default_config(problem, state, known);
  if (config == default_config(problem, state)) return false;
  choice = to_choice(config);
  return true;
}

constexpr std::array float_outputs = {DType::f32, DType::f16, DType::bf16};

// A problem for the validation of kernels. It has more tiles of every size than multiprocessors,
// where the last ones are not full, and more steps along k than a pipeline has stages.
GemmProblem kernel_problem(DType output, ScaleMode scale, const ContextState& state) {
  GemmProblem p;
  p.m = 264 * std::max(1, state.runtime->info().multiprocessors / 3);
  p.n = p.stride_d = 264;
  p.k = p.stride_a = p.stride_b = 1040;
  p.output = output;
  p.scale = scale;
  p.has_bias = true;
  p.alignment = 16;
  return p;
}

std::vector<ConfigQuery> kernel_problems(const ContextState& state) {
  constexpr std::int64_t few_rows = 16;  // some kernels accept no more rows
  std::vector<ConfigQuery> queries;
  for (const DType output : float_outputs) {
    GemmProblem problem = kernel_problem(output, ScaleMode::row_col, state);
    queries.push_back(to_query(problem, state));
    problem.m = few_rows;
    queries.push_back(to_query(problem, state));
  }
  return queries;
}

std::vector<ConfigQuery> grouped_kernel_problems(const ContextState& state) {
  std::vector<ConfigQuery> queries;
  for (const DType output : float_outputs)
    for (const ScaleMode scale : {ScaleMode::row_col, ScaleMode::row_scalar}) {
      GemmProblem p = kernel_problem(output, scale, state);
      p.layout = GroupLayout::packed;
      p.groups = 3;
      queries.push_back(to_query(p, state));
    }
  return queries;
}

constexpr core::Tunable with_kernels(core::Tunable made,
                                     std::vector<ConfigQuery> (*problems)(const ContextState&)) {
  made.engine_to_validate = "fused";
  made.kernel_of = kernel_of_query;
  made.validated_default = validated_default;
  made.kernel_problems = problems;
  return made;
}

}  // namespace

constinit const core::Tunable tunable =
    with_kernels(core::make_tunable<GemmProblem, GemmConfig, problem_table, config_table>(
                     ConfigOp::gemm_int8, "gemm_int8", "int8 "),
                 kernel_problems);

constinit const core::Tunable grouped_tunable =
    with_kernels(core::make_tunable<GemmProblem, GemmConfig, grouped_table, config_table>(
                     ConfigOp::grouped_int8, "grouped_int8", "int8 "),
                 grouped_kernel_problems);

ConfigQuery to_query(const GemmProblem& problem, const ContextState& state) noexcept {
  return problem.has_groups() ? core::make_query(ConfigOp::grouped_int8, core::origin_of(state),
                                                 grouped_table, problem)
                              : core::make_query(ConfigOp::gemm_int8, core::origin_of(state),
                                                 problem_table, problem);
}

namespace {

bool read_groups(const ConfigQuery& query, GemmProblem& p) noexcept {
  if (!core::read_query(ConfigOp::grouped_int8, grouped_table, query, p)) return false;
  // The ends of packed groups are 32-bit numbers, which limits the slots.
  if (p.layout == GroupLayout::packed)
    p.m = std::min<std::int64_t>(p.m, std::numeric_limits<std::int32_t>::max());
  else if (p.groups > 0) {
    p.group_rows = p.m / p.groups;
    p.m = p.group_rows * p.groups;
  }
  if (p.layout != GroupLayout::columns || p.groups == 0) return true;
  p.d_column_stride = p.stride_d / p.groups;
  return p.d_column_stride >= std::max<std::int64_t>(1, p.n);
}

}  // namespace

bool from_query(const ConfigQuery& query, GemmProblem& problem) noexcept {
  GemmProblem found;
  const bool is_read = query.op == ConfigOp::grouped_int8
                           ? read_groups(query, found)
                           : core::read_query(ConfigOp::gemm_int8, problem_table, query, found);
  if (!is_read || !is_problem(found)) return false;
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
