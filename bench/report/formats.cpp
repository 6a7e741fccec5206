// SPDX-License-Identifier: Apache-2.0
#include "bench/report/formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "bench/cli/table.hpp"
#include "bench/report/page.hpp"
#include "bench/run/fields.hpp"
#include "bench/workload/output.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

constexpr std::pair<const char*, ReportFormat> formats[] = {{"table", ReportFormat::table},
                                                            {"markdown", ReportFormat::markdown},
                                                            {"csv", ReportFormat::csv},
                                                            {"json", ReportFormat::json},
                                                            {"html", ReportFormat::html}};

/// A table of the speed-ups in several files: a row for each shape, two columns for each file.
ReportCells side_by_side(const Sources& sources) {
  ReportCells cells;
  cells.header = {"batch_size", "dim_in", "dim_out"};
  for (const char* what : {"step", "forward"})
    for (const ReportSource& source : sources)
      cells.header.push_back(fmt::format("{} {}", what, source.label));
  struct Less {
    bool operator()(const Case& a, const Case& b) const noexcept { return case_less(a, b); }
  };
  std::map<Case, std::vector<std::string>, Less> lines;
  for (std::size_t s = 0; s < sources.size(); ++s)
    for (const ReportRow& row : sources[s].report.rows) {
      const Case& c = row.record.shape;
      std::vector<std::string>& line = lines[c];
      if (line.empty()) {
        line = {std::to_string(c.batch_size), std::to_string(c.dim_in), std::to_string(c.dim_out)};
        line.resize(3 + 2 * sources.size(), "-");
      }
      const auto text = [](const std::optional<double>& v) {
        return v ? fmt::format("{:.2f}x", *v) : std::string("-");
      };
      line[3 + s] = text(row.step_speedup()) + (sources[s].report.doubt(row).empty() ? "" : " !");
      line[3 + sources.size() + s] = text(row.forward_speedup());
    }
  for (auto& [shape, line] : lines)
    cells.rows.push_back(std::move(line));
  return cells;
}

}  // namespace

ReportFormat parse_report_format(std::string_view name) {
  for (const auto& [known, format] : formats)
    if (name == known) return format;
  core::fail(Status::invalid_argument,
             "--format '{}' is not one of table, markdown, csv, json, html", name);
}

void sort_rows(Sources& sources, std::string_view key) {
  const bool descending = key.starts_with('-');
  const std::string_view name = descending ? key.substr(1) : key;
  const auto& columns = report_columns();
  const auto column = std::find_if(columns.begin(), columns.end(),
                                   [&](const ReportColumn& c) { return c.name == name; });
  if (column == columns.end()) {
    std::string names;
    for (const ReportColumn& c : columns)
      names += (names.empty() ? "" : ", ") + c.name;
    core::fail(Status::invalid_argument, "--sort '{}' is not one of {}", name, names);
  }
  for (ReportSource& source : sources) {
    const auto value = [&](const ReportRow& row) { return column->value(source, row); };
    std::stable_sort(source.report.rows.begin(), source.report.rows.end(),
                     [&](const ReportRow& a, const ReportRow& b) {
                       const Json x = value(a), y = value(b);
                       if (x.is_null() || y.is_null()) return !x.is_null() && y.is_null();
                       return descending ? y < x : x < y;
                     });
    source.report.sorted = true;
  }
}

std::string report_text(const Sources& sources, std::size_t columns) {
  std::string text;
  for (const ReportSource& source : sources)
    text += (text.empty() ? "" : "\n") + report_heading(source.report, source.path) + "\n" +
            report_doubt(source.report) + report_table(source.report, columns) +
            report_sentence(source.report);
  if (sources.size() < 2) return text;
  const ReportCells cells = side_by_side(sources);
  Table table(cells.header);
  for (const std::vector<std::string>& row : cells.rows)
    table.add(row);
  return text + "\nSide by side: speed-ups over standard of the same file:\n\n" +
         table.text(columns, 3);
}

std::string report_markdown(const Sources& sources) {
  std::string text;
  for (const ReportSource& source : sources) {
    const ReportCells cells = report_cells(source.report);
    text += fmt::format("## {}\n\n{}\n", printable(source.label),
                        report_heading(source.report, source.path));
    if (const std::string doubt = report_doubt(source.report); !doubt.empty()) text += doubt + "\n";
    if (!source.report.machine.empty()) text += printable(source.report.machine) + "\n\n";
    text += report_sentence(source.report) + "\n" + pipe_table(cells.header, cells.rows) + "\n" +
            report_legend(cells) + "\n";
  }
  if (sources.size() < 2) return text;
  const ReportCells beside = side_by_side(sources);
  text += "## Side by side\n\nSpeed-ups over standard of the same file.\n\n" +
          pipe_table(beside.header, beside.rows);
  return text;
}

