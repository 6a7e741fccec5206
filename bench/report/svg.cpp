// SPDX-License-Identifier: Apache-2.0
#include "bench/report/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "bench/cli/table.hpp"

namespace switchback::bench {

namespace {

constexpr std::array<std::string_view, 8> palette = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                     "#000000", "#E69F00", "#56B4E9", "#8C6D1F"};

// The average width of a character, as a multiple of the font size.
constexpr double character_width = 0.58;
constexpr double font_size = 12;
constexpr std::size_t shapes = 5;
constexpr std::string_view doubtful_mark = " !";

double text_width(std::string_view text) {
  const auto letters = std::count_if(text.begin(), text.end(), [](char c) {
    // Counts the first byte of each UTF-8 character.
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  });
  return static_cast<double>(letters) * font_size * character_width;
}

double widest(const std::vector<std::string>& texts) {
  double most = 0;
  for (const std::string& text : texts)
    most = std::max(most, text_width(text));
  return most;
}

// The width of a picture that is at least `width` and has room for the title in a large bold font.
double wide_enough(double width, std::string_view title) {
  return std::max(width, text_width(title) * 1.25 + 20);
}

class Canvas {
 public:
  Canvas(double width, double height, std::string_view title) {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" "
        "height=\"{:.0f}\" role=\"img\" font-family=\"sans-serif\" font-size=\"{}\">\n"
        "<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        width, height, width, height, font_size, xml_escaped(title));
    text(8, 20, title, "start", " font-size=\"14\" font-weight=\"bold\"");
  }
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Values>(values)...);
  }
  void text(double x, double y, std::string_view content, std::string_view anchor,
            std::string_view more = {}) {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
        xml_escaped(content));
  }
  void line(double x1, double y1, double x2, double y2, std::string_view stroke,
            std::string_view more = {}) {
    add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"{}/>\n", x1, y1,
        x2, y2, stroke, more);
  }
  [[nodiscard]] std::string done() && { return std::move(svg_) + "</svg>\n"; }

 private:
  std::string svg_;
};

std::string title_element(const std::string& title) {
  return title.empty() ? std::string() : fmt::format("<title>{}</title>", xml_escaped(title));
}

std::string mark_text(double value) {
  if (value == 0) return "0";
  if (std::abs(value) >= 1e6 || std::abs(value) < 1e-3) return fmt::format("{:.0e}", value);
  return std::abs(value) < 1 ? fmt::format("{:.3g}", value) : fmt::format("{:.6g}", value);
}

