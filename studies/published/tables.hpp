// SPDX-License-Identifier: Apache-2.0
// Bench: the text of files in data/reference, put into the program by the build.
#pragma once

#include <span>
#include <string_view>

namespace switchback::bench {

struct EmbeddedTable {
  std::string_view name;
  std::string_view text;
};
std::span<const EmbeddedTable> embedded_tables();

}  // namespace switchback::bench
