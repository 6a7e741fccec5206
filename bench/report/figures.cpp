// SPDX-License-Identifier: Apache-2.0
#include "bench/report/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "bench/cli/table.hpp"
#include "bench/report/svg.hpp"
#include "bench/run/fields.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

using Layer = std::pair<std::int64_t, std::int64_t>;  // a layer's dim_in and dim_out

std::string layer_text(const Layer& layer) {
  return fmt::format("{} to {}", layer.first, layer.second);
}

Layer layer_of(const Case& c) {
  return {c.dim_in, c.dim_out};
}

// The layers that occur in the records, in ascending order of dim_in · dim_out, then of dim_in.
std::vector<Layer> layers_of(const ReportSource& source) {
  std::set<Layer> all;
  for (const ReportRow& row : source.report.rows)
    all.insert(layer_of(row.record.shape));
  std::vector<Layer> sorted(all.begin(), all.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const Layer& a, const Layer& b) {
    return a.first * a.second < b.first * b.second;
  });
  return sorted;
}

// The text of a legend entry. If the figure shows several files, it begins with the label of its
// file.
std::string named(const Sources& sources, const ReportSource& source, const std::string& text) {
  return sources.size() < 2 ? text : source.label + ": " + text;
}

// The text that a browser shows for a point of a figure: the shape, and why the result is in doubt.
std::string title_of(const ReportSource& source, const ReportRow& row) {
  const std::string doubt = source.report.doubt(row);
  return case_id(row.record.shape) + (doubt.empty() ? "" : ": " + doubt);
}

bool in_doubt(const ReportSource& source, const ReportRow& row) {
  return !source.report.doubt(row).empty();
}

// The speed-up of a training step as a point of a figure, with its 95 % interval if the run file
// has the spread of the times. Empty if the record has no speed-up.
std::optional<Point> step_point(double x, const ReportSource& source, const ReportRow& row) {
  const std::optional<double> ratio = row.step_speedup();
  if (!ratio) return std::nullopt;
  Point point{
      .x = x, .y = *ratio, .title = title_of(source, row), .doubtful = in_doubt(source, row)};
  if (row.step_error) {
    point.low = *ratio * std::exp(-1.96 * *row.step_error);
    point.high = *ratio * std::exp(1.96 * *row.step_error);
  }
  return point;
}

double operations(const Case& c) {
  return 2 * c.macs();
}

double percent_faster(double rival, double subject) {
  return 100 * (rival - subject) / rival;
}

}  // namespace

std::string step_heat_map(const ReportSource& source) {
  HeatMap map;
  map.title = fmt::format("{}: speed-up of a training step over mode standard", source.label);
  map.row_label = "dim_in to dim_out";
  map.column_label = "batch_size (rows of X)";
  const std::vector<Layer> layers = layers_of(source);
  std::set<std::int64_t> batches;
  for (const ReportRow& row : source.report.rows)
    batches.insert(row.record.shape.batch_size);
  for (const std::int64_t batch : batches)
    map.columns.push_back(std::to_string(batch));
  for (const Layer& layer : layers)
    map.rows.push_back(layer_text(layer));
  map.cells.assign(layers.size(), std::vector<std::optional<HeatMap::Cell>>(batches.size()));
  for (const ReportRow& row : source.report.rows) {
    const std::optional<double> speedup = row.step_speedup();
    if (!speedup) continue;
    const Case& c = row.record.shape;
    const auto r = std::find(layers.begin(), layers.end(), layer_of(c)) - layers.begin();
    const auto column = std::distance(batches.begin(), batches.find(c.batch_size));
    map.cells[static_cast<std::size_t>(r)][static_cast<std::size_t>(column)] = {
        .gain = *speedup,
        .text = fmt::format("{:.2f}", *speedup),
        .doubtful = in_doubt(source, row),
        .title = title_of(source, row)};
  }
  return map.svg();
}

