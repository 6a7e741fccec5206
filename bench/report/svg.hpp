// SPDX-License-Identifier: Apache-2.0
// Bench: pictures as SVG: lines with error bars, heat maps, stacked bars. They use plain elements
// without scripts, so that they can be shown within a page, in a separate file, and on paper.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// Escapes a text for an element or an attribute of XML: & < > " '. Control characters and invalid
/// UTF-8 are replaced.
std::string xml_escaped(std::string_view text);

/// The colour of a series: one of the palette of Okabe and Ito, which people with colour blindness
/// can tell apart.
std::string_view series_colour(std::size_t i) noexcept;

/// An axis of a plot. The points that are not in doubt define its range. Points in doubt and error
/// bars extend it by at most half. Values further out are drawn at the edge, with an arrow.
struct Axis {
  std::string label;
  bool logarithmic = false;
  std::optional<double> low = std::nullopt;  ///< lower end of the axis, instead of the least value
  /// Upper end of the axis, instead of the greatest value.
  std::optional<double> high = std::nullopt;
};

struct Point {
  double x = 0, y = 0;
  /// The ends of the point's error bar.
  std::optional<double> low = std::nullopt, high = std::nullopt;
  std::string title = {};  ///< text that browsers show for the point
  bool doubtful = false;   ///< whether the point is in doubt and is marked with "!"
};

/// A series of points in a plot. Each index of a series has its own colour and point shape. Colours
/// repeat after 8 series, and pairs of colour and shape after 40. After each 8 series, lines have
/// another dash pattern.
struct Series {
  std::string name;
  std::vector<Point> points;
  bool line = true;  ///< whether to connect the points
  bool dashed = false;
  bool hollow = false;  ///< whether the points are hollow
  bool marks = true;    ///< whether to draw the points
  /// Index of a colour of the palette; empty: the index of the series.
  std::optional<std::size_t> colour = std::nullopt;
};

/// A plot of lines and points over two axes, with a legend. Values that are not finite are left
/// out; on a logarithmic axis, so are values that are not above 0. The picture grows with the
/// legend and the title.
struct LinePlot {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  /// Position of a horizontal line, such as at a ratio of 1.
  std::optional<double> rule = std::nullopt;
  double width = 760, height = 420;

  [[nodiscard]] std::string svg() const;
};

/// A heat map of gains in rows and columns: blue above 1, orange below 1, darker with the distance
/// from 1 on a logarithmic scale.
struct HeatMap {
  struct Cell {
    double gain = 1;
    std::string text;
    /// Whether the cell is in doubt: hatched in two tones and marked with "!"
    bool doubtful = false;
    std::string title = {};
  };
  std::string title;
  std::string row_label, column_label;
  std::vector<std::string> rows, columns;
  /// The cells by row and column; empty cells have no value.
  std::vector<std::vector<std::optional<Cell>>> cells;

  [[nodiscard]] std::string svg() const;
};

/// Stacked horizontal bars, with one legend for their parts. The longest bar that is not in doubt
/// defines the axis. A bar in doubt that is more than one and a half times as long is cut, with an
/// arrow.
struct StackedBars {
  struct Bar {
    std::string label;
    /// Lengths in the order of `names`; parts of length 0 are not drawn.
    std::vector<double> parts;
    std::string note = {};  ///< text at the end of the bar
    /// Whether the bar is in doubt: hatched in two tones and marked with "!"
    bool doubtful = false;
  };
  std::string title;
  std::string unit;
  std::vector<std::string> names;
  std::vector<Bar> bars;

  [[nodiscard]] std::string svg() const;
};

}  // namespace switchback::bench
