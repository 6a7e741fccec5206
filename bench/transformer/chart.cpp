// SPDX-License-Identifier: Apache-2.0
#include "bench/transformer/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace switchback::bench::transformer {

namespace {

constexpr double width = 720, height = 420, left = 64, right = 24, top = 48, bottom = 48;

// Distinct without colour vision too (Okabe and Ito).
constexpr std::array<const char*, 5> colours = {"#000000", "#D55E00", "#0072B2", "#009E73",
                                                "#CC79A7"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

// A step between marks of an axis: 1, 2 or 5 times a power of ten.
double step_of(double range, int marks) {
  const double raw = range / marks;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

}  // namespace

std::string loss_chart(const std::vector<LossCurve>& curves, const std::string& title) {
  double low = 1e300, high = -1e300, steps = 1;
  std::vector<Mode> modes;
  for (const LossCurve& c : curves) {
    for (const double v : c.validation) {
      if (!std::isfinite(v)) continue;
      low = std::min(low, v);
      high = std::max(high, v);
    }
    if (!c.steps.empty()) steps = std::max(steps, static_cast<double>(c.steps.back()));
    if (std::find(modes.begin(), modes.end(), c.mode) == modes.end()) modes.push_back(c.mode);
  }
  if (low > high) low = high = 0;
  const double mark = step_of(std::max(high - low, 1e-6), 6);
  low = std::floor(low / mark) * mark;
  high = std::max(std::ceil(high / mark) * mark, low + mark);
  const auto x = [&](double step) { return left + (width - left - right) * step / steps; };
  const auto y = [&](double v) {
    return height - bottom - (height - top - bottom) * (v - low) / (high - low);
  };
  std::string svg;
  auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
                 "font-family=\"sans-serif\" font-size=\"12\">\n"
                 "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
                 "<text x=\"{}\" y=\"24\" font-size=\"15\">{}</text>\n",
                 width, height, left, escaped(title));
  const int marks = static_cast<int>(std::lround((high - low) / mark));
  for (int i = 0; i <= marks; ++i) {
    const double v = low + i * mark;
    fmt::format_to(out,
                   "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>"
                   "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.3g}</text>\n",
                   left, width - right, y(v), left - 8, y(v) + 4, v);
  }
  const double step_mark = step_of(steps, 6);
  for (double s = 0; s <= steps + 0.5; s += step_mark)
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n", x(s),
                   height - bottom + 18, s);
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">steps</text>\n",
                 (left + width - right) / 2, height - 10);
  for (const LossCurve& c : curves) {
    const auto mode =
        static_cast<std::size_t>(std::find(modes.begin(), modes.end(), c.mode) - modes.begin());
    fmt::format_to(out, "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"",
                   colours[mode % colours.size()]);
    for (std::size_t i = 0; i < c.steps.size(); ++i)
      if (std::isfinite(c.validation[i]))
        fmt::format_to(out, "{:.1f},{:.1f} ", x(c.steps[i]), y(c.validation[i]));
    svg += "\"/>\n";
  }
  for (std::size_t m = 0; m < modes.size(); ++m)
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{}\">{}</text>\n",
                   width - right, top + 16 * static_cast<double>(m), colours[m % colours.size()],
                   mode_name(modes[m]));
  return svg + "</svg>\n";
}

}  // namespace switchback::bench::transformer