std::string report_csv(const Sources& sources) {
  std::string text;
  for (const ReportColumn& column : report_columns())
    text += (text.empty() ? "" : ",") + column.name;
  text += "\r\n";
  for (const ReportSource& source : sources)
    for (const ReportRow* row : sorted_rows(source.report)) {
      std::string line;
      for (const ReportColumn& column : report_columns())
        line += (&column == &report_columns().front() ? "" : ",") +
                csv_field(column.value(source, *row));
      text += line + "\r\n";
    }
  return text;
}

std::string report_json(const Sources& sources) {
  Json json;
  json["type"] = "report";
  json["schema"] = 1;
  Json files = Json::array();
  for (const ReportSource& source : sources) {
    Json records = Json::array();
    for (const ReportRow* row : sorted_rows(source.report)) {
      Json record = Json::object();
      for (const ReportColumn& column : report_columns())
        record[column.name] = column.value(source, *row);
      records.push_back(std::move(record));
    }
    Json engines = Json::object();
    for (const auto& [field, names] : source.engines)
      engines[field] = names;
    std::string sentence = report_sentence(source.report);
    sentence.pop_back();
    // Without a run file, machine and commit are not known and become null.
    const auto of_run = [&](const char* key) {
      return source.start.is_object() ? source.start.value(key, Json()) : Json();
    };
    files.push_back({{"path", source.path},
                     {"machine", of_run("machine")},
                     {"commit", of_run("commit")},
                     {"trusted", !not_to_be_trusted(source.report)},
                     {"summary", std::move(sentence)},
                     {"engines", std::move(engines)},
                     {"records", std::move(records)}});
  }
  json["files"] = std::move(files);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

std::optional<double> speedup(const std::optional<double>& rival,
                              const std::optional<double>& subject) {
  if (!rival || !subject || !(*subject > 0)) return std::nullopt;
  return *rival / *subject;
}

std::vector<ReportColumn> make_columns() {
  std::vector<ReportColumn> columns;
  const auto add = [&](std::string name, auto value) {
    columns.push_back({std::move(name), std::move(value)});
  };
  add("file", [](const ReportSource& s, const ReportRow&) { return Json(s.label); });
  add("dtype", [](const ReportSource& s, const ReportRow&) { return or_null(s.dtype); });
  const auto of_record = [&](const char* name, auto get) {
    add(name, [get](const ReportSource&, const ReportRow& r) { return Json(get(r.record)); });
  };
  of_record("repeat", [](const Record& r) { return r.repeat; });
  of_record("batch_size", [](const Record& r) { return r.shape.batch_size; });
  of_record("dim_out", [](const Record& r) { return r.shape.dim_out; });
  of_record("dim_in", [](const Record& r) { return r.shape.dim_in; });
  of_record("wm", [](const Record& r) { return r.shape.wm; });
  of_record("switch", [](const Record& r) { return r.shape.narrows; });
  for (std::size_t i = 0; i < record_fields; ++i)
    add(std::string(field_table()[i].name),
        [i](const ReportSource&, const ReportRow& r) { return or_null(r.record.times_ms[i]); });
  for (const SumInfo& sum : sum_table())
    add(std::string(sum.name), [&sum](const ReportSource&, const ReportRow& r) {
      return or_null(sum_of(sum, r.record.times_ms));
    });
  add(std::string(field_name(Field::fwd_packed)),
      [](const ReportSource&, const ReportRow& r) { return or_null(r.fwd_packed_ms); });
  add(std::string(field_name(Field::standard_fwd_packed)),
      [](const ReportSource&, const ReportRow& r) { return or_null(r.standard_fwd_packed_ms); });
  add("speedup_rowwise", [](const ReportSource&, const ReportRow& r) {
    return or_null(speedup(r.record.time_standard(), r.record.time_rowwise()));
  });
  add("speedup_global", [](const ReportSource&, const ReportRow& r) {
    return or_null(speedup(r.record.time_standard(), r.record.time_global()));
  });
  add("speedup_step",
      [](const ReportSource&, const ReportRow& r) { return or_null(r.step_speedup()); });
  add("speedup_step_error",
      [](const ReportSource&, const ReportRow& r) { return or_null(r.step_error); });
  add("speedup_forward",
      [](const ReportSource&, const ReportRow& r) { return or_null(r.forward_speedup()); });
  add("others_cores",
      [](const ReportSource&, const ReportRow& r) { return or_null(r.others_cores); });
  add("doubt",
      [](const ReportSource& s, const ReportRow& r) { return or_null(s.report.doubt(r)); });
  return columns;
}

}  // namespace

const std::vector<ReportColumn>& report_columns() {
  static const std::vector<ReportColumn> columns = make_columns();
  return columns;
}

}  // namespace switchback::bench
