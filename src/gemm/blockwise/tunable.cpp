// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: describes blockwise products to the tuner: the names of the members of a
// BlockwiseProblem and a BlockwiseConfig in caches, and the values that they may have.
#include "core/tunable.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "gemm/blockwise/engine.hpp"

namespace switchback::blockwise {

namespace {

using core::number;
using core::row;
using core::value_name;
using core::Word;

// The largest m. It is limited so that m rounded up to whole blocks, and strides, fit into int64.
constexpr std::int64_t most_codes = std::int64_t{1} << 60;

// A query stores a stride as its excess over padded_m. So the queries of two problems that differ
// only in m differ only in the word (number) for m. from_query() adds padded_m again.
constexpr Word gap_word(std::string_view name) {
  return {.name = name, .most = most_codes};
}

constexpr core::WordTable problem_table(
    row<&BlockwiseProblem::m>({.name = "m", .most = most_codes}),
    row<&BlockwiseProblem::n>({.name = "n"}), row<&BlockwiseProblem::k>({.name = "k"}),
    row<&BlockwiseProblem::block_rows>({.name = "block_rows", .least = 128, .most = 1024}),
    row(
        gap_word("gap_a"), [](const BlockwiseProblem& p) { return p.stride_a - p.padded_m; },
        [](BlockwiseProblem& p, std::int64_t gap) { p.stride_a = gap; }),
    row(
        gap_word("gap_b"), [](const BlockwiseProblem& p) { return p.stride_b - p.padded_m; },
        [](BlockwiseProblem& p, std::int64_t gap) { p.stride_b = gap; }),
    row<&BlockwiseProblem::stride_d>({.name = "ldd"}),
    row<&BlockwiseProblem::output>({.name = "output",
                                    .most = number(DType::bf16),
                                    .value_name = value_name<dtype_name, DType>}),
    row<&BlockwiseProblem::accumulate>({.name = "accumulate", .most = 1}),
    row<&BlockwiseProblem::alignment>({.name = "alignment", .most = 16}));

constexpr core::WordTable config_table(
    row<&BlockwiseConfig::engine>({.name = "engine",
                                   .most = number(gemm_int8::last_engine_id),
                                   .value_name = value_name<gemm_int8::engine_name, EngineId>}),
    row<&BlockwiseConfig::tile_n>({.name = "tile_n", .most = 1024}));

bool kernel_of_query(const ConfigQuery& query, const ConfigChoice& choice, core::KernelId& kernel) {
  BlockwiseProblem problem;
  BlockwiseConfig config;
  if (!from_query(query, problem) || !from_choice(choice, config) || !needs_validation(config))
    return false;
  kernel = kernel_of(problem, config);
  return true;
}

bool validated_default(const ConfigQuery& query, const ContextState& state,
                       const core::KnownKernels& known, ConfigChoice& choice) {
  BlockwiseProblem problem;
  if (!from_query(query, problem)) return false;
  const BlockwiseConfig config = default_config(problem, state, known);
  if (config == default_config(problem, state)) return false;
  choice = to_choice(config);
  return true;
}

// Problems for the validation of kernels: with more tiles than multiprocessors, and with several
// blocks, the last of which is not full.
std::vector<ConfigQuery> kernel_problems(const ContextState& state) {
  std::vector<ConfigQuery> queries;
  for (const DType output : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t block_rows : {128, 256, 512, 1024}) {
      BlockwiseProblem p;
      p.n = 264;
      p.k = p.stride_d = 136 + 128 * std::max(0, state.runtime->info().multiprocessors - 4);
      p.m = 1100;
      p.block_rows = block_rows;
      p.padded_m = p.stride_a = p.stride_b = whole_block_rows(p.m, p.block_rows);
      p.output = output;
      p.alignment = 16;
      queries.push_back(to_query(p, state));
    }
  return queries;
}

constexpr core::Tunable with_kernels(core::Tunable made) {
  made.engine_to_validate = gemm_int8::engine_name(EngineId::wgmma);
  made.kernel_of = kernel_of_query;
  made.validated_default = validated_default;
  made.kernel_problems = kernel_problems;
  return made;
}

}  // namespace

constinit const core::Tunable tunable =
    with_kernels(core::make_tunable<BlockwiseProblem, BlockwiseConfig, problem_table, config_table>(
        ConfigOp::gemm_blockwise, "gemm_blockwise", "int8 blockwise "));

ConfigQuery to_query(const BlockwiseProblem& problem, const ContextState& state) noexcept {
  return core::make_query(ConfigOp::gemm_blockwise, core::origin_of(state), problem_table, problem);
}

bool from_query(const ConfigQuery& query, BlockwiseProblem& problem) noexcept {
  BlockwiseProblem found;
  if (!core::read_query(ConfigOp::gemm_blockwise, problem_table, query, found) ||
      !is_block_rows(found.block_rows))
    return false;
  found.padded_m = whole_block_rows(found.m, found.block_rows);
  found.stride_a += found.padded_m;
  found.stride_b += found.padded_m;
  problem = found;
  return true;
}

ConfigChoice to_choice(const BlockwiseConfig& config) noexcept {
  return core::make_choice(config_table, config);
}

bool from_choice(const ConfigChoice& choice, BlockwiseConfig& config) noexcept {
  return config_table.read(choice.words, config);
}

std::string describe(const BlockwiseProblem& p) {
  return fmt::format("m={} n={} k={} blocks of {} rows {}{} strides {},{},{}{}", p.m, p.n, p.k,
                     p.block_rows, dtype_name(p.output), p.accumulate ? " accumulate" : "",
                     p.stride_a, p.stride_b, p.stride_d, p.alignment == 1 ? " unaligned" : "");
}

std::string describe(const BlockwiseConfig& config) {
  const std::string_view engine = gemm_int8::engine_name(config.engine);
  return config.tile_n == 0 ? std::string(engine)
                            : fmt::format("{} tile_n={}", engine, config.tile_n);
}

core::ProblemSize size_of(const BlockwiseProblem& p) noexcept {
  return core::product_size(p.n, p.k, p.m);
}

}  // namespace switchback::blockwise
