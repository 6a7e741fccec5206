// SPDX-License-Identifier: Apache-2.0
// Bench: YAML text as a bounded tree with positions, the layer below parse_grid().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "switchback/error.hpp"

namespace switchback::bench::yaml {

enum class Kind { null, scalar, list, map };

struct Node {
  Kind kind = Kind::null;
  bool quoted = false;            ///< a scalar in quotes: text, never a number
  std::string text;               ///< of a scalar
  int line = 1;                   ///< from 1
  int column = 1;                 ///< from 1
  std::vector<Node> items;        ///< of a list; of a map: the values
  std::vector<std::string> keys;  ///< of a map: the keys of items
  std::vector<int> key_lines, key_columns;
};

/// The one document of the text. Throws Error(invalid_argument) "FILE:LINE:COLUMN: …" for anything
/// that is not plain YAML within grid_limits: other encodings, control characters, more than one
/// document, anchors, aliases, tags, keys that are not text or occur twice, too many levels, too
/// large.
Node parse(std::string_view text, std::string_view file_name);

/// Throws Error(invalid_argument) "FILE:LINE:COLUMN: message", with unprintable bytes as '?'.
[[noreturn]] void fail_at(std::string_view file_name, int line, int column,
                          const std::string& message);

}  // namespace switchback::bench::yaml
