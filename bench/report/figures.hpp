// SPDX-License-Identifier: Apache-2.0
// Bench: the figures of a report, from one file of records or from several files for comparison.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report/source.hpp"

namespace switchback::bench {

using Sources = std::vector<ReportSource>;

/// The speed-up of a training step over sizes, for one file.
std::string step_heat_map(const ReportSource& source);
/// The same as lines over batch_size with error bars. There is a line for each W and file.
std::string step_lines(const Sources& sources);
/// The time of a step by field: a bar for each of the three modes and each shape.
std::string step_parts(const ReportSource& source);
/// Speed-ups next to those of the published A100, over the number of operations of a product.
std::string beside_published(const Sources& sources);
/// Rates of the forward's products over operations per byte, below the machine's ceilings. Empty if
/// these are not known.
std::string roofline(const ReportSource& source);

/// The figures of the script that came with the published records, with its axes: an average of
/// both directions (dim to 4·dim and back) over dim, with a line for each batch size.
enum class PublishedFigure {
  speedup,   ///< by how many percent mode global is faster than standard
  quantize,  ///< the share of quantizing in the time of mode global, in percent
  parts,     ///< times of the parts, at one batch size
};
PublishedFigure parse_figure(std::string_view name);
/// Throws Error(invalid_argument) if no record has a W of dim and 4·dim (of this batch size).
/// `batch_size`: show only this one. Empty: those of the script if records have them, else all (for
/// parts: the largest).
std::string published_figure(PublishedFigure figure, const Sources& sources,
                             std::optional<std::int64_t> batch_size);

}  // namespace switchback::bench
