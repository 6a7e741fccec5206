// SPDX-License-Identifier: Apache-2.0
// Bench: pictures as SVG: lines with error bars, a heat map, stacked bars. They use plain elements
// without scripts, so that they can be used within a page, in a separate file, and on paper.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// Text for an element or an attribute of XML: & < > " ' are escaped. Control characters and what
/// is not UTF-8 are replaced.
std::string xml_escaped(std::string_view text);

/// One of the colours of Okabe and Ito, which people with colour blindness can tell apart.
std::string_view series_colour(std::size_t i) noexcept;

/// The points that are not in doubt define the range of an axis. Points in doubt and error bars
/// extend it by at most half. Values further out are drawn at the edge, with an arrow.
struct Axis {
  std::string label;
  bool logarithmic = false;
  std::optional<double> low = std::nullopt;   ///< used instead of the least value
  std::optional<double> high = std::nullopt;  ///< used instead of the greatest value
};

struct Point {
  double x = 0, y = 0;
  std::optional<double> low = std::nullopt, high = std::nullopt;  ///< the error bar
  std::string title = {};                                         ///< shown by browsers
  bool doubtful = false;                                          ///< marked with "!"
};

/// Each index has its own colour and point shape. Colours repeat after 8 series, and pairs of
/// colour and shape after 40. After each 8 series, lines have another dash pattern.
struct Series {
  std::string name;
  std::vector<Point> points;
  bool line = true;  ///< connects the points
  bool dashed = false;
  bool hollow = false;                               ///< the points
  bool marks = true;                                 ///< draws the points
  std::optional<std::size_t> colour = std::nullopt;  ///< of the palette; default: the index
};

/// Lines and points over two axes, with a legend. Values that are not finite are left out; on a
/// logarithmic axis, so are values that are not above 0. The size grows with the legend and the
/// title.
struct LinePlot {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  std::optional<double> rule = std::nullopt;  ///< a horizontal line, such as at a ratio of 1
  double width = 760, height = 420;

  [[nodiscard]] std::string svg() const;
};

/// A heat map of gains in rows and columns: blue above 1, orange below 1, darker with the distance
/// from 1 on a logarithmic scale.
struct HeatMap {
  struct Cell {
    double gain = 1;
    std::string text;
    bool doubtful = false;  ///< hatched in two tones and marked with "!"
    std::string title = {};
  };
  std::string title;
  std::string row_label, column_label;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<std::optional<Cell>>> cells;  ///< by row and column

  [[nodiscard]] std::string svg() const;
};

/// Horizontal bars of consecutive parts, with one legend for the parts. The longest bar that is not
/// in doubt defines the axis. A bar in doubt that is more than one and a half times as long is cut,
/// with an arrow.
struct StackedBars {
  struct Bar {
    std::string label;
    std::vector<double> parts;  ///< in the order of `names`; parts of 0 are not drawn
    std::string note = {};      ///< text after the bar
    bool doubtful = false;      ///< hatched in two tones and marked with "!"
  };
  std::string title;
  std::string unit;
  std::vector<std::string> names;
  std::vector<Bar> bars;

  [[nodiscard]] std::string svg() const;
};

}  // namespace switchback::bench
