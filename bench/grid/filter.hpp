// SPDX-License-Identifier: Apache-2.0
// Bench: selects cases of a grid by an expression.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/grid/grid.hpp"

namespace switchback::bench {

/// The syntax of --filter, for --help.
extern const char* const filter_help;

/// Terms separated by commas, all of which a case must meet:
///   KEY=V, KEY!=V, KEY<V, KEY<=V, KEY>V, KEY>=V   with a number
///   KEY=A..B                                      from A to B, both included
///   KEY=A|B|C                                     one of these
///   text                                          a part of the case's id; with * or ? a pattern
///                                                 for the whole id
/// KEY is batch_size, dim_in, dim_out, wm (numbers) or switch (true, false; = and != only).
/// Throws Error(invalid_argument) that names the term.
class Filter {
 public:
  explicit Filter(std::string_view expression);
  [[nodiscard]] bool matches(const Case& c) const;

 private:
  std::vector<std::function<bool(const Case&)>> terms_;
};

/// The cases that one of the expressions matches; all of them if there is no expression.
std::vector<Case> filter_cases(const std::vector<Case>& cases,
                               const std::vector<std::string>& expressions);

}  // namespace switchback::bench
