// SPDX-License-Identifier: Apache-2.0
// Bench: the report as a page of its own.
#include <fmt/format.h>

#include "bench/picture/svg.hpp"
#include "bench/report/formats.hpp"
#include "bench/workload/output.hpp"

namespace switchback::bench {

namespace {

constexpr const char* style = R"(
body { font: 15px/1.45 sans-serif; color: #111; max-width: 60em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; border-bottom: 1px solid #bbb; }
figure { margin: 1.2em 0; overflow-x: auto; } figcaption { color: #444; font-size: 0.9em; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.85em; } .scroll { overflow-x: auto; }
th, td { padding: 0.2em 0.6em; text-align: right; border-bottom: 1px solid #ddd; }
th { border-bottom: 1px solid #333; } .text td, .text th { text-align: left; }
.doubt { background: #fff3e0; border-left: 4px solid #D55E00; padding: 0.5em 1em; }
@media print {
  body { max-width: none; margin: 0; font-size: 10pt; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; } .scroll { overflow: visible; }
}
)";

std::string paragraph(const std::string& text, const char* of_class = "") {
  if (text.empty()) return {};
  return fmt::format("<p{}>{}</p>\n", of_class, xml_escaped(text));
}

std::string figure(const std::string& svg, const std::string& caption) {
  if (svg.empty()) return {};
  return fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", svg,
                     xml_escaped(caption));
}

std::string table_row(const std::vector<std::string>& cells, const char* element) {
  std::string row = "<tr>";
  for (const std::string& cell : cells)
    row += fmt::format("<{0}>{1}</{0}>", element, xml_escaped(cell));
  return row + "</tr>\n";
}

std::string html_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows,
                       const char* of_class = "") {
  std::string text = fmt::format("<div class=\"scroll\"><table{}>\n<thead>{}</thead>\n<tbody>\n",
                                 of_class, table_row(header, "th"));
  for (const std::vector<std::string>& row : rows)
    text += table_row(row, "td");
  return text + "</tbody>\n</table></div>\n";
}

// What the run file says of machine and program, member by member.
std::string machine_table(const ReportSource& source) {
  std::vector<std::vector<std::string>> rows;
  const auto machine = source.start.find("machine");
  if (machine != source.start.end() && machine->is_object())
    for (const char* key : {"cpu", "gpu", "device", "isa", "cores", "threads", "memory_bytes", "os",
                            "hypervisor", "compiler", "libraries"})
      if (machine->contains(key) && !(*machine)[key].is_null())
        rows.push_back({key, text_at(*machine, key)});
  for (const char* key : {"tool", "commit", "time", "timer", "arguments"})
    if (source.start.contains(key)) rows.push_back({key, text_at(source.start, key)});
  if (!source.dtype.empty()) rows.push_back({"dtype", source.dtype});
  return rows.empty() ? std::string() : html_table({"machine", ""}, rows, " class=\"text\"");
}

std::string engine_table(const ReportSource& source) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [field, names] : source.engines)
    rows.push_back({field, fmt::format("{}", fmt::join(names, ", "))});
  return rows.empty() ? std::string() : html_table({"field", "engines"}, rows, " class=\"text\"");
}

/// Shapes that the published records have too.
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
    return paragraph(
        "None of these shapes is among the published ones, so there is no row to set "
        "beside another.");
  return html_table({"shape", "speed-up here", "A100, published", "here : published"}, rows);
}

std::string source_section(const ReportSource& source, std::size_t number) {
  const Report& report = source.report;
  const ReportCells cells = report_cells(report);
  std::string text = fmt::format("<section>\n<h2>{}</h2>\n", xml_escaped(source.label));
  text += paragraph(report_heading(report, source.path));
  text += paragraph(report_doubt(report), " class=\"doubt\"");
  text += paragraph(report_sentence(report));
  text += figure(step_heat_map(source, fmt::format("doubt{}", number)),
                 "Mode standard's time over the faster of modes rowwise and global. Above 1 (blue) "
                 "int8 pays. Hatched: in doubt.");
  text +=
      figure(step_parts(source),
             "Time of a step by field, in each of the three ways, as a share of mode standard's.");
  text += figure(roofline(source),
                 "Slope: bytes per second of a copy past the caches. Flat: multiply-adds in "
                 "registers alone. Both were measured in the same run. A point above the slope had "
                 "its operands in a cache.");
  text += html_table(cells.header, cells.rows) + paragraph(report_legend(cells));
  return text + "<h3>Machine and engines</h3>\n" + machine_table(source) + engine_table(source) +
         "</section>\n";
}

}  // namespace

std::string report_html(const Sources& sources) {
  std::string title = "switchback:";
  for (const ReportSource& source : sources)
    title += " " + source.label;
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      xml_escaped(title), style);
  text +=
      figure(step_lines(sources),
             "Error bars: 95 % intervals from the spread of the times, where a run file tells it.");
  text +=
      figure(beside_published(sources),
             "Ratios, not times: a CPU and an A100 differ in speed, but the question is the same.");
  text += published_table(sources);
  for (std::size_t i = 0; i < sources.size(); ++i)
    text += source_section(sources[i], i);
  return text + "</body>\n</html>\n";
}

}  // namespace switchback::bench
