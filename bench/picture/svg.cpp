// SPDX-License-Identifier: Apache-2.0
#include "bench/picture/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace switchback::bench {

namespace {

constexpr std::array<std::string_view, 8> palette = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                     "#000000", "#E69F00", "#56B4E9", "#8C6D1F"};

// Text is as wide as this share of its size on average.
constexpr double character_width = 0.58;
constexpr double font_size = 12;

double text_width(std::string_view text) {
  const auto letters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // not the rest of a UTF-8 sequence
  });
  return static_cast<double>(letters) * font_size * character_width;
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

// A step between marks: 1, 2 or 5 times a power of ten.
double step_of(double raw) {
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

/// Values of an axis on a length of the canvas.
class Scale {
 public:
  Scale(const Axis& axis, std::vector<double> values, double from, double to)
      : logarithmic_(axis.logarithmic), from_(from), to_(to) {
    std::erase_if(values, [&](double v) { return !drawable(v); });
    if (values.empty()) values = {1, 10};
    low_ = axis.low.value_or(*std::min_element(values.begin(), values.end()));
    high_ = axis.high.value_or(*std::max_element(values.begin(), values.end()));
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
  [[nodiscard]] double at(double v) const {
    const double share =
        logarithmic_ ? std::log(v / low_) / std::log(high_ / low_) : (v - low_) / (high_ - low_);
    return from_ + (to_ - from_) * std::clamp(share, -0.02, 1.02);
  }
  [[nodiscard]] const std::vector<double>& marks() const { return marks_; }

 private:
  // Powers of ten where there are at least three of them, of four or of two where that is not too
  // many, else plain steps: 1, 1.5, 2.
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

std::vector<double> values_of(const LinePlot& plot, bool of_x) {
  std::vector<double> values;
  for (const Series& series : plot.series)
    for (const Point& p : series.points) {
      values.push_back(of_x ? p.x : p.y);
      if (!of_x && p.low) values.push_back(*p.low);
      if (!of_x && p.high) values.push_back(*p.high);
    }
  if (!of_x && plot.rule) values.push_back(*plot.rule);
  return values;
}

void draw_error_bar(Canvas& canvas, const Point& p, double x, const Scale& y,
                    std::string_view colour) {
  if (!p.low || !p.high || !y.drawable(*p.low) || !y.drawable(*p.high)) return;
  canvas.line(x, y.at(*p.low), x, y.at(*p.high), colour);
  for (const double end : {*p.low, *p.high})
    canvas.line(x - 3, y.at(end), x + 3, y.at(end), colour);
}

void draw_series(Canvas& canvas, const Series& series, std::size_t place, const Scale& x,
                 const Scale& y) {
  const std::string_view colour = series_colour(series.colour.value_or(place));
  std::string path;
  for (const Point& p : series.points)
    if (x.drawable(p.x) && y.drawable(p.y))
      path += fmt::format("{:.1f},{:.1f} ", x.at(p.x), y.at(p.y));
  if (series.line && !path.empty())
    canvas.add("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"{} points=\"{}\"/>\n",
               colour, series.dashed ? " stroke-dasharray=\"5 4\"" : "",
               path.substr(0, path.size() - 1));
  for (const Point& p : series.points) {
    if (!x.drawable(p.x) || !y.drawable(p.y)) continue;
    draw_error_bar(canvas, p, x.at(p.x), y, colour);
    if (series.marks)
      canvas.add(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"{}\" stroke=\"{}\">{}</circle>\n",
          x.at(p.x), y.at(p.y), series.hollow ? "#fff" : colour, colour, title_element(p.title));
  }
}

// Blue above 1, orange below; full at four times or a quarter.
std::string ratio_colour(double ratio) {
  const double share =
      ratio > 0 && std::isfinite(ratio) ? std::clamp(std::log2(ratio) / 2, -1.0, 1.0) : -1;
  const std::array<double, 3> end =
      share >= 0 ? std::array<double, 3>{0, 114, 178} : std::array<double, 3>{213, 94, 0};
  const double weight = std::abs(share);
  const auto mixed = [&](std::size_t i) { return std::lround(255 + (end[i] - 255) * weight); };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2));
}

double widest(const std::vector<std::string>& texts) {
  double most = 0;
  for (const std::string& text : texts)
    most = std::max(most, text_width(text));
  return most;
}

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
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
  const double left = 64, top = 36, bottom = 50;
  const double right = names.empty() ? 16 : widest(names) + 48;
  Canvas canvas(width, height, title);
  const Scale xs(x, values_of(*this, true), left, width - right);
  const Scale ys(y, values_of(*this, false), height - bottom, top);
  for (const double mark : ys.marks()) {
    canvas.line(left, ys.at(mark), width - right, ys.at(mark), "#ddd");
    canvas.text(left - 6, ys.at(mark) + 4, mark_text(mark), "end");
  }
  for (const double mark : xs.marks()) {
    canvas.line(xs.at(mark), top, xs.at(mark), height - bottom, "#eee");
    canvas.text(xs.at(mark), height - bottom + 17, mark_text(mark), "middle");
  }
  canvas.line(left, height - bottom, width - right, height - bottom, "#333");
  canvas.line(left, top, left, height - bottom, "#333");
  if (rule && ys.drawable(*rule))
    canvas.line(left, ys.at(*rule), width - right, ys.at(*rule), "#333",
                " stroke-dasharray=\"2 3\"");
  canvas.text((left + width - right) / 2, height - 12, x.label, "middle");
  canvas.text(16, (top + height - bottom) / 2, y.label, "middle",
              fmt::format(" transform=\"rotate(-90 16 {:.1f})\"", (top + height - bottom) / 2));
  for (std::size_t i = 0; i < series.size(); ++i)
    draw_series(canvas, series[i], i, xs, ys);
  double at = top + 6;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const Series& s = series[i];
    if (s.name.empty()) continue;
    const std::string_view colour = series_colour(s.colour.value_or(i));
    const double from = width - right + 10;
    if (s.line)
      canvas.line(
          from, at, from + 22, at, colour,
          s.dashed ? " stroke-width=\"1.6\" stroke-dasharray=\"5 4\"" : " stroke-width=\"1.6\"");
    if (s.marks)
      canvas.add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"{}\" stroke=\"{}\"/>\n",
                 from + 11, at, s.hollow ? "#fff" : colour, colour);
    canvas.text(from + 28, at + 4, s.name, "start");
    at += 17;
  }
  return std::move(canvas).done();
}

