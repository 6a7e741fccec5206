// SPDX-License-Identifier: Apache-2.0
// Bench: the report on records of all workloads except `run`, in formats for users and for other
// programs.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/cli/table.hpp"
#include "bench/report/page.hpp"
#include "bench/report/svg.hpp"
#include "bench/report/workload_report.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/output.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

/// The cells of a table of records.
struct WorkloadCells {
  std::vector<std::string> header, left;
  std::vector<std::vector<std::string>> rows;
  std::size_t keys = 1;  ///< the number of leading columns that identify a row
  bool marked = false;   ///< whether at least one row is marked as in doubt
};

WorkloadCells cells_of_group(const WorkloadRecords& group) {
  WorkloadCells cells;
  std::vector<Column> columns = group.columns;
  for (Column& column : columns)
    if (column.name == "case") column.in_table = false;
  std::size_t texts = 0;
  for (const Column& column : columns) {
    if (!column.in_table) continue;
    cells.header.push_back(column.unit.empty() ? column.name
                                               : fmt::format("{} [{}]", column.name, column.unit));
    if (column.is_text) cells.left.push_back(cells.header.back());
    if (column.is_text && texts + 1 == cells.header.size()) ++texts;
  }
  cells.keys = std::max<std::size_t>(1, texts);
  for (const WorkloadRow& row : group.rows)
    cells.marked = cells.marked || row.disturbed;
  if (cells.marked) cells.header.emplace_back("!");
  for (const WorkloadRow& row : group.rows) {
    std::vector<std::string> line = cells_of(columns, row.record);
    if (cells.marked) line.emplace_back(row.disturbed ? "!" : "");
    cells.rows.push_back(std::move(line));
  }
  return cells;
}

std::string in_words(Better better) {
  return better == Better::more ? "more is better" : "less is better";
}

// A sentence on the ratios in a group of records, without the rows in doubt; empty if there are no
// ratios.
std::string sentence_of(const WorkloadRecords& group) {
  std::string text;
  for (const Column& column : ratio_columns(group)) {
    const WorkloadRow* least = nullptr;
    const WorkloadRow* most = nullptr;
    const auto ratio = [&](const WorkloadRow& row) {
      return row.record.value(column.name, Json()).get<double>();
    };
    for (const WorkloadRow& row : group.rows) {
      if (row.disturbed || !row.record.value(column.name, Json()).is_number()) continue;
      if (least == nullptr || ratio(row) < ratio(*least)) least = &row;
      if (most == nullptr || ratio(row) > ratio(*most)) most = &row;
    }
    text += fmt::format("{} ({}; {}): ", column.name, column.meaning, in_words(column.better));
    if (least == nullptr) {
      text += "every row is in doubt. ";
      continue;
    }
    const WorkloadRow& best = column.better == Better::more ? *most : *least;
    text += fmt::format("{:.2f} to {:.2f}, the best at {}. ", ratio(*least), ratio(*most),
                        row_label(group, best));
  }
  return text.empty() ? text : text.substr(0, text.size() - 1) + "\n";
}

std::string sentences_of(const WorkloadSource& source) {
  std::string text;
  for (const WorkloadRecords& group : source.groups)
    text += sentence_of(group);
  return text;
}

std::string caption_of_ratios(const WorkloadRecords& group) {
  std::string text = "Blue: better than 1, orange: worse. ";
  for (const Column& column : ratio_columns(group))
    text += fmt::format("{}: {} ({}). ", column.name, column.meaning, in_words(column.better));
  return text + "Hatched, and !: in doubt.";
}

Doubt doubt_of(const WorkloadSource& source) {
  Doubt doubt;
  for (const WorkloadRecords& group : source.groups)
    for (const WorkloadRow& row : group.rows)
      doubt.add(row.disturbed ? others_were_running : "");
  return doubt;
}

