// SPDX-License-Identifier: Apache-2.0
// Core: the contract of an operation that can be tuned. Each operation keeps it in its own folder;
// the tuner and the bench see only this.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config_source.hpp"
#include "core/context_state.hpp"
#include "core/word_table.hpp"

namespace switchback::core {

/// How large a problem is, for budgets of time and memory.
struct ProblemSize {
  bool is_empty = false;  ///< there is nothing to compute, and nothing to measure
  double elements = 0;    ///< of the operands and results
  double operations = 0;  ///< of the product; 0: there is none
  double copies = 1;      ///< of the operands, that a search holds at once
  double importance = 1;  ///< of its share of a budget, beside other operations of this size
  /// The word of the problem that counts tokens (rows of X and G): near problems differ in it.
  std::string_view tokens = {};
};

/// Of d[m,n] = a[m,k] · b[k,n].
inline ProblemSize product_size(std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
  const auto rows = static_cast<double>(m);
  const auto cols = static_cast<double>(n);
  const auto inner = static_cast<double>(k);
  ProblemSize size;
  size.is_empty = m == 0 || n == 0 || k == 0;
  size.elements = rows * inner + cols * inner + rows * cols;
  size.operations = 2 * rows * cols * inner;
  size.tokens = "m";
  return size;
}

/// What a query of an operation that may run on the CPU depends on.
inline ConfigOrigin origin_of(const ContextState& state) noexcept {
  return {state.device.kind, state.threads.count(), state.features.level()};
}

/// A kernel that need not run right on every machine that it was compiled for.
struct RiskyKernel {
  std::int64_t output = 0;  ///< the type of its results
  /// What else of a problem has kernels of its own: of int8 products the kind of scales, of
  /// blockwise ones the rows of a block.
  std::int64_t variant = 0;
  ConfigChoice config;  ///< without what its arguments say
  friend bool operator==(const RiskyKernel&, const RiskyKernel&) = default;
};

/// What measurements on a machine say of such kernels.
struct KnownKernels {
  std::vector<RiskyKernel> right;
  std::vector<RiskyKernel> wrong;
};

/// An operation that can be tuned.
struct Tunable {
  ConfigOp op;
  std::string_view name;          ///< in keys and commands
  std::string_view label;         ///< in front of the description of a problem; may be empty
  std::span<const Word> problem;  ///< the words of a query
  std::span<const Word> config;   ///< the words of a choice; the first is the engine
  /// Whether the CPU's instruction set is part of the problem. Device and number of threads are, of
  /// every operation.
  bool depends_on_isa = true;
  /// Whether an engine that is named after cuBLASLt runs none of this project's kernels.
  bool cublaslt_alone = false;

  /// The problem in words; empty if the query is none.
  std::string (*describe)(const ConfigQuery& query);
  ProblemSize (*size)(const ConfigQuery& query) noexcept;
  /// What runs when nothing is known; false if the query is no problem.
  bool (*default_choice)(const ConfigQuery& query, const ContextState& state, ConfigChoice& choice);
  /// Why a configuration cannot run a problem in this Context; empty if it can.
  std::string (*refusal)(const ConfigQuery& query, const ConfigChoice& choice,
                         const ContextState& state);

  /// Of an operation with an engine whose kernels may need a proof: the name of that engine, empty
  /// if there is none; the kernel that a configuration of it runs for a query, false if it is of
  /// no such engine; and what runs where measurements have shown this of its kernels, false if that
  /// is what runs anyway. Null: what is known of a kernel changes no default.
  std::string_view proven_engine = {};
  bool (*kernel_of)(const ConfigQuery& query, const ConfigChoice& choice,
                    RiskyKernel& kernel) = nullptr;
  bool (*proven_default)(const ConfigQuery& query, const ContextState& state,
                         const KnownKernels& known, ConfigChoice& choice) = nullptr;
  /// Small problems among whose candidates are all those kernels, of a Context of a device. Null
  /// where kernel_of is.
  std::vector<ConfigQuery> (*kernel_problems)(const ContextState& state) = nullptr;

  /// Of an operation that chooses between ways through other operations: the choice that ranks
  /// these candidates, the fastest first. What was measured depends on everything that those
  /// operations depend on. Null: the choice is one of the candidates.
  ConfigChoice (*rank)(std::span<const ConfigChoice> fastest_first) = nullptr;
  [[nodiscard]] constexpr bool is_composed() const noexcept { return rank != nullptr; }
};

/// A Tunable by the functions that every operation has for its Problem and its Config:
///
///   ConfigQuery  to_query(const Problem&)                  (gemm_int8: of a ContextState, too)
///   bool         from_query(const ConfigQuery&, Problem&)  false: the words are no problem
///   ConfigChoice to_choice(const Config&)
///   bool         from_choice(const ConfigChoice&, Config&) false: they are no configuration
///   std::string  describe(const Problem&), describe(const Config&)
///   ProblemSize  size_of(const Problem&)
///   Config       default_config(const Problem&, const ContextState&)
///   std::string  check_config(const Problem&, const Config&, const ContextState&)
///                                                          why it cannot run here; empty: it can
///   candidates(const Problem&, const ContextState&)        worth measuring, the default first
///
/// and by the tables that the conversions are made with.
template <class Problem, class Config, const auto& ProblemTable, const auto& ConfigTable>
constexpr Tunable make_tunable(ConfigOp op, std::string_view name, std::string_view label) {
  Tunable tunable{};
  tunable.op = op;
  tunable.name = name;
  tunable.label = label;
  tunable.problem = ProblemTable.words();
  tunable.config = ConfigTable.words();
  tunable.describe = [](const ConfigQuery& query) {
    Problem problem;
    return from_query(query, problem) ? describe(problem) : std::string();
  };
  tunable.size = [](const ConfigQuery& query) noexcept {
    Problem problem;
    return from_query(query, problem) ? size_of(problem) : ProblemSize();
  };
  tunable.default_choice = [](const ConfigQuery& query, const ContextState& state,
                              ConfigChoice& choice) {
    Problem problem;
    if (!from_query(query, problem)) return false;
    choice = to_choice(default_config(problem, state));
    return true;
  };
  tunable.refusal = [](const ConfigQuery& query, const ConfigChoice& choice,
                       const ContextState& state) {
    Problem problem;
    Config config;
    if (!from_query(query, problem)) return std::string("the query is no problem");
    if (!from_choice(choice, config)) return no_configuration(ConfigTable.words(), choice);
    return check_config(problem, config, state);
  };
  return tunable;
}

}  // namespace switchback::core