std::string step_lines(const Sources& sources) {
  LinePlot plot;
  plot.title = "Speed-up of a training step over batch_size, with 95 % intervals";
  plot.x = {.label = "batch_size (rows of X)", .logarithmic = true};
  plot.y = {.label = "speed-up over standard"};
  plot.rule = 1;
  std::size_t colour = 0;
  for (const ReportSource& source : sources)
    for (const Layer& layer : layers_of(source)) {
      Series series{.name = named(sources, source, layer_text(layer)), .points = {}};
      series.colour = colour++;
      for (const ReportRow* row : sorted_rows(source.report))
        if (layer_of(row->record.shape) == layer)
          if (auto point =
                  step_point(static_cast<double>(row->record.shape.batch_size), source, *row))
            series.points.push_back(std::move(*point));
      if (!series.points.empty()) plot.series.push_back(std::move(series));
    }
  return plot.svg();
}

std::string step_parts(const ReportSource& source) {
  StackedBars bars;
  bars.title = fmt::format("{}: where a step's time goes, standard = 1", source.label);
  std::vector<Field> fields;
  for (const SumInfo& sum : sum_table())
    for (const Field part : sum.parts)
      if (std::find(fields.begin(), fields.end(), part) == fields.end()) fields.push_back(part);
  for (const Field field : fields)
    bars.names.emplace_back(field_name(field));
  for (const ReportRow* row : sorted_rows(source.report)) {
    const Record& record = row->record;
    const std::optional<double> standard = record.time_standard();
    if (!standard || !(*standard > 0)) continue;
    for (const SumInfo& sum : sum_table()) {
      const std::optional<double> total = sum_of(sum, record.times_ms);
      if (!total) continue;
      const std::string way(sum.name.substr(sum.name.find('_') + 1));
      StackedBars::Bar bar{.label = case_id(record.shape) + " " + way, .parts = {}};
      bar.parts.resize(fields.size());
      for (const Field part : sum.parts)
        bar.parts[static_cast<std::size_t>(std::find(fields.begin(), fields.end(), part) -
                                           fields.begin())] = *record.time(part) / *standard;
      bar.note = fmt::format("{} ms", number(*total));
      bar.doubtful = in_doubt(source, *row);
      bars.bars.push_back(std::move(bar));
    }
  }
  return bars.svg();
}

std::string beside_published(const Sources& sources) {
  LinePlot plot;
  plot.title = "Speed-up of a training step, compared with the published A100 (f16)";
  plot.x = {.label = "operations of a product, 2·M·N·K", .logarithmic = true};
  plot.y = {.label = "speed-up over standard"};
  plot.rule = 1;
  const auto add = [&](const ReportSource& source, bool hollow) {
    Series series{.name = source.label, .points = {}, .line = false, .hollow = hollow};
    for (const ReportRow* row : sorted_rows(source.report))
      if (auto point = step_point(operations(row->record.shape), source, *row))
        series.points.push_back(std::move(*point));
    plot.series.push_back(std::move(series));
  };
  for (const ReportSource& source : sources)
    add(source, false);
  add(published_source(), true);
  return plot.svg();
}