std::string heading_of(const WorkloadSource& source) {
  std::size_t rows = 0;
  std::string names;
  for (const WorkloadRecords& group : source.groups) {
    rows += group.rows.size();
    names += (names.empty() ? "" : ", ") + group.name;
  }
  std::string text =
      fmt::format("{}: {} record{} of {}", source.path == "-" ? "standard input" : source.path,
                  rows, rows == 1 ? "" : "s", names);
  if (source.machine.empty())
    text += source.path == "-"
                ? "; machine unknown"
                : fmt::format("; machine unknown: there is no {}", run_log_path(source.path));
  else
    text += "; " + source.machine;
  if (source.replaced > 0)
    text += fmt::format("; {} earlier record{} of the same cases {} left out, the last ones count",
                        source.replaced, source.replaced == 1 ? "" : "s",
                        source.replaced == 1 ? "is" : "are");
  return printable(text) + "\n";
}

// The meanings of a table's columns, in one line.
std::string legend_of(const WorkloadRecords& group) {
  std::string text;
  for (const Column& column : group.columns)
    if (column.in_table && !column.meaning.empty())
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", column.name, column.meaning);
  return text.empty() ? text : text + "\n";
}

// Flattens a JSON value into scalars with names; the members of an object are named
// "object.member". Lists become JSON text.
void flatten(const std::string& name, const Json& value,
             std::vector<std::pair<std::string, Json>>& into) {
  if (value.is_object()) {
    for (const auto& [member, inside] : value.items())
      flatten(name.empty() ? member : name + "." + member, inside, into);
    return;
  }
  into.emplace_back(name, value.is_array() ? Json(value.dump()) : value);
}

std::vector<std::pair<std::string, Json>> flat_row(const WorkloadSource& source,
                                                   const WorkloadRecords& group,
                                                   const WorkloadRow& row) {
  std::vector<std::pair<std::string, Json>> flat = {{"file", source.label},
                                                    {"workload", group.name}};
  flatten({}, row.record, flat);
  if (!row.record.contains("disturbed")) flat.emplace_back("disturbed", row.disturbed);
  return flat;
}

// The CSV columns of all rows, in the order of their first appearance. A value that is null in one
// row may be an object in another row; then only the object's members are columns.
std::vector<std::string> flat_columns(const WorkloadSources& sources) {
  std::vector<std::string> names;
  std::set<std::string> known, objects;
  for (const WorkloadSource& source : sources)
    for (const WorkloadRecords& group : source.groups)
      for (const WorkloadRow& row : group.rows)
        for (const auto& [name, value] : flat_row(source, group, row)) {
          if (known.insert(name).second) names.push_back(name);
          for (std::size_t dot = name.find('.'); dot != std::string::npos;
               dot = name.find('.', dot + 1))
            objects.insert(name.substr(0, dot));
        }
  std::erase_if(names, [&](const std::string& name) { return objects.contains(name); });
  return names;
}

Json flat_value(const std::vector<std::pair<std::string, Json>>& row, const std::string& name) {
  for (const auto& [known, value] : row)
    if (known == name) return value;
  return {};
}

}  // namespace

void sort_rows(WorkloadSources& sources, std::string_view key) {
  const bool descending = key.starts_with('-');
  const std::string name(descending ? key.substr(1) : key);
  const std::vector<std::string> names = flat_columns(sources);
  if (std::find(names.begin(), names.end(), name) == names.end())
    core::fail(Status::invalid_argument, "--sort '{}' is not one of {}", name,
               fmt::join(names, ", "));
  for (WorkloadSource& source : sources)
    for (WorkloadRecords& group : source.groups)
      std::stable_sort(group.rows.begin(), group.rows.end(),
                       [&](const WorkloadRow& a, const WorkloadRow& b) {
                         const Json x = flat_value(flat_row(source, group, a), name),
                                    y = flat_value(flat_row(source, group, b), name);
                         if (x.is_null() || y.is_null()) return !x.is_null() && y.is_null();
                         return descending ? y < x : x < y;
                       });
}

std::string report_text(const WorkloadSources& sources, std::size_t columns) {
  std::string text;
  for (const WorkloadSource& source : sources) {
    text += (text.empty() ? "" : "\n") + heading_of(source) + doubt_of(source).sentence();
    for (const WorkloadRecords& group : source.groups) {
      const WorkloadCells cells = cells_of_group(group);
      Table table(cells.header, cells.left);
      for (const std::vector<std::string>& row : cells.rows)
        table.add(row);
      text += "\n" + (source.groups.size() > 1 ? group.name + "\n\n" : std::string()) +
              table.text(columns, cells.keys);
    }
    if (const std::string last = sentences_of(source); !last.empty()) text += "\n" + last;
  }
  return text;
}

