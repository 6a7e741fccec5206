// SPDX-License-Identifier: Apache-2.0
// Bench: the figures of a report, which show one file of records, or compare several files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report/source.hpp"

namespace switchback::bench {

using Sources = std::vector<ReportSource>;

/// A heat map of one file: the speed-up of a training step by layer and batch size.
std::string step_heat_map(const ReportSource& source);
/// The speed-up of a training step as lines over batch_size with error bars: a line for each shape
/// of W in each file.
std::string step_lines(const Sources& sources);
/// The time of a training step by field: a stacked bar for each of the three modes and each shape.
std::string step_parts(const ReportSource& source);
/// Speed-ups of training steps next to those published for an A100, over the operations of a
/// product.
std::string beside_published(const Sources& sources);
/// A roofline plot: rates of the forward's products over operations per byte, below the machine's
/// measured upper limits. Empty if the limits are not known.
std::string roofline(const ReportSource& source);

/// The figures that the script of the published records draws, with its axes: an average of both
/// directions of a layer (dim to 4·dim and back) over dim, with a line for each batch size.
enum class PublishedFigure {
  speedup,   ///< by how many percent mode global is faster than mode standard
  quantize,  ///< percent of the time of mode global that quantizing takes
  parts,     ///< the times of the parts of a step, at one batch size
};
PublishedFigure parse_figure(std::string_view name);
/// Draws one of the published figures for these files. `batch_size`: show only this one. Empty:
/// show those of the published script if records have them, else all (for `parts`: the largest).
/// Throws Error(invalid_argument) if no record (of this batch size) has a W of dim and 4·dim.
std::string published_figure(PublishedFigure figure, const Sources& sources,
                             std::optional<std::int64_t> batch_size);

}  // namespace switchback::bench