// The step between the tick marks of an axis: 1, 2 or 5 times a power of ten, at least `raw`.
double step_of(double raw) {
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

struct AxisValues {
  std::vector<double> sure;   ///< values that define the range of the axis
  std::vector<double> loose;  ///< values that extend the range by at most half
};

/// Maps the values of an axis to positions on the canvas.
class Scale {
 public:
  Scale(const Axis& axis, AxisValues values, double from, double to)
      : logarithmic_(axis.logarithmic), from_(from), to_(to) {
    const auto no_place = [&](double v) { return !drawable(v); };
    std::erase_if(values.sure, no_place);
    std::erase_if(values.loose, no_place);
    if (values.sure.empty()) values.sure = {1, 10};
    low_ = axis.low.value_or(*std::min_element(values.sure.begin(), values.sure.end()));
    high_ = axis.high.value_or(*std::max_element(values.sure.begin(), values.sure.end()));
    widen(axis, values.loose);
    if (logarithmic_) {
      if (!(high_ > low_)) {
        low_ /= 2;
        high_ *= 2;
      }
      const double room = std::pow(high_ / low_, 0.04);
      if (!axis.low) low_ /= room;
      if (!axis.high) high_ *= room;
      mark_logarithms();
    } else {
      if (!(high_ > low_)) {
        low_ -= 0.5;
        high_ += 0.5;
      }
      const double step = step_of((high_ - low_) / 5);
      if (!axis.low) low_ = std::floor(low_ / step) * step;
      if (!axis.high) high_ = std::ceil(high_ / step) * step;
      for (double at = std::ceil(low_ / step - 1e-9); at * step <= high_ + 1e-9 * step; ++at)
        marks_.push_back(at * step);
    }
  }
  [[nodiscard]] bool drawable(double v) const {
    return std::isfinite(v) && (!logarithmic_ || v > 0);
  }
  /// Where a value lies: -1 below the axis's range, 1 above it, 0 within it. A value that cannot be
  /// drawn counts as outside.
  [[nodiscard]] int side(double v) const {
    if (drawable(v) && v >= low_ - slack() && v <= high_ + slack()) return 0;
    return v > high_ ? 1 : -1;
  }
  /// The position of a value on the canvas. A value outside of the range is drawn at the end of the
  /// axis.
  [[nodiscard]] double at(double v) const {
    if (const int out = side(v); out != 0) return out > 0 ? to_ : from_;
    const double share =
        logarithmic_ ? std::log(v / low_) / std::log(high_ / low_) : (v - low_) / (high_ - low_);
    return from_ + (to_ - from_) * std::clamp(share, 0.0, 1.0);
  }
  [[nodiscard]] const std::vector<double>& marks() const { return marks_; }

 private:
  [[nodiscard]] double slack() const { return 1e-9 * std::max(std::abs(low_), std::abs(high_)); }
  void widen(const Axis& axis, const std::vector<double>& loose) {
    const auto place = [&](double v) { return logarithmic_ ? std::log(v) : v; };
    const auto value = [&](double p) { return logarithmic_ ? std::exp(p) : p; };
    const double low = place(low_), high = place(high_);
    const double least =
        logarithmic_ ? std::log(2.0) : 0.2 * std::max(std::abs(low), std::abs(high));
    const double room = 0.5 * std::max(high - low, least);
    for (const double v : loose) {
      const double inside = value(std::clamp(place(v), low - room, high + room));
      if (!axis.low) low_ = std::min(low_, inside);
      if (!axis.high) high_ = std::max(high_, inside);
    }
  }
  // Sets the tick marks of a logarithmic axis: powers of ten, or else of four, or else of two, as
  // soon as there are at least three marks. If there are not, the marks are at linear steps: 1,
  // 1.5, 2.
  void mark_logarithms() {
    for (const double base : {10.0, 4.0, 2.0}) {
      marks_.clear();
      for (double e = std::ceil(std::log(low_) / std::log(base) - 1e-9);
           std::pow(base, e) <= high_ * (1 + 1e-9); ++e)
        marks_.push_back(std::pow(base, e));
      if (marks_.size() >= 3) return;
    }
    marks_.clear();
    const double step = step_of((high_ - low_) / 5);
    for (double at = std::ceil(low_ / step); at * step <= high_; ++at)
      if (at > 0) marks_.push_back(at * step);
  }

  bool logarithmic_;
  double from_, to_;
  double low_ = 0, high_ = 1;
  std::vector<double> marks_;
};

AxisValues xs_of(const LinePlot& plot) {
  AxisValues values;
  for (const Series& series : plot.series)
    for (const Point& p : series.points)
      values.sure.push_back(p.x);
  return values;
}

// The y values of a plot. Points in doubt define the range of the axis only if all points are in
// doubt.
AxisValues ys_of(const LinePlot& plot) {
  AxisValues values;
  for (const Series& series : plot.series)
    for (const Point& p : series.points) {
      (p.doubtful ? values.loose : values.sure).push_back(p.y);
    }
  if (values.sure.empty()) std::swap(values.sure, values.loose);
  for (const Series& series : plot.series)
    for (const Point& p : series.points)
      for (const std::optional<double>& end : {p.low, p.high})
        if (end) values.loose.push_back(*end);
  if (plot.rule) values.sure.push_back(*plot.rule);
  return values;
}

std::string_view dashes(const Series& series, std::size_t colour) {
  constexpr std::array<std::string_view, 4> ways = {"", " stroke-dasharray=\"5 4\"",
                                                    " stroke-dasharray=\"2 3\"",
                                                    " stroke-dasharray=\"9 3 2 3\""};
  return ways[(colour / palette.size() + (series.dashed ? 1 : 0)) % ways.size()];
}

void draw_mark(Canvas& canvas, const Series& series, std::size_t place, double x, double y,
               const std::string& title = {}) {
  const std::string_view colour = series_colour(place);
  const std::string_view fill = series.hollow ? "#fff" : colour;
  constexpr std::array<std::string_view, shapes> outlines = {
      "", "m-3 -3h6v6h-6z", "m0 -4.2l4 7.2h-8z", "m0 -4.4l4.4 4.4l-4.4 4.4l-4.4 -4.4z",
      "m0 4.2l4 -7.2h-8z"};
  const std::string_view outline = outlines[place % shapes];
  if (outline.empty())
    canvas.add(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"{}\" stroke=\"{}\">{}</circle>\n", x,
        y, fill, colour, title_element(title));
  else
    canvas.add("<path d=\"M{:.1f} {:.1f}{}\" fill=\"{}\" stroke=\"{}\">{}</path>\n", x, y, outline,
               fill, colour, title_element(title));
}

// Draws an arrow head at the end of an axis, for a value that is beyond the axis.
void draw_arrow(Canvas& canvas, double x, double y, bool up, std::string_view colour,
                const std::string& title) {
  canvas.add("<path class=\"beyond\" d=\"M{:.1f} {:.1f}l4 {}h-8z\" fill=\"{}\">{}</path>\n", x, y,
             up ? 7 : -7, colour, title_element(title));
}

void draw_error_bar(Canvas& canvas, const Point& p, double x, const Scale& y,
                    std::string_view colour) {
  if (!p.low || !p.high || std::isnan(*p.low) || std::isnan(*p.high)) return;
  canvas.line(x, y.at(*p.low), x, y.at(*p.high), colour);
  for (const double end : {*p.low, *p.high})
    if (const int out = y.side(end); out == 0)
      canvas.line(x - 3, y.at(end), x + 3, y.at(end), colour);
    else
      draw_arrow(canvas, x, y.at(end), out > 0, colour, fmt::format("to {:.3g}", end));
}

void draw_series(Canvas& canvas, const Series& series, std::size_t place, const Scale& x,
                 const Scale& y) {
  const std::string_view colour = series_colour(place);
  std::string path;
  for (const Point& p : series.points)
    if (x.drawable(p.x) && y.drawable(p.y))
      path += fmt::format("{:.1f},{:.1f} ", x.at(p.x), y.at(p.y));
  if (series.line && !path.empty())
    canvas.add("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"{} points=\"{}\"/>\n",
               colour, dashes(series, place), path.substr(0, path.size() - 1));
  for (const Point& p : series.points) {
    if (!x.drawable(p.x) || !y.drawable(p.y)) continue;
    const double px = x.at(p.x), py = y.at(p.y);
    draw_error_bar(canvas, p, px, y, colour);
    if (const int out = y.side(p.y); out != 0)
      draw_arrow(canvas, px, py, out > 0, colour, fmt::format("{}: {:.3g}", p.title, p.y));
    else if (series.marks)
      draw_mark(canvas, series, place, px, py, p.title);
    if (p.doubtful) canvas.text(px + 5, py + (y.side(p.y) > 0 ? 12 : -3), "!", "start");
  }
}

// Explains the marks that occur in a plot: "!" and arrows.
std::string notes_of(const LinePlot& plot, const Scale& y) {
  bool doubt = false, beyond = false;
  const auto outside = [&](const std::optional<double>& v) {
    return v && !std::isnan(*v) && y.side(*v) != 0;
  };
  for (const Series& series : plot.series)
    for (const Point& p : series.points) {
      doubt = doubt || p.doubtful;
      beyond = beyond || (y.drawable(p.y) && outside(p.y)) || outside(p.low) || outside(p.high);
    }
  return fmt::format("{}{}{}", doubt ? "! in doubt" : "", doubt && beyond ? "; " : "",
                     beyond ? "arrows: continues beyond the axis" : "");
}

// The colour of a gain in a heat map: blue above 1, orange below 1; the full colour from a factor
// of four or a quarter on.
std::string gain_colour(double gain) {
  const double share =
      gain > 0 && std::isfinite(gain) ? std::clamp(std::log2(gain) / 2, -1.0, 1.0) : -1;
  const std::array<double, 3> end =
      share >= 0 ? std::array<double, 3>{0, 114, 178} : std::array<double, 3>{213, 94, 0};
  const double weight = std::abs(share);
  const auto mixed = [&](std::size_t i) { return std::lround(255 + (end[i] - 255) * weight); };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2));
}