std::string HeatMap::svg() const {
  const double cell_width = std::max(56.0, widest(columns) + 10), cell_height = 26;
  const double left = std::max(widest(rows), text_width(row_label)) + 18, top = 78;
  const double width = std::max(left + cell_width * static_cast<double>(columns.size()) + 12,
                                text_width(title) * 1.25 + 20);
  const double height = top + cell_height * static_cast<double>(rows.size()) + 12;
  Canvas canvas(width, height, title);
  canvas.add(
      "<defs><pattern id=\"{}\" width=\"6\" height=\"6\" "
      "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><line x1=\"0\" "
      "y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#555\" stroke-width=\"1\"/></pattern></defs>\n",
      id);
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
      canvas.add(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
          "stroke=\"#fff\">{}</rect>\n",
          x, y, cell_width, cell_height, cell ? ratio_colour(cell->ratio) : "#f2f2f2",
          cell ? title_element(cell->title) : std::string());
      if (!cell) continue;
      if (cell->doubtful)
        canvas.add(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
            "fill=\"url(#{})\" opacity=\"0.35\"/>\n",
            x, y, cell_width, cell_height, id);
      const bool dark = std::abs(std::log2(std::max(cell->ratio, 1e-9))) > 1.1;
      canvas.text(x + cell_width / 2, y + cell_height / 2 + 4, cell->text, "middle",
                  dark ? " fill=\"#fff\"" : " fill=\"#000\"");
    }
  }
  return std::move(canvas).done();
}

std::string StackedBars::svg() const {
  std::vector<std::string> labels, notes;
  double most = 0;
  for (const Bar& bar : bars) {
    labels.push_back(bar.label);
    notes.push_back(bar.note);
    double sum = 0;
    for (const double part : bar.parts)
      sum += part;
    most = std::max(most, sum);
  }
  if (!(most > 0)) most = 1;
  const double left = widest(labels) + 16, row = 20, legend_row = 17, length = 460;
  const double width = left + length + widest(notes) + 24;
  constexpr std::size_t legend_columns = 3;
  const double legend_step = widest(names) + 34;
  const std::size_t legend_rows = (names.size() + legend_columns - 1) / legend_columns;
  const double top = 34 + legend_row * static_cast<double>(legend_rows) + 8;
  const double height = top + row * static_cast<double>(bars.size()) + 30;
  Canvas canvas(std::max(width, left + legend_step * legend_columns), height, title);
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
      const double part = bars[b].parts[i] / most * length;
      if (!(part > 0)) continue;
      canvas.add(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
          "fill=\"{}\"{}><title>{}: {:.4g} {}</title></rect>\n",
          x, y + 2, part, row - 4, series_colour(i), i >= palette.size() ? " opacity=\"0.5\"" : "",
          xml_escaped(names[i]), bars[b].parts[i], xml_escaped(unit));
      x += part;
    }
    canvas.text(x + 6, y + row / 2 + 4, bars[b].note, "start", " fill=\"#444\"");
  }
  const double base = top + row * static_cast<double>(bars.size()) + 4;
  canvas.line(left, base, left + length, base, "#333");
  const double step = step_of(most / 6);
  for (int mark = 0; mark * step <= most; ++mark) {
    const double x = left + length * mark * step / most;
    canvas.line(x, base, x, base + 4, "#333");
    canvas.text(x, base + 17, fmt::format("{:.3g} {}", mark * step, unit), "middle");
  }
  return std::move(canvas).done();
}

}  // namespace switchback::bench
