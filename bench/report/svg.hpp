// SPDX-License-Identifier: Apache-2.0
// Bench: pictures as SVG: lines with error bars, a heat map, stacked bars. Plain elements without
// scripts, so that they can stand in a page, in a file of their own, and on paper.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// Text for an element or an attribute of XML: & < > " ' are replaced, as are control characters
/// and what is not UTF-8.
std::string xml_escaped(std::string_view text);

/// One of the colours of Okabe and Ito, which people who do not see all colours can tell apart.
std::string_view series_colour(std::size_t i) noexcept;

/// The values of the points that are not in doubt make the range of an axis. Points in doubt and
/// error bars widen it by half at most; what lies further out ends at the edge with an arrow.
struct Axis {
  std::string label;
  bool logarithmic = false;
  std::optional<double> low = std::nullopt;   ///< instead of the least value
  std::optional<double> high = std::nullopt;  ///< instead of the greatest value
};

struct Point {
  double x = 0, y = 0;
  std::optional<double> low = std::nullopt, high = std::nullopt;  ///< the error bar
  std::string title = {};                                         ///< shown by browsers
  bool doubtful = false;                                          ///< marked with "!"
};

/// Each place has its colour and its shape of points. Colours repeat after 8, pairs of colour and
/// shape after 40; lines are dashed in another way after each 8.
struct Series {
  std::string name;
  std::vector<Point> points;
  bool line = true;  ///< joins the points
  bool dashed = false;
  bool hollow = false;                               ///< the points
  bool marks = true;                                 ///< draws the points
  std::optional<std::size_t> colour = std::nullopt;  ///< of the palette; default: the place
};

/// Lines and points over two axes, with a legend. Values that are not finite, and on a logarithmic
/// axis those that are not above 0, are left out. It grows with its legend and its title.
struct LinePlot {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  std::optional<double> rule = std::nullopt;  ///< a horizontal line, such as at a ratio of 1
  double width = 760, height = 420;

  [[nodiscard]] std::string svg() const;
};

/// Gains in rows and columns: above 1 blue, below 1 orange, darker the further away on a
/// logarithmic scale.
struct HeatMap {
  struct Cell {
    double gain = 1;
    std::string text;
    bool doubtful = false;  ///< hatched in two tones, and marked with "!"
    std::string title = {};
  };
  std::string title;
  std::string row_label, column_label;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<std::optional<Cell>>> cells;  ///< by row and column

  [[nodiscard]] std::string svg() const;
};

/// Horizontal bars of parts that follow each other; the parts have one legend. The longest bar that
/// is not in doubt makes the axis; one in doubt that is over half longer is cut, with an arrow.
struct StackedBars {
  struct Bar {
    std::string label;
    std::vector<double> parts;  ///< in the order of `names`; a part of 0 is not drawn
    std::string note = {};      ///< after the bar
    bool doubtful = false;      ///< hatched in two tones, and marked with "!"
  };
  std::string title;
  std::string unit;
  std::vector<std::string> names;
  std::vector<Bar> bars;

  [[nodiscard]] std::string svg() const;
};

}  // namespace switchback::bench
