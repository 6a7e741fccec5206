// SPDX-License-Identifier: Apache-2.0
// Bench: reads YAML text as a tree of limited size whose nodes know their positions. parse_grid()
// reads grids from this tree.
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
  bool quoted = false;      ///< whether a scalar was quoted, so that it is text and never a number
  std::string text;         ///< of a scalar
  int line = 1;             ///< from 1
  int column = 1;           ///< from 1
  std::vector<Node> items;  ///< the items of a list, or the values of a map
  std::vector<std::string> keys;  ///< the keys of a map, one for each of `items`
  std::vector<int> key_lines, key_columns;
};

/// The root of the only document in a YAML text. Throws Error(invalid_argument) "FILE:LINE:COLUMN:
/// …" for anything that is not plain YAML within grid_limits: other encodings, control characters,
/// more than one document, anchors, aliases, tags, keys that are not text or occur twice, too many
/// levels, or too much text.
Node parse(std::string_view text, std::string_view file_name);

/// Throws Error(invalid_argument) "FILE:LINE:COLUMN: message", with unprintable bytes as '?'.
[[noreturn]] void fail_at(std::string_view file_name, int line, int column,
                          const std::string& message);

}  // namespace switchback::bench::yaml
