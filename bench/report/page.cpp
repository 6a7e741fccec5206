// SPDX-License-Identifier: Apache-2.0
#include "bench/report/page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/report/svg.hpp"
#include "bench/workload/output.hpp"

namespace switchback::bench {

namespace {

// The style sheet of a report's page. On a screen, tables and pictures wider than the screen
// scroll. On paper, the font size of a table fits its columns (--size, from print_size()); if that
// is not enough, words are broken.
constexpr const char* style = R"(
body { font: 15px/1.45 sans-serif; color: #111; max-width: 95em; margin: 2em auto; padding: 0 1em; }
p, .text { max-width: 60em; overflow-wrap: anywhere; }
h1 { font-size: 1.5em; overflow-wrap: anywhere; }
h2 { font-size: 1.2em; margin-top: 2em; border-bottom: 1px solid #bbb; overflow-wrap: anywhere; }
figure { margin: 1.2em 0; overflow-x: auto; } figcaption { color: #444; font-size: 0.9em; max-width: 60em; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.85em; } .scroll { overflow-x: auto; }
th, td { padding: 0.2em 0.6em; text-align: right; border-bottom: 1px solid #ddd; }
td { white-space: nowrap; } th { vertical-align: bottom; border-bottom: 1px solid #333; }
.text td, .text th { text-align: left; } .text td + td { white-space: normal; }
td.long { white-space: normal; text-align: left; min-width: 20em; }
.answer { font-size: 1.1em; } .legend { color: #444; font-size: 0.9em; white-space: pre-line; }
.doubt { background: #fff3e0; border-left: 4px solid #D55E00; padding: 0.5em 1em; }
@media screen and (max-width: 50em) { svg { max-width: none; } figcaption { position: sticky; left: 0; } }
@media print {
  body { max-width: none; margin: 0; padding: 0; font-size: 10pt; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; } .scroll, figure { overflow: visible; }
  svg { max-height: 24cm; width: auto; }
  table { font-size: var(--size, 8pt); max-width: 100%; }
  th, td { padding: 0.15em 0.35em; } td.long { min-width: 12em; }
}
)";

// A table cell with more characters than this is broken into lines.
constexpr std::size_t longest_cell = 40;

std::string table_row(const std::vector<std::string>& cells) {
  std::string row = "<tr>";
  for (const std::string& cell : cells)
    row += fmt::format("<td{}>{}</td>", cell.size() > longest_cell ? " class=\"long\"" : "",
                       xml_escaped(cell));
  return row + "</tr>\n";
}

// A table's heading row. Headings may be broken after each '_' and '.', so that a column need not
// be wider than its numbers.
std::string heading_row(const std::vector<std::string>& header) {
  std::string row = "<tr>";
  for (const std::string& cell : header) {
    row += "<th>";
    for (const char c : xml_escaped(cell)) {
      row += c;
      if (c == '_' || c == '.') row += "<wbr>";
    }
    row += "</th>";
  }
  return row + "</tr>\n";
}

constexpr double least_print_size = 4;

// The font size, in points, at which a table fits the width of a sheet of paper; it is between 4
// and 8.
double print_size(const std::vector<std::string>& header,
                  const std::vector<std::vector<std::string>>& rows) {
  constexpr double sheet = 510, letter = 0.58, gap = 0.7;
  double ems = 0;
  for (std::size_t c = 0; c < header.size(); ++c) {
    std::size_t longest = 1, piece = 0;
    for (const char at : header[c]) {
      piece = at == ' ' ? 0 : piece + 1;
      longest = std::max(longest, piece);
      if (at == '_' || at == '.') piece = 0;
    }
    for (const std::vector<std::string>& row : rows)
      if (c < row.size()) longest = std::max(longest, std::min(row[c].size(), longest_cell));
    ems += letter * static_cast<double>(longest) + gap;
  }
  return std::clamp(sheet / std::max(ems, 1.0), least_print_size, 8.0);
}

// A row of a Markdown table. A pipe character within a cell is escaped, because it would end the
// cell.
std::string pipe_row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) {
    std::string text;
    for (const char c : printable(cell))
      text += c == '|' ? std::string("\\|") : std::string(1, c);
    line += " " + text + " |";
  }
  return line + "\n";
}

}  // namespace

std::string html_page(const std::string& title, const std::string& body) {
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
             xml_escaped(title), style) +
         body + "</body>\n</html>\n";
}

std::string html_paragraph(const std::string& text, const char* of_class) {
  if (text.empty()) return {};
  return fmt::format("<p{}>{}</p>\n", of_class, xml_escaped(text));
}

std::string html_figure(const std::string& svg, const std::string& caption) {
  if (svg.empty()) return {};
  return fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", svg,
                     xml_escaped(caption));
}

std::string html_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows, const char* of_class) {
  // Cells with text are broken into lines. Numbers are broken only if no font size is small enough.
  const bool numbers = std::string_view(of_class).empty();
  const double size = print_size(header, rows);
  std::string text =
      fmt::format("<div class=\"scroll\"><table{}{}>\n<thead>{}</thead>\n<tbody>\n", of_class,
                  numbers ? fmt::format(" style=\"--size: {:.1f}pt{}\"", size,
                                        size > least_print_size ? "" : "; overflow-wrap: anywhere")
                          : "",
                  heading_row(header));
  for (const std::vector<std::string>& row : rows)
    text += table_row(row);
  return text + "</tbody>\n</table></div>\n";
}

std::string html_machine_table(const nlohmann::ordered_json& start, const std::string& dtype) {
  struct Entry {
    const char *key, *name;
  };
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const nlohmann::ordered_json& of, const Entry& entry) {
    const auto at = of.find(entry.key);
    if (at == of.end() || at->is_null()) return;
    if (at->is_object()) {  // an object with the versions of libraries: one row for each library
      for (const auto& [name, value] : at->items())
        rows.push_back({name, text_at(*at, name.c_str())});
      return;
    }
    const bool bytes = at->is_number() && std::string_view(entry.key).ends_with("_bytes");
    rows.push_back({entry.name, bytes ? format_bytes(at->get<double>()) : text_at(of, entry.key)});
  };
  const auto machine = start.find("machine");
  if (machine != start.end() && machine->is_object())
    for (const Entry& entry :
         {Entry{"cpu", "CPU"}, Entry{"gpu", "GPU"}, Entry{"device", "device"},
          Entry{"isa", "instruction set"}, Entry{"cores", "cores"}, Entry{"threads", "threads"},
          Entry{"memory_bytes", "memory"}, Entry{"gpu_memory", "memory of the GPU"},
          Entry{"os", "system"}, Entry{"hypervisor", "hypervisor"}, Entry{"compiler", "compiler"},
          Entry{"libraries", "libraries"}})
      add(*machine, entry);
  for (const Entry& entry :
       {Entry{"tool", "version of switchback"}, Entry{"commit", "commit"}, Entry{"time", "time"},
        Entry{"timer", "timer"}, Entry{"arguments", "arguments"}})
    add(start, entry);
  if (!dtype.empty()) rows.push_back({"type of X", dtype});
  return rows.empty() ? std::string() : html_table({"machine", ""}, rows, " class=\"text\"");
}

std::string pipe_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows) {
  std::string text = pipe_row(header) + "|";
  for (std::size_t i = 0; i < header.size(); ++i)
    text += " ---: |";
  text += "\n";
  for (const std::vector<std::string>& row : rows)
    text += pipe_row(row);
  return text;
}

// Quotes a CSV field as RFC 4180 requires: a field with a comma, a quote or a line break is put in
// quotes, and quotes in it are doubled.
std::string csv_field(const nlohmann::ordered_json& value) {
  if (value.is_null()) return {};
  const std::string text = value.is_string() ? valid_utf8(value.get<std::string>()) : value.dump();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace switchback::bench
