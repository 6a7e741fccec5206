// SPDX-License-Identifier: Apache-2.0
#include "bench/report/page.hpp"

#include <fmt/format.h>

#include "bench/cli/table.hpp"
#include "bench/picture/svg.hpp"
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

std::string table_row(const std::vector<std::string>& cells, const char* element) {
  std::string row = "<tr>";
  for (const std::string& cell : cells)
    row += fmt::format("<{0}>{1}</{0}>", element, xml_escaped(cell));
  return row + "</tr>\n";
}

// A row of a pipe table; a pipe within a cell would end it.
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
  std::string text = fmt::format("<div class=\"scroll\"><table{}>\n<thead>{}</thead>\n<tbody>\n",
                                 of_class, table_row(header, "th"));
  for (const std::vector<std::string>& row : rows)
    text += table_row(row, "td");
  return text + "</tbody>\n</table></div>\n";
}

std::string html_machine_table(const nlohmann::ordered_json& start, const std::string& dtype) {
  std::vector<std::vector<std::string>> rows;
  const auto machine = start.find("machine");
  if (machine != start.end() && machine->is_object())
    for (const char* key : {"cpu", "gpu", "device", "isa", "cores", "threads", "memory_bytes", "os",
                            "hypervisor", "compiler", "libraries"})
      if (machine->contains(key) && !(*machine)[key].is_null())
        rows.push_back({key, text_at(*machine, key)});
  for (const char* key : {"tool", "commit", "time", "timer", "arguments"})
    if (start.contains(key)) rows.push_back({key, text_at(start, key)});
  if (!dtype.empty()) rows.push_back({"dtype", dtype});
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

// RFC 4180: a field with a comma, a quote or a line break stands in quotes, its quotes doubled.
std::string csv_field(const nlohmann::ordered_json& value) {
  if (value.is_null()) return {};
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace switchback::bench
