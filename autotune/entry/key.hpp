// SPDX-License-Identifier: Apache-2.0
// Tuner: the key of a problem on a machine: canonical text that has the same meaning on every
// machine. It consists of the names in the operation's table (core/tunable.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "autotune/entry/machine.hpp"
#include "autotune/store/entry.hpp"
#include "core/check.hpp"
#include "core/config_source.hpp"

namespace switchback::autotune {

/// How times are measured. It is part of the key, because another way of measuring may find another
/// winner.
struct Policy {
  bool cold_cache = false;
  bool graph = false;
  friend bool operator==(const Policy&, const Policy&) = default;
};

/// The canonical key of a query on a machine.
Key key_of(const ConfigQuery& query, const Machine& machine, const Policy& policy = {});
/// What parse_key() reads from the text of a key. On failure `why` says which part of the key is
/// unknown here.
struct KeyParts {
  ConfigQuery query;
  Machine machine;
  Policy policy;
};
std::optional<KeyParts> parse_key(std::string_view json, std::string& why);

/// A key without the number of tokens (rows of X and G), and that number. Problems of one family
/// differ only in that number.
struct Family {
  Key key;
  std::int64_t m = 0;
};
Family family_of(const ConfigQuery& query, const Machine& machine, const Policy& policy);
/// A problem as text for a table: "gemm_int8 M 16 N 4096 K 4096 f32 row_col".
std::string describe(const ConfigQuery& query);

}  // namespace switchback::autotune

/// Formats a problem as describe() does.
template <>
struct fmt::formatter<switchback::ConfigQuery>
    : switchback::core::DescribedFormatter<switchback::ConfigQuery,
                                           switchback::autotune::describe> {};