// Whether white text has more contrast on this colour than black text, by the relative luminance of
// WCAG 2.
bool is_dark(std::string_view colour) {
  const auto part = [&](std::size_t at) {
    const double share = std::stoi(std::string(colour.substr(at, 2)), nullptr, 16) / 255.0;
    return share <= 0.03928 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) < 0.179;
}

// Hatches a rectangle with alternating black and white lines at 45 degrees. One of the two is
// visible on any colour.
void hatch(Canvas& canvas, double x, double y, double width, double height) {
  constexpr double step = 8;
  for (const auto& [tone, shift] : {std::pair{"#000", 0.0}, std::pair{"#fff", 1.4}}) {
    std::string path;
    // Each hatching line rises to the right and is clipped at the sides of the rectangle.
    for (double at = step / 2 + shift; at < width + height; at += step) {
      const double low = std::min(at, height), left = at - low;
      const double right = std::min(at, width), high = at - right;
      path += fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", x + left, y + low, x + right, y + high);
    }
    canvas.add("<path class=\"doubt\" d=\"{}\" stroke=\"{}\" stroke-width=\"1.2\"/>\n", path, tone);
  }
}

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return out;
}

std::string_view series_colour(std::size_t i) noexcept {
  return palette[i % palette.size()];
}

std::string LinePlot::svg() const {
  std::vector<std::string> names;
  for (const Series& s : series)
    if (!s.name.empty()) names.push_back(s.name);
  const double tall = std::max(height, 100 + 17 * static_cast<double>(names.size()));
  const double top = 46, bottom = 50;
  const Scale ys(y, ys_of(*this), tall - bottom, top);
  std::vector<std::string> y_texts;
  for (const double mark : ys.marks())
    y_texts.push_back(mark_text(mark));
  // Room for the axis title and the labels of the tick marks.
  const double left = 34 + widest(y_texts);
  const double right = names.empty() ? 24 : widest(names) + 48;
  const double wide = wide_enough(std::max(width, left + right + 380), title);
  Canvas canvas(wide, tall, title);
  const Scale xs(x, xs_of(*this), left, wide - right);
  for (std::size_t i = 0; i < y_texts.size(); ++i) {
    const double at = ys.at(ys.marks()[i]);
    canvas.line(left, at, wide - right, at, "#ddd");
    canvas.text(left - 6, at + 4, y_texts[i], "end");
  }
  double free_from = 0;
  for (const double mark : xs.marks()) {
    const double at = xs.at(mark);
    canvas.line(at, top, at, tall - bottom, "#eee");
    const double half = text_width(mark_text(mark)) / 2;
    if (at - half < free_from) continue;  // this label would cover the previous one
    free_from = at + half + 4;
    canvas.text(at, tall - bottom + 17, mark_text(mark), "middle");
  }
  canvas.line(left, tall - bottom, wide - right, tall - bottom, "#333");
  canvas.line(left, top, left, tall - bottom, "#333");
  if (rule && ys.drawable(*rule))
    canvas.line(left, ys.at(*rule), wide - right, ys.at(*rule), "#333",
                " class=\"rule\" stroke-dasharray=\"2 3\"");
  canvas.text((left + wide - right) / 2, tall - 12, x.label, "middle");
  canvas.text(16, (top + tall - bottom) / 2, y.label, "middle",
              fmt::format(" transform=\"rotate(-90 16 {:.1f})\"", (top + tall - bottom) / 2));
  if (const std::string notes = notes_of(*this, ys); !notes.empty())
    canvas.text(left, top - 8, notes, "start", " fill=\"#444\"");
  for (std::size_t i = 0; i < series.size(); ++i)
    draw_series(canvas, series[i], series[i].colour.value_or(i), xs, ys);
  double at = top + 6;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const Series& s = series[i];
    if (s.name.empty()) continue;
    const std::size_t place = s.colour.value_or(i);
    const double from = wide - right + 10;
    if (s.line)
      canvas.line(from, at, from + 22, at, series_colour(place),
                  fmt::format(" stroke-width=\"1.6\"{}", dashes(s, place)));
    if (s.marks) draw_mark(canvas, s, place, from + 11, at);
    canvas.text(from + 28, at + 4, s.name, "start");
    at += 17;
  }
  return std::move(canvas).done();
}

