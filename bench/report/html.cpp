// SPDX-License-Identifier: Apache-2.0
// Bench: the report as one HTML page that needs no other files.
#include <fmt/format.h>

#include "bench/report/formats.hpp"
#include "bench/report/page.hpp"
#include "bench/report/svg.hpp"
#include "bench/workload/output.hpp"

namespace switchback::bench {

namespace {

std::string engine_table(const ReportSource& source) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [field, names] : source.engines)
    rows.push_back({field, fmt::format("{}", fmt::join(names, ", "))});
  return rows.empty() ? std::string() : html_table({"field", "engines"}, rows, " class=\"text\"");
}

/// An HTML table that compares the speed-ups here with the published ones, for shapes that both
/// have.
std::string published_table(const Sources& sources) {
  std::vector<std::vector<std::string>> rows;
  const Sources published = {published_source()};
  for (const ReportSource& source : sources)
    for (const ReportRow* row : sorted_rows(source.report))
      for (const ReportRow& other : published.front().report.rows) {
        const auto ours = row->step_speedup(), theirs = other.step_speedup();
        if (case_id(row->record.shape) != case_id(other.record.shape) || !ours || !theirs) continue;
        rows.push_back({source.label + " " + case_id(row->record.shape),
                        fmt::format("{:.2f}", *ours), fmt::format("{:.2f}", *theirs),
                        fmt::format("{:.2f}", *ours / *theirs)});
      }
  if (rows.empty())
    return html_paragraph(
        "None of these shapes is among the published ones, so there is nothing to compare.");
  return html_table({"shape", "speed-up here", "A100, published", "here / published"}, rows);
}

// The sentence that says whether int8 pays, after a sentence on how reliable the records are.
std::string answer(const Report& report) {
  return html_paragraph(report_doubt(report), " class=\"doubt\"") +
         html_paragraph(report_sentence(report), " class=\"answer\"");
}

std::string source_section(const ReportSource& source) {
  const Report& report = source.report;
  const ReportCells cells = report_cells(report);
  std::string text = fmt::format("<section>\n<h2>{}</h2>\n", xml_escaped(source.label));
  text += html_paragraph(report_heading(report, source.path));
  text += html_figure(step_heat_map(source),
                      "Mode standard's time divided by that of the faster of modes rowwise and "
                      "global. Above 1 (blue) int8 pays. Hatched, and !: in doubt.");
  text += html_figure(step_parts(source),
                      "Time of a step by field, in each of the three modes, relative to mode "
                      "standard's. Hatched, and !: in doubt.");
  text += html_figure(
      roofline(source),
      "Slope: bytes per second of a copy past the caches. Flat: multiply-adds in registers alone. "
      "Both were measured in the same run. A point above the slope had its operands in a cache.");
  text += html_table(cells.header, cells.rows) +
          html_paragraph(report_legend(cells), " class=\"legend\"");
  return text + "<h3>Machine and engines</h3>\n" + html_machine_table(source.start, source.dtype) +
         engine_table(source) + "</section>\n";
}

}  // namespace

std::string report_html(const Sources& sources) {
  std::string title = "switchback:", text;
  for (const ReportSource& source : sources) {
    title += " " + source.label;
    if (sources.size() > 1) text += fmt::format("<h2>{}</h2>\n", xml_escaped(source.label));
    text += answer(source.report);
  }
  text += html_paragraph(
      "Int8 pays where it is at least 2 % faster than mode standard. Sizes are compared by the "
      "operations of one product, 2·batch_size·dim_in·dim_out. Rows in doubt are not counted.",
      " class=\"legend\"");
  text += html_figure(
      step_lines(sources),
      "Error bars: 95 % intervals from the spread of the times, if there is a run file.");
  text += html_figure(
      beside_published(sources),
      "Ratios, not times: a CPU and an A100 differ in speed, but the question is the same.");
  text += published_table(sources);
  for (const ReportSource& source : sources)
    text += source_section(source);
  return html_page(title, text);
}

}  // namespace switchback::bench
