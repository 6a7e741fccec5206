// SPDX-License-Identifier: Apache-2.0
// Bench: what a report draws, from one or several files of records side by side.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report/source.hpp"

namespace switchback::bench {

using Sources = std::vector<ReportSource>;

/// Speed-up of a training step over sizes, one file.
std::string step_heat_map(const ReportSource& source);
/// The same as lines over batch_size with error bars, a line for each W and file.
std::string step_lines(const Sources& sources);
/// Where the time of a step goes, by field: a bar for each of the three ways of each shape.
std::string step_parts(const ReportSource& source);
/// Speed-ups beside those of the published A100, over the operations of a product.
std::string beside_published(const Sources& sources);
/// Rates of the forward's products over operations per byte, under the machine's ceilings; empty
/// where these are not known.
std::string roofline(const ReportSource& source);

/// The figures of the script that came with the published records, with its axes: an average of
/// both directions, dim to 4·dim and back, over dim, a line for each batch size.
enum class PublishedFigure {
  speedup,   ///< percent by which mode global is faster than standard
  quantize,  ///< percent of the time of mode global that is quantizing
  parts,     ///< times of the parts, at one batch size
};
PublishedFigure parse_figure(std::string_view name);
/// Throws Error(invalid_argument) if no record has a W of dim and 4·dim (of this batch size).
/// `batch_size`: the only one; nothing: the script's, if records have them, else all (for parts:
/// the largest).
std::string published_figure(PublishedFigure figure, const Sources& sources,
                             std::optional<std::int64_t> batch_size);

}  // namespace switchback::bench