std::string HeatMap::svg() const {
  const double cell_width = std::max(56.0, widest(columns) + 10), cell_height = 26;
  const double left = std::max(widest(rows), text_width(row_label)) + 18, top = 78;
  const double width =
      wide_enough(left + cell_width * static_cast<double>(columns.size()) + 12, title);
  const double height = top + cell_height * static_cast<double>(rows.size()) + 12;
  Canvas canvas(width, height, title);
  canvas.text(left, 44, column_label, "start", " fill=\"#444\"");
  canvas.text(left - 8, top - 8, row_label, "end", " fill=\"#444\"");
  for (std::size_t c = 0; c < columns.size(); ++c)
    canvas.text(left + cell_width * (static_cast<double>(c) + 0.5), top - 8, columns[c], "middle");
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double y = top + cell_height * static_cast<double>(r);
    canvas.text(left - 8, y + cell_height / 2 + 4, rows[r], "end");
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const double x = left + cell_width * static_cast<double>(c);
      const auto& cell = cells[r][c];
      const std::string colour = cell ? gain_colour(cell->gain) : "#f2f2f2";
      canvas.add(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
          "stroke=\"#fff\">{}</rect>\n",
          x, y, cell_width, cell_height, colour, cell ? title_element(cell->title) : std::string());
      if (!cell) continue;
      if (cell->doubtful) hatch(canvas, x, y, cell_width, cell_height);
      std::string look = is_dark(colour) ? " fill=\"#fff\"" : " fill=\"#000\"";
      // A broad outline of the digits in the cell's colour covers the hatching lines around them.
      if (cell->doubtful)
        look += fmt::format(" stroke=\"{}\" stroke-width=\"5\" paint-order=\"stroke\"", colour);
      canvas.text(x + cell_width / 2, y + cell_height / 2 + 4,
                  cell->text + std::string(cell->doubtful ? doubtful_mark : ""), "middle", look);
    }
  }
  return std::move(canvas).done();
}

