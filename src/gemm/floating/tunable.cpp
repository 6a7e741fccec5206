// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: describes floating point products to the tuner: the names of the members of a
// Problem and a Config in caches, and the values that they may have.
#include "core/tunable.hpp"

#include "gemm/cublaslt/choice.hpp"
#include "gemm/floating/problem.hpp"

namespace switchback::floating {

namespace {

using core::number;
using core::row;
using core::value_name;
using core::Word;

constexpr Word float_type(std::string_view name) {
  return {.name = name, .most = number(DType::bf16), .value_name = value_name<dtype_name, DType>};
}

// The flags of a Problem that a query stores together, as the bits of one number.
constexpr std::array form_flags = {&Problem::transpose_a, &Problem::transpose_b,
                                   &Problem::accumulate, &Problem::bias};
constexpr std::int64_t form_of(const Problem& p) noexcept {
  std::int64_t form = 0;
  for (std::size_t i = 0; i < form_flags.size(); ++i)
    form |= (p.*form_flags[i] ? std::int64_t{1} : 0) << i;
  return form;
}
constexpr void set_form(Problem& p, std::int64_t form) noexcept {
  for (std::size_t i = 0; i < form_flags.size(); ++i)
    p.*form_flags[i] = (form >> i & 1) != 0;
}

constexpr core::WordTable problem_table(
    row<&Problem::m>({.name = "m"}), row<&Problem::n>({.name = "n"}),
    row<&Problem::k>({.name = "k"}), row<&Problem::lda>({.name = "lda"}),
    row<&Problem::ldb>({.name = "ldb"}), row<&Problem::ldd>({.name = "ldd"}),
    row<&Problem::input>(float_type("input")), row<&Problem::output>(float_type("output")),
    row({.name = "form", .most = 15}, form_of, set_form),
    // Keys of caches do not contain this word: its value is that of the machine, which is described
    // elsewhere.
    row<&Problem::compute_capability>({.name = "compute_capability",
                                       .written = core::Written::elsewhere}),
    row<&Problem::alignment>({.name = "alignment", .most = 16}));

constexpr core::WordTable config_table(
    row<&Config::engine>({.name = "engine",
                          .most = number(EngineId::cublaslt_tf32),
                          .value_name = value_name<engine_name, EngineId>}),
    row<&Config::pack_b>({.name = "pack_b", .most = 1}),
    row<&Config::algorithm>({.name = "algorithm", .most = most_ranked_algorithms - 1}),
    CublasLtRow<&Config::cublaslt>());

constexpr core::Tunable make() {
  core::Tunable made = core::make_tunable<Problem, Config, problem_table, config_table>(
      ConfigOp::gemm_floating, "gemm_standard", "standard ");
  made.depends_on_isa = false;
  made.cublaslt_alone = true;
  return made;
}

}  // namespace

constinit const core::Tunable tunable = make();

ConfigQuery to_query(const Problem& problem) noexcept {
  return core::make_query(ConfigOp::gemm_floating, problem, problem_table, problem);
}

bool from_query(const ConfigQuery& query, Problem& problem) noexcept {
  return core::read_query(ConfigOp::gemm_floating, problem_table, query, problem);
}

ConfigChoice to_choice(const Config& config) noexcept {
  return core::make_choice(config_table, config);
}

bool from_choice(const ConfigChoice& choice, Config& config) noexcept {
  Config found;
  if (!config_table.read(choice.words, found) || !is_valid(found.cublaslt)) return false;
  config = found;
  return true;
}

}  // namespace switchback::floating
