// SPDX-License-Identifier: Apache-2.0
#include "studies/transformer/chart.hpp"

#include <algorithm>

#include "bench/report/svg.hpp"

namespace switchback::bench::transformer {

std::string loss_chart(const std::vector<LossCurve>& curves, const std::string& title) {
  LinePlot plot;
  plot.title = title;
  plot.x = {.label = "steps", .low = 0};
  plot.y = {.label = "loss"};
  std::vector<std::string> names;
  for (const LossCurve& curve : curves) {
    const auto known = std::find(names.begin(), names.end(), curve.name());
    Series series{.name = {}, .points = {}, .marks = false};
    series.colour = static_cast<std::size_t>(known - names.begin());
    // The legend names a way to compute once, whatever the number of its seeds.
    if (known == names.end()) {
      series.name = curve.name();
      names.push_back(curve.name());
    }
    for (std::size_t i = 0; i < curve.steps.size(); ++i)
      series.points.push_back({.x = static_cast<double>(curve.steps[i]), .y = curve.validation[i]});
    plot.series.push_back(std::move(series));
  }
  return plot.svg();
}

}  // namespace switchback::bench::transformer