std::string StackedBars::svg() const {
  std::vector<std::string> labels, notes;
  double sure = 0, doubtful = 0;
  for (const Bar& bar : bars) {
    labels.push_back(bar.label);
    notes.push_back(bar.note + std::string(bar.doubtful ? doubtful_mark : ""));
    double& longest = bar.doubtful ? doubtful : sure;
    longest = std::max(longest, std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0));
  }
  // A bar in doubt is cut if it is much longer than the other bars.
  double most = sure > 0 ? std::max(sure, std::min(doubtful, 1.5 * sure)) : doubtful;
  if (!(most > 0)) most = 1;
  const double left = widest(labels) + 16, row = 20, legend_row = 17, length = 460;
  const double width = left + length + widest(notes) + 24;
  constexpr std::size_t legend_columns = 3;
  const double legend_step = widest(names) + 34;
  const std::size_t legend_rows = (names.size() + legend_columns - 1) / legend_columns;
  const double top = 34 + legend_row * static_cast<double>(legend_rows) + 8;
  const double height = top + row * static_cast<double>(bars.size()) + 30;
  Canvas canvas(wide_enough(std::max(width, left + legend_step * legend_columns), title), height,
                title);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double x = left + legend_step * static_cast<double>(i % legend_columns);
    const double y = 34 + legend_row * static_cast<double>(i / legend_columns);
    canvas.add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\" fill=\"{}\"{}/>\n", x, y,
               series_colour(i), i >= palette.size() ? " opacity=\"0.5\"" : "");
    canvas.text(x + 16, y + 10, names[i], "start");
  }
  for (std::size_t b = 0; b < bars.size(); ++b) {
    const double y = top + row * static_cast<double>(b);
    canvas.text(left - 8, y + row / 2 + 4, bars[b].label, "end");
    double x = left;
    for (std::size_t i = 0; i < bars[b].parts.size(); ++i) {
      const double part = std::min(bars[b].parts[i] / most * length, left + length - x);
      if (!(part > 0)) continue;
      canvas.add(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
          "fill=\"{}\"{}><title>{}: {:.4g} {}</title></rect>\n",
          x, y + 2, part, row - 4, series_colour(i), i >= palette.size() ? " opacity=\"0.5\"" : "",
          xml_escaped(names[i]), bars[b].parts[i], xml_escaped(unit));
      x += part;
    }
    if (bars[b].doubtful && x > left) hatch(canvas, left, y + 2, x - left, row - 4);
    if (std::accumulate(bars[b].parts.begin(), bars[b].parts.end(), 0.0) > most * (1 + 1e-9)) {
      canvas.add("<path class=\"beyond\" d=\"M{:.1f} {:.1f}l7 4l-7 4z\" fill=\"#333\"/>\n", x + 1,
                 y + row / 2 - 4);
      x += 8;
    }
    canvas.text(x + 6, y + row / 2 + 4, notes[b], "start", " fill=\"#444\"");
  }
  const double base = top + row * static_cast<double>(bars.size()) + 4;
  canvas.line(left, base, left + length, base, "#333");
  const double step = step_of(most / 6);
  for (int mark = 0; mark * step <= most; ++mark) {
    const double x = left + length * mark * step / most;
    canvas.line(x, base, x, base + 4, "#333");
    canvas.text(x, base + 17, fmt::format("{} {}", mark_text(mark * step), unit), "middle");
  }
  return std::move(canvas).done();
}

}  // namespace switchback::bench
