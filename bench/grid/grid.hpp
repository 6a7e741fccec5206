// SPDX-License-Identifier: Apache-2.0
// Bench: the layer shapes to measure: a case (one shape), and grids of cases read from YAML.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// One layer at one batch size: X[batch_size, dim_in], W[dim_out, dim_in].
struct Case {
  std::int64_t batch_size = 0;
  std::int64_t dim_out = 0;
  std::int64_t dim_in = 0;
  double wm = 1;  ///< width multiplier: the larger side of the layer is round(smaller side · wm)
  /// The record's `switch`: whether dim_in is the larger side (dim·wm → dim), not dim_out.
  bool narrows = false;
  friend bool operator==(const Case&, const Case&) = default;

  /// The number of multiply-adds of one of the layer's three products (forward, dX or dW).
  [[nodiscard]] double macs() const noexcept {
    return static_cast<double>(batch_size) * static_cast<double>(dim_out) *
           static_cast<double>(dim_in);
  }
};

/// The value of a case for a key: batch_size, dim_in, dim_out, dim (the smaller side), wm, or
/// switch (0 or 1).
double value_of(const Case& c, std::string_view key);

/// The text that identifies a case: "1024x4096x1024" is batch_size x dim_in x dim_out. Two cases
/// with the same id are the same work.
std::string case_id(const Case& c);

/// The case for given sides of a layer. `narrows` is dim_out < dim_in; wm is the decimal with the
/// fewest digits that gives the larger side.
Case case_of_shape(std::int64_t batch_size, std::int64_t dim_in, std::int64_t dim_out);

/// Parses a shape: "1,1024,4096", or "1x1024x4096" as cases are printed. These are the batch (M),
/// dim_in (K) and dim_out (N), each from 1 to the corresponding side of `highest`. Throws
/// Error(invalid_argument).
std::array<std::int64_t, 3> parse_sides(std::string_view text,
                                        const std::array<std::int64_t, 3>& highest);
/// Parses the value of --shape, as parse_sides() does. Throws Error(invalid_argument).
Case parse_shape(std::string_view text);

/// Whether case `a` is measured before case `b`. Cases ascend by work, then by batch_size, dim_in,
/// dim_out. So results come early, and smaller cases give an estimate of the remaining time.
bool case_less(const Case& a, const Case& b) noexcept;
void sort_cases(std::vector<Case>& cases);

struct Grid {
  std::string name;
  std::string description;
  int repeat = 10;
  std::vector<Case> cases;  ///< in ascending order of work, without duplicates
};

namespace grid_limits {
inline constexpr std::int64_t version = 1;
inline constexpr std::size_t file_bytes = 1 << 20;
inline constexpr std::size_t nodes = 20000;  ///< the most scalars, lists and maps in a YAML file
inline constexpr int depth = 8;
inline constexpr std::size_t cases = 10000;
inline constexpr std::int64_t batch_size = std::int64_t{1} << 30;
inline constexpr int repeat = 1000000;
/// The largest width multiplier: from side 1 it makes the largest allowed side.
inline constexpr double wm = 133144;
}  // namespace grid_limits

/// Reads a grid, a list of layer shapes, from YAML. It is a map of
///   switchback_grid: 1          the version of this format
///   name, description           text (description may be left out)
///   repeat                      how often each field is timed, from 1 (default 10)
///   dims                        list of {dim, wm}; each value a number or a list of numbers
///   batch_sizes                 list of integers, for dims and for shapes without a batch_size
///   switch                      list of booleans (default [false, true]); a square layer is taken
///                               once
///   exclude                     list of rules; a case of dims that has all of a rule's values is
///                               left out: {dim, wm, batch_size, switch, dim_in, dim_out}, each a
///                               value or a list
///   shapes                      list of {batch_size (optional), dim_in, dim_out}
/// For any bytes it throws nothing but Error(invalid_argument): "FILE:LINE:COLUMN: what; the rule".
/// Anchors, aliases and tags are refused, and sizes are bounded by grid_limits, so the work is
/// bounded too.
Grid parse_grid(std::string_view text, std::string_view file_name);

/// A grid file that is part of the program, so that it is available by its name.
struct BuiltinGrid {
  std::string_view name;
  std::string_view text;
};
std::span<const BuiltinGrid> builtin_grids();

/// A grid from a file, or a built-in grid by its name. Throws Error.
Grid load_grid(const std::string& file_or_name);

}  // namespace switchback::bench