std::string report_markdown(const WorkloadSources& sources) {
  std::string text;
  for (const WorkloadSource& source : sources) {
    text += fmt::format("## {}\n\n{}\n", printable(source.label), heading_of(source));
    if (const std::string first = doubt_of(source).sentence() + sentences_of(source);
        !first.empty())
      text += first + "\n";
    for (const WorkloadRecords& group : source.groups) {
      const WorkloadCells cells = cells_of_group(group);
      if (source.groups.size() > 1) text += fmt::format("### {}\n\n", printable(group.name));
      text += pipe_table(cells.header, cells.rows) + "\n" + legend_of(group) + "\n";
    }
  }
  return text;
}

std::string report_csv(const WorkloadSources& sources) {
  const std::vector<std::string> names = flat_columns(sources);
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : ",") + csv_field(Json(name));
  text += "\r\n";
  for (const WorkloadSource& source : sources)
    for (const WorkloadRecords& group : source.groups)
      for (const WorkloadRow& row : group.rows) {
        const auto flat = flat_row(source, group, row);
        for (std::size_t i = 0; i < names.size(); ++i)
          text += (i == 0 ? "" : ",") + csv_field(flat_value(flat, names[i]));
        text += "\r\n";
      }
  return text;
}

std::string report_json(const WorkloadSources& sources) {
  Json json;
  json["type"] = "report";
  json["schema"] = 1;
  Json files = Json::array();
  for (const WorkloadSource& source : sources) {
    const auto of_start = [&](const char* key) {
      return source.start.is_object() ? source.start.value(key, Json()) : Json();
    };
    Json records = Json::array();
    for (const WorkloadRecords& group : source.groups)
      for (const WorkloadRow& row : group.rows) {
        Json record = {{"workload", group.name}};
        record.update(row.record);
        record["disturbed"] = row.disturbed;
        records.push_back(std::move(record));
      }
    files.push_back({{"path", source.path},
                     {"machine", of_start("machine")},
                     {"commit", of_start("commit")},
                     {"trusted", !doubt_of(source).is_about_all()},
                     {"records", std::move(records)}});
  }
  json["files"] = std::move(files);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_html(const WorkloadSources& sources) {
  std::string title = "switchback:", answers, sections;
  bool drawn = false;
  for (const WorkloadSource& source : sources) {
    title += " " + source.label;
    if (sources.size() > 1) answers += fmt::format("<h2>{}</h2>\n", xml_escaped(source.label));
    answers += html_paragraph(doubt_of(source).sentence(), " class=\"doubt\"");
    for (const WorkloadRecords& group : source.groups)
      answers += html_paragraph(sentence_of(group), " class=\"answer\"");
    sections += fmt::format("<section>\n<h2>{}</h2>\n", xml_escaped(source.label)) +
                html_paragraph(heading_of(source));
    for (const WorkloadRecords& group : source.groups) {
      if (source.groups.size() > 1)
        sections += fmt::format("<h3>{}</h3>\n", xml_escaped(group.name));
      const std::string pictures =
          html_figure(workload_ratios(group), caption_of_ratios(group)) +
          html_figure(workload_times(group),
                      "Medians of the parts of a step. Hatched, and !: in doubt.") +
          html_figure(workload_losses(group),
                      "Validation losses: one colour for each mode, one line for each seed.");
      drawn = drawn || !pictures.empty();
      const WorkloadCells cells = cells_of_group(group);
      sections += pictures + html_table(cells.header, cells.rows) +
                  html_paragraph(legend_of(group), " class=\"legend\"");
    }
    if (source.start.is_object())
      sections += "<h3>Machine</h3>\n" + html_machine_table(source.start, {});
    sections += "</section>\n";
  }
  if (!drawn)
    core::fail(Status::unsupported,
               "--format html: records of {} have neither times of parts nor ratios nor losses to "
               "draw; table, markdown, csv and json show them",
               sources.front().groups.front().name);
  return html_page(title, answers + sections);
}

}  // namespace switchback::bench
