// SPDX-License-Identifier: Apache-2.0
// Tuner: problems and configurations in words that people, files and other machines understand.
// Dispatch asks with plain numbers (core/config_source.hpp); a cache holds names and values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "autotune/store/record.hpp"
#include "core/check.hpp"
#include "core/config_source.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

/// What of a machine a measurement depends on; never which of several equal devices it was.
struct Machine {
  std::string backend;  ///< "cpu", "cuda" or "emulated"
  // CPU: the highest instruction set and the cores this process may use.
  std::string isa;
  std::int64_t cores = 0;
  // CUDA.
  std::int64_t compute_capability = 0;  ///< 90 is sm_90
  std::int64_t multiprocessors = 0;
  std::int64_t memory_gib = 0;  ///< its class: rounded to a power of two, or 3/2 of one
  std::string mig;              ///< the profile of a part of a device; empty: a whole one

  friend bool operator==(const Machine&, const Machine&) = default;
};
Machine machine_of(const ContextState& state);
/// The name of a machine's folder in a cache: the first 16 digits of the SHA-256 of its words.
std::string environment_name(const Machine& machine);
/// "cpu avx512_vnni, 2 cores"; "cuda sm_90, 132 multiprocessors, 128 GiB"
std::string describe(const Machine& machine);

/// How times are taken; part of the key, since another way finds another winner.
struct Policy {
  bool cold_cache = false;
  bool graph = false;
  friend bool operator==(const Policy&, const Policy&) = default;
};

/// The canonical key of a query on a machine.
Key key_of(const ConfigQuery& query, const Machine& machine, const Policy& policy = {});
/// The inverse. On failure `why` says what of the key is unknown here.
struct KeyParts {
  ConfigQuery query;
  Machine machine;
  Policy policy;
};
std::optional<KeyParts> parse_key(std::string_view json, std::string& why);

/// A key without the number of tokens (rows of X and G), and that number: problems of one family
/// differ in it alone.
struct Family {
  Key key;
  std::int64_t m = 0;
};
Family family_of(const ConfigQuery& query, const Machine& machine, const Policy& policy);
/// The bucket of m: powers of two and their 3/2 above 16, each number up to that. The one rule for
/// every place where a near shape may stand in for another.
std::int64_t m_bucket(std::int64_t m) noexcept;

/// "gemm_int8 M 16 N 4096 K 4096 f32 row_col": the problem for a table.
std::string describe(const ConfigQuery& query);

CandidateText to_text(ConfigOp op, const ConfigChoice& choice);
/// The inverse. On failure `why` says which engine, name or value is unknown here.
std::optional<ConfigChoice> to_choice(ConfigOp op, const CandidateText& text, std::string& why);

/// What this build and machine are, for Record::env.
Environment environment_of(const ContextState& state);
/// Which hard parts of `then` differ from `now`, as far as this engine depends on them; empty:
/// none.
std::string mismatch(ConfigOp op, std::string_view engine, const Environment& then,
                     const Environment& now);

}  // namespace switchback::autotune

/// describe()
template <>
struct fmt::formatter<switchback::autotune::Machine>
    : switchback::core::DescribedFormatter<switchback::autotune::Machine,
                                           switchback::autotune::describe> {};
template <>
struct fmt::formatter<switchback::ConfigQuery>
    : switchback::core::DescribedFormatter<switchback::ConfigQuery,
                                           switchback::autotune::describe> {};