std::string roofline(const ReportSource& source) {
  if (!source.ceilings || !(source.ceilings->copy_gb_s > 0) || !(source.ceilings->s8_tops > 0))
    return {};
  const Ceilings& ceilings = *source.ceilings;
  const double element = source.element_bytes();
  LinePlot plot;
  plot.title = fmt::format("{}: the forward's products under the machine's ceilings", source.label);
  plot.x = {.label = "operations per byte of operands and result", .logarithmic = true};
  plot.y = {.label = "operations per second, in 1e12", .logarithmic = true};
  Series int8{.name = "int8 product", .points = {}, .line = false},
      floating{.name = "standard product", .points = {}, .line = false};
  double least = 1e300, most = 0;
  for (const ReportRow& row : source.report.rows) {
    const Case& c = row.record.shape;
    const auto m = static_cast<double>(c.batch_size), n = static_cast<double>(c.dim_out),
               k = static_cast<double>(c.dim_in);
    const auto add = [&](Series& series, std::optional<double> ms, double bytes) {
      if (!ms || !(*ms > 0)) return;
      const double intensity = operations(c) / bytes;
      least = std::min(least, intensity);
      most = std::max(most, intensity);
      series.points.push_back({.x = intensity,
                               .y = operations(c) / *ms * 1e-9,
                               .title = title_of(source, row),
                               .doubtful = in_doubt(source, row)});
    };
    std::optional<double> product = row.fwd_packed_ms;
    if (!product) product = row.record.time(Field::rowwise_fwd);
    add(int8, product, m * k + n * k + element * m * n);
    add(floating, row.record.time(Field::standard_fwd), element * (m * k + n * k + m * n));
  }
  if (!(most > 0)) return {};
  const auto roof = [&](const std::string& name, double tops, std::size_t colour) {
    Series series{.name = name, .points = {}, .dashed = true, .marks = false, .colour = colour};
    const double knee = tops * 1e3 / ceilings.copy_gb_s;
    std::vector<double> xs = {least / 1.5, most * 1.5};
    if (knee > xs[0] && knee < xs[1]) xs.insert(xs.begin() + 1, knee);
    for (const double x : xs)
      series.points.push_back({.x = x, .y = std::min(tops, x * ceilings.copy_gb_s * 1e-3)});
    plot.series.push_back(std::move(series));
  };
  int8.colour = 0;
  floating.colour = 1;
  plot.series = {std::move(int8), std::move(floating)};
  roof(fmt::format("int8: {} ({})", number(ceilings.s8_tops), ceilings.s8_instruction),
       ceilings.s8_tops, 0);
  if (ceilings.f32_tflops > 0)
    roof(fmt::format("f32: {} ({})", number(ceilings.f32_tflops), ceilings.f32_instruction),
         ceilings.f32_tflops, 1);
  return plot.svg();
}

namespace {

/// The layers of dim to 4·dim and back, for which times of fields are averaged over both
/// directions.
class BothWays {
 public:
  BothWays(const ReportSource& source, std::int64_t batch_size) {
    for (const ReportRow& row : source.report.rows) {
      const Case& c = row.record.shape;
      const std::int64_t narrow = std::min(c.dim_in, c.dim_out);
      if (c.batch_size == batch_size && std::max(c.dim_in, c.dim_out) == 4 * narrow)
        rows_[narrow].push_back(&row);
    }
  }
  [[nodiscard]] const std::map<std::int64_t, std::vector<const ReportRow*>>& dims() const {
    return rows_;
  }
  [[nodiscard]] static std::optional<double> mean(const std::vector<const ReportRow*>& rows,
                                                  const std::vector<Field>& fields) {
    double total = 0;
    for (const ReportRow* row : rows)
      for (const Field field : fields) {
        const std::optional<double> ms = row->record.time(field);
        if (!ms) return std::nullopt;
        total += *ms;
      }
    return total / static_cast<double>(rows.size());
  }

 private:
  std::map<std::int64_t, std::vector<const ReportRow*>> rows_;
};

// A point of a figure over dim. It is in doubt if a record of either direction of the layer is.
Point dim_point(const ReportSource& source, std::int64_t dim,
                const std::vector<const ReportRow*>& rows, double y) {
  return {.x = static_cast<double>(dim),
          .y = y,
          .title = fmt::format("dim {}", dim),
          .doubtful = std::any_of(rows.begin(), rows.end(),
                                  [&](const ReportRow* row) { return in_doubt(source, *row); })};
}

std::vector<Field> quantizes_of(const SumInfo& sum) {
  std::vector<Field> fields;
  for (const Field part : sum.parts)
    if (spec_of(part).group == "quantize") fields.push_back(part);
  return fields;
}

std::vector<std::int64_t> batches_of(const Sources& sources,
                                     std::optional<std::int64_t> batch_size) {
  std::set<std::int64_t> all;
  for (const ReportSource& source : sources)
    for (const ReportRow& row : source.report.rows) {
      const Case& c = row.record.shape;
      if (std::max(c.dim_in, c.dim_out) == 4 * std::min(c.dim_in, c.dim_out))
        all.insert(c.batch_size);
    }
  if (batch_size) {
    core::require(all.contains(*batch_size),
                  "--batch {}: no record of this batch size has a W of dim and 4*dim", *batch_size);
    return {*batch_size};
  }
  core::require(!all.empty(),
                "--figure: no record has a W of dim and 4*dim, as the published ones have");
  std::vector<std::int64_t> batches;
  for (const std::int64_t b : {16384, 32768, 65536, 131072})
    if (all.contains(b)) batches.push_back(b);
  if (batches.empty()) batches.assign(all.begin(), all.end());
  return batches;
}

// Adds a line for each file to the plot: a percentage over dim.
template <class F>
void add_percentages(LinePlot& plot, const Sources& sources, std::int64_t batch, F&& percent) {
  for (const ReportSource& source : sources) {
    Series series{
        .name = named(sources, source, fmt::format("batch * sequence length = {}", batch)),
        .points = {}};
    const BothWays both(source, batch);
    for (const auto& [dim, rows] : both.dims())
      if (const std::optional<double> y = percent(rows))
        series.points.push_back(dim_point(source, dim, rows, *y));
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  }
}

}  // namespace

