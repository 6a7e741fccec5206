// SPDX-License-Identifier: Apache-2.0
// Bench: selects cases (layer shapes) of a grid by an expression.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/grid/grid.hpp"

namespace switchback::bench {

/// The help text of the option --filter, which describes its syntax.
extern const char* const filter_help;

/// The expression of --filter, which selects layer shapes. It has terms separated by commas, all of
/// which a case must meet:
///   KEY=V, KEY!=V, KEY<V, KEY<=V, KEY>V, KEY>=V   V is a number
///   KEY=A..B                                      from A to B, both included
///   KEY=A|B|C                                     one of these values
///   text                                          a part of the case's id; with * or ? a pattern
///                                                 for the whole id
/// KEY is batch_size, dim_in, dim_out, wm (numbers) or switch (true, false; = and != only). Throws
/// Error(invalid_argument) that names the term.
class Filter {
 public:
  explicit Filter(std::string_view expression);
  [[nodiscard]] bool matches(const Case& c) const;

 private:
  std::vector<std::function<bool(const Case&)>> terms_;
};

/// The cases that match at least one of the expressions; all cases if there is no expression.
std::vector<Case> filter_cases(const std::vector<Case>& cases,
                               const std::vector<std::string>& expressions);

}  // namespace switchback::bench
