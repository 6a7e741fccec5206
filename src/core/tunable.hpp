// SPDX-License-Identifier: Apache-2.0
// Core: the contract of an operation that can be tuned. Each operation implements it in its own
// folder; the tuner and the benchmarks use only this contract.
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
  bool is_empty = false;  ///< the problem has nothing to compute and nothing to measure
  double elements = 0;    ///< number of elements of all operands and results
  double operations = 0;  ///< number of operations of the product; 0 without a product
  double copies = 1;      ///< copies of the operands that a search holds at once
  /// The weight of the problem's share of a tuning budget, compared with other problems of this
  /// size.
  double importance = 1;
  /// The name of the word that counts tokens (rows of X and G). Nearby problems differ in this
  /// word.
  std::string_view tokens = {};
};

/// The size of the matrix product d[m,n] = a[m,k] · b[k,n].
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

/// The properties of a Context that a query depends on, for an operation that may run on the CPU.
inline ConfigOrigin origin_of(const ContextState& state) noexcept {
  return {state.device.kind, state.threads.count(), state.features.level()};
}

/// A kernel that may give wrong results on some of the machines that it was compiled for.
struct KernelId {
  std::int64_t output = 0;  ///< element type of the kernel's results
  /// Another property of a problem that selects different kernels: for int8 products the kind of
  /// scales, for blockwise products the rows of a block.
  std::int64_t variant = 0;
  ConfigChoice config;  ///< configuration, without the parts that the kernel's arguments decide
  friend bool operator==(const KernelId&, const KernelId&) = default;
};

/// The kernels that measurements on a machine have shown to be right, and those shown to be wrong.
struct KnownKernels {
  std::vector<KernelId> right;
  std::vector<KernelId> wrong;
};

/// An operation that can be tuned.
struct Tunable {
  ConfigOp op;
  std::string_view name;          ///< name of the operation in keys and commands
  std::string_view label;         ///< text before the description of a problem; may be empty
  std::span<const Word> problem;  ///< table of the words of a ConfigQuery
  std::span<const Word> config;   ///< table of the words of a ConfigChoice; the first is the engine
  /// Whether the CPU's instruction set is part of a tuning problem. The device and the number of
  /// threads always are.
  bool depends_on_isa = true;
  /// Whether the engines named after cuBLASLt run only cuBLASLt, and none of this project's
  /// kernels.
  bool cublaslt_alone = false;

  /// Readable text that describes the problem; empty if the query is invalid.
  std::string (*describe)(const ConfigQuery& query);
  ProblemSize (*size)(const ConfigQuery& query) noexcept;
  /// The configuration that runs without any measurements; false if the query is invalid.
  bool (*default_choice)(const ConfigQuery& query, const ContextState& state, ConfigChoice& choice);
  /// Why a configuration cannot run a problem in this Context; empty if it can.
  std::string (*refusal)(const ConfigQuery& query, const ConfigChoice& choice,
                         const ContextState& state);

  /// The name of an engine whose kernels must be validated on each machine; empty if the operation
  /// has no such engine. Then kernel_of, validated_default and kernel_problems are not needed
  /// either.
  std::string_view engine_to_validate = {};
  /// Finds the kernel that a configuration of engine_to_validate runs for a query; false for a
  /// configuration of another engine. Null: the validation of kernels never changes the default.
  bool (*kernel_of)(const ConfigQuery& query, const ConfigChoice& choice,
                    KernelId& kernel) = nullptr;
  /// The configuration to run if `known` is all that measurements have shown of the kernels of
  /// engine_to_validate; false if that is the default anyway.
  bool (*validated_default)(const ConfigQuery& query, const ContextState& state,
                            const KnownKernels& known, ConfigChoice& choice) = nullptr;
  /// Small problems, for a Context on a device, whose candidates together include all kernels of
  /// engine_to_validate. Null if kernel_of is null.
  std::vector<ConfigQuery> (*kernel_problems)(const ContextState& state) = nullptr;

  /// For an operation that is computed by one of several sequences of other operations: makes the
  /// choice that stores the ranking of the candidates, which are passed with the fastest first. Its
  /// measurements depend on everything that those other operations depend on. Null: the choice is
  /// one of the candidates.
  ConfigChoice (*rank)(std::span<const ConfigChoice> fastest_first) = nullptr;
  [[nodiscard]] constexpr bool is_composed() const noexcept { return rank != nullptr; }
};

/// Makes a Tunable from the functions that every operation has for its Problem and its Config:
///
///   ConfigQuery  to_query(const Problem&)                  (gemm_int8: of a ContextState, too)
///   bool         from_query(const ConfigQuery&, Problem&)  false: the words are invalid
///   ConfigChoice to_choice(const Config&)
///   bool         from_choice(const ConfigChoice&, Config&) false: the words are invalid
///   std::string  describe(const Problem&), describe(const Config&)
///   ProblemSize  size_of(const Problem&)
///   Config       default_config(const Problem&, const ContextState&)
///   std::string  check_config(const Problem&, const Config&, const ContextState&)
///                                                          why it cannot run here; empty: it can
///   candidates(const Problem&, const ContextState&)        worth measuring, the default first
///
/// and from the word tables (core/word_table.hpp) of Problem and Config.
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
    if (!from_query(query, problem)) return std::string("the query is not a valid problem");
    if (!from_choice(choice, config)) return no_configuration(ConfigTable.words(), choice);
    return check_config(problem, config, state);
  };
  return tunable;
}

}  // namespace switchback::core