PublishedFigure parse_figure(std::string_view name) {
  core::require(name == "speedup" || name == "quantize" || name == "parts",
                "--figure '{}' is not one of speedup, quantize, parts", name);
  return name == "speedup"    ? PublishedFigure::speedup
         : name == "quantize" ? PublishedFigure::quantize
                              : PublishedFigure::parts;
}

std::string published_figure(PublishedFigure figure, const Sources& sources,
                             std::optional<std::int64_t> batch_size) {
  const SumInfo& standard = sum_table()[0];
  const SumInfo& global = sum_table()[2];
  const std::vector<std::int64_t> batches = batches_of(sources, batch_size);
  LinePlot plot;
  plot.x = {.label = "dim", .logarithmic = true};
  if (figure == PublishedFigure::parts) {
    // The script that came with the published records shows the batch size 32768.
    const bool theirs = std::find(batches.begin(), batches.end(), 32768) != batches.end();
    const std::int64_t batch = theirs ? 32768 : batches.back();
    plot.title = fmt::format("Linear layer, batch * sequence length = {}", batch);
    plot.y = {.label = "time (ms)", .logarithmic = true};
    for (const ReportSource& source : sources) {
      const BothWays both(source, batch);
      const auto add = [&](std::string name, const std::vector<Field>& fields) {
        Series series{.name = named(sources, source, name), .points = {}};
        series.dashed = fields.size() == 1;
        for (const auto& [dim, rows] : both.dims())
          if (const auto ms = BothWays::mean(rows, fields))
            series.points.push_back(dim_point(source, dim, rows, *ms));
        if (!series.points.empty()) plot.series.push_back(std::move(series));
      };
      add("standard (sum of parts)", standard.parts);
      add("SwitchBack int8 (sum of parts)", global.parts);
      std::vector<Field> parts = standard.parts;
      for (const Field part : global.parts)
        if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
      for (const Field part : parts)
        add(std::string(field_name(part)), {part});
    }
  } else {
    const bool speedup = figure == PublishedFigure::speedup;
    plot.title = speedup ? "Linear layer summary, varying dimensions"
                         : "Share of quantizing in a SwitchBack layer, varying dimensions";
    plot.y = {.label = speedup ? "% speedup" : "% of time that is quantizing"};
    plot.rule = 0;
    for (const std::int64_t batch : batches)
      add_percentages(plot, sources, batch,
                      [&](const std::vector<const ReportRow*>& rows) -> std::optional<double> {
                        const auto total = BothWays::mean(rows, global.parts);
                        const auto other =
                            BothWays::mean(rows, speedup ? standard.parts : quantizes_of(global));
                        if (!total || !other || !(*total > 0) || !(*other > 0)) return std::nullopt;
                        return speedup ? percent_faster(*other, *total) : 100 * *other / *total;
                      });
  }
  if (plot.series.empty())
    core::fail(Status::invalid_argument,
               "--figure: no record has all fields that the figure needs");
  return plot.svg();
}

}  // namespace switchback::bench
