// SPDX-License-Identifier: Apache-2.0
#include "bench/report/report.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/record_file.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

namespace {

std::optional<double> faster(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::string cell(std::optional<double> value) {
  return value ? number(*value) : "-";
}

std::string times(std::optional<double> value) {
  if (!value) return "-";
  // A ratio below 0.095 gets more digits, because "0.00x" would say nothing.
  return *value < 0.095 ? fmt::format("{}x", number(*value)) : fmt::format("{:.2f}x", *value);
}

// The squared standard error of a sum of the fields' medians, in ms²; empty if a field was called
// fewer than three times.
std::optional<double> error_squared(const SumInfo& sum,
                                    const std::array<measure::Stats, record_fields>& parts) {
  double total = 0;
  for (const Field part : sum.parts) {
    const measure::Stats& s = parts[index(part)];
    if (s.count < 3) return std::nullopt;
    // In normal data, half the distance between the 20th and the 80th percentile is 0.84 standard
    // deviations, and the standard error of the median is 1.25 standard deviations over the root of
    // the count. Unlike the median absolute deviation, this also detects that a third of the calls
    // are a hundred times faster than the other calls.
    const double error_ms =
        1.25 / 0.84 * 0.5 * (s.p80_ms - s.p20_ms) / std::sqrt(static_cast<double>(s.count));
    total += error_ms * error_ms;
  }
  return total;
}

std::optional<double> ratio(std::optional<double> over, std::optional<double> under) {
  if (!over || !under || !(*under > 0)) return std::nullopt;
  return *over / *under;
}

/// A shape whose speed-up counts for the sentence that says whether int8 pays.
struct Judged {
  Case shape;
  double speedup;
};

std::string span(const std::vector<Judged>& judged) {
  const auto [least, most] =
      std::minmax_element(judged.begin(), judged.end(),
                          [](const Judged& a, const Judged& b) { return a.speedup < b.speedup; });
  return judged.size() == 1 ? fmt::format("{:.2f}x", least->speedup)
                            : fmt::format("{:.2f}x to {:.2f}x", least->speedup, most->speedup);
}

std::string operations_text(double operations) {
  return operations >= 1e9   ? number(1e-9 * operations) + " billion"
         : operations >= 1e6 ? number(1e-6 * operations) + " million"
                             : fmt::format("{:.0f}", operations);
}

// Says from which size on int8 pays. `measured`: the number of shapes that were measured, including
// those in doubt.
std::string verdict(const std::vector<Judged>& judged, std::size_t measured) {
  if (judged.empty())
    return measured > 0 ? "cannot be judged (every row is in doubt)"
                        : "cannot be judged (no record has all its parts)";
  const auto pays = [](const Judged& j) { return j.speedup >= paying_speedup; };
  const auto total = judged.size();
  const auto paying = static_cast<std::size_t>(std::count_if(judged.begin(), judged.end(), pays));
  if (paying == total)
    return total == 1 ? fmt::format("pays at the one measured shape ({})", span(judged))
                      : fmt::format("pays at all {} measured shapes ({})", total, span(judged));
  if (paying == 0)
    return total == 1
               ? fmt::format("does not pay at the one measured shape ({})", span(judged))
               : fmt::format("pays at none of the {} measured shapes ({})", total, span(judged));

  double threshold = 0;  // largest number of multiply-adds at which int8 does not pay
  for (const Judged& j : judged)
    if (!pays(j)) threshold = std::max(threshold, j.shape.macs());
  std::vector<Judged> above;
  for (const Judged& j : judged)
    if (j.shape.macs() > threshold) above.push_back(j);
  // A single shape above the threshold is not a trend, so no size is named.
  if (above.size() < 2) {
    std::vector<double> speedups;
    for (const Judged& j : judged)
      speedups.push_back(j.speedup);
    return fmt::format(
        "pays at {} of the {} measured shapes, with no clear size from which on it always pays "
        "({}, median {:.2f}x)",
        paying, total, span(judged), measure::middle(speedups).median);
  }
  const Case& first =
      std::min_element(above.begin(), above.end(), [](const Judged& a, const Judged& b) {
        return case_less(a.shape, b.shape);
      })->shape;
  const std::size_t below = total - above.size(), paying_below = paying - above.size();
  return fmt::format(
      "pays from {} operations per product on, such as {} ({} at the {} shapes from there on; at "
      "{} of the {} smaller ones)",
      operations_text(2 * first.macs()), case_id(first), span(above), above.size(),
      paying_below == 0 ? std::string("none") : std::to_string(paying_below), below);
}

}  // namespace

std::optional<double> ReportRow::step_speedup() const {
  return ratio(record.time_standard(), faster(record.time_rowwise(), record.time_global()));
}

std::optional<double> ReportRow::forward_speedup() const {
  std::optional<double> product = fwd_packed_ms;
  if (!product) product = faster(record.time(Field::rowwise_fwd), record.time(Field::global_fwd));
  const std::optional<double> quantize = record.time(Field::x_quantize_rowwise);
  if (!product || !quantize) return std::nullopt;
  return ratio(faster(record.time(Field::standard_fwd), standard_fwd_packed_ms),
               *product + *quantize);
}

std::optional<double> step_error(const Record& record,
                                 const std::array<measure::Stats, record_fields>& parts) {
  const auto relative_squared = [&](std::size_t sum) -> std::optional<double> {
    const std::optional<double> total = sum_of(sum_table()[sum], record.times_ms);
    const std::optional<double> error = error_squared(sum_table()[sum], parts);
    if (!total || !error || !(*total > 0)) return std::nullopt;
    return *error / (*total * *total);
  };
  const std::optional<double> rowwise = record.time_rowwise(), global = record.time_global();
  const std::size_t faster_sum = !rowwise || (global && *global < *rowwise) ? 2 : 1;
  const std::optional<double> standard = relative_squared(0), int8 = relative_squared(faster_sum);
  if (!standard || !int8) return std::nullopt;
  return std::sqrt(*standard + *int8);
}

void Report::add(const ReportRow& row) {
  const Case& c = row.record.shape;
  for (ReportRow& other : rows)
    if (const Case& o = other.record.shape;
        o.batch_size == c.batch_size && o.dim_in == c.dim_in && o.dim_out == c.dim_out) {
      other = row;
      ++replaced;
      return;
    }
  rows.push_back(row);
}

double Report::most_plausible() const {
  const std::optional<double> rates = ratio(s8_tops, f32_tflops);
  return std::max(most_plausible_speedup, 2 * rates.value_or(0));
}

std::string Report::doubt(const ReportRow& row) const {
  if (row.disturbed) return std::string(others_were_running);
  if (row.step_error && *row.step_error > doubtful_error) return "its times differ too much";
  for (const std::optional<double> speedup : {row.step_speedup(), row.forward_speedup()})
    if (speedup && !(*speedup >= least_plausible_speedup && *speedup <= most_plausible()))
      return "its ratio is not plausible";
  return {};
}

ReportCells report_cells(const Report& report) {
  ReportCells cells;
  cells.with_errors =
      std::any_of(report.rows.begin(), report.rows.end(), [&](const ReportRow& row) {
        return row.step_error.has_value() || !report.doubt(row).empty();
      });
  cells.with_packed = std::any_of(report.rows.begin(), report.rows.end(), [](const ReportRow& row) {
    return row.fwd_packed_ms.has_value();
  });
  cells.header = {"batch_size", "dim_in", "dim_out",   "standard ms", "rowwise ms", "global ms",
                  "rowwise",    "global", "int8 TOPS", "of ceiling",  "forward"};
  if (cells.with_errors) cells.header.emplace_back("noise");
  for (const ReportRow* row : sorted_rows(report)) {
    const Record& r = row->record;
    std::optional<double> product = row->fwd_packed_ms;
    if (!product) product = faster(r.time(Field::rowwise_fwd), r.time(Field::global_fwd));
    std::optional<double> tops;
    if (product && *product > 0) tops = 2 * r.shape.macs() / *product * 1e-9;
    std::vector<std::string> line = {
        std::to_string(r.shape.batch_size),
        std::to_string(r.shape.dim_in),
        std::to_string(r.shape.dim_out),
        cell(r.time_standard()),
        cell(r.time_rowwise()),
        cell(r.time_global()),
        times(ratio(r.time_standard(), r.time_rowwise())),
        times(ratio(r.time_standard(), r.time_global())),
        cell(tops),
        tops && report.s8_tops ? percent_text(*tops / *report.s8_tops) : "-",
        times(row->forward_speedup())};
    if (cells.with_errors)
      line.push_back((row->step_error ? fmt::format("{:.0f} %", 100 * *row->step_error) : "-") +
                     (report.doubt(*row).empty() ? "  " : " !"));
    cells.rows.push_back(std::move(line));
  }
  return cells;
}

std::vector<const ReportRow*> sorted_rows(const Report& report) {
  std::vector<const ReportRow*> rows;
  for (const ReportRow& row : report.rows)
    rows.push_back(&row);
  if (report.sorted) return rows;
  std::stable_sort(rows.begin(), rows.end(), [](const ReportRow* a, const ReportRow* b) {
    return case_less(a->record.shape, b->record.shape);
  });
  return rows;
}

std::string report_legend(const ReportCells& cells) {
  std::string text = fmt::format(
      "ms: a training step's products and quantizing; rowwise, global: speed-up over standard.\n"
      "int8 TOPS: the int8 product of the forward pass{}; forward: speed-up of it and quantizing X "
      "over standard.\n"
      "Operations of a product: 2·batch_size·dim_in·dim_out.\n",
      cells.with_packed ? ", W packed in advance" : "");
  if (cells.with_errors)
    text +=
        "noise: the standard error of the step's ratio, from the spread of its times; !: the row "
        "is in doubt, or the rate is above the ceiling.\n";
  return text;
}

std::string report_table(const Report& report, std::size_t columns) {
  const ReportCells cells = report_cells(report);
  Table table(cells.header);
  for (const std::vector<std::string>& row : cells.rows)
    table.add(row);
  std::string text;
  if (!report.machine.empty()) text += printable(report.machine) + "\n";
  return text + table.text(columns, 3) + report_legend(cells);
}

Doubt doubt_of(const Report& report) {
  Doubt doubt;
  for (const ReportRow& row : report.rows)
    doubt.add(report.doubt(row), row.disturbed ? row.others_cores : std::nullopt);
  return doubt;
}

bool not_to_be_trusted(const Report& report) {
  return doubt_of(report).is_about_all();
}

std::string report_doubt(const Report& report) {
  return doubt_of(report).sentence();
}

std::string report_sentence(const Report& report) {
  std::vector<Judged> steps, forwards;
  std::size_t all_steps = 0, all_forwards = 0, left_out = 0;
  for (const ReportRow& row : report.rows) {
    const bool doubtful = !report.doubt(row).empty();
    left_out += doubtful ? 1 : 0;
    const auto judge = [&](std::optional<double> speedup, std::vector<Judged>& judged,
                           std::size_t& all) {
      if (!speedup) return;
      ++all;
      if (!doubtful) judged.push_back({row.record.shape, *speedup});
    };
    judge(row.step_speedup(), steps, all_steps);
    judge(row.forward_speedup(), forwards, all_forwards);
  }
  if (left_out > 0 && left_out == report.rows.size())
    return fmt::format("{}, every row is in doubt, so it is unknown whether int8 pays.\n",
                       report.where);
  return fmt::format(
      "{}{}, for training steps int8 {}; for the forward of inference, with W's codes cached, it "
      "{}.\n",
      report.where,
      left_out > 0
          ? fmt::format(", without the {} row{} in doubt", left_out, left_out == 1 ? "" : "s")
          : "",
      verdict(steps, all_steps), verdict(forwards, all_forwards));
}

ReportRow report_row(const Record& record, const RunLog& log) {
  const std::string id = case_id(record.shape);
  const auto in = [&](const std::map<std::string, double>& times) {
    const auto found = times.find(id);
    return found != times.end() ? std::optional(found->second) : std::nullopt;
  };
  ReportRow row{record, in(log.fwd_packed_ms), in(log.standard_fwd_packed_ms)};
  if (const auto noise = log.noise.find(id); noise != log.noise.end()) {
    row.step_error = step_error(record, noise->second.parts);
    row.others_cores = noise->second.others_cores;
    row.disturbed = noise->second.disturbed;
  }
  return row;
}

ReportRow report_row(const CaseResult& result, std::optional<double> others_cores, bool disturbed) {
  ReportRow row{result.record(), result.median_ms(Field::fwd_packed),
                result.median_ms(Field::standard_fwd_packed)};
  std::array<measure::Stats, record_fields> parts;
  for (std::size_t i = 0; i < record_fields; ++i)
    parts[i] = result.fields[i].stats;
  row.step_error = step_error(row.record, parts);
  row.others_cores = others_cores;
  row.disturbed = disturbed;
  return row;
}

std::vector<std::string> run_file_texts(const std::string& path) {
  struct stat status {};
  const std::string beside = run_log_path(path);
  if (path == "-" || (::stat(beside.c_str(), &status) != 0 && errno == ENOENT)) return {};
  return split_list(read_file(beside), '\n');
}

Report load_report(const std::string& path) {
  return load_report(path, read_file(path));
}

Report load_report(const std::string& path, std::string text) {
  Report report;
  RunLog log;
  const std::string name = path == "-" ? "standard input" : path;
  if (const std::vector<std::string> lines = run_file_texts(path); !lines.empty())
    log = parse_run_log(lines);
  report.s8_tops = log.s8_tops;
  report.f32_tflops = log.f32_tflops;
  report.machine = log.machine;
  // An incomplete last line, which is still being written or was truncated, is not a record.
  if (const std::size_t last = text.find_last_of('\n'); last + 1 != text.size()) {
    const std::string_view tail = std::string_view(text).substr(last + 1);
    if (!nlohmann::json::accept(tail) && tail.starts_with("{\"repeat\"")) text.resize(last + 1);
  }
  for (const Record& record : parse_records(text, name, RecordKeys::all_or_without_casts))
    report.add(report_row(record, log));
  if (report.rows.empty()) throw Error(Status::invalid_argument, name + ": it has no records");
  report.without_casts = text.find("\"cast_x\"") == std::string::npos;
  return report;
}

std::string report_heading(const Report& report, const std::string& path) {
  std::string text = fmt::format("{}: {} shape{}", path == "-" ? "standard input" : path,
                                 report.rows.size(), report.rows.size() == 1 ? "" : "s");
  if (report.machine.empty())
    text += path == "-" ? ", machine unknown"
                        : fmt::format("; machine unknown: there is no {}", run_log_path(path));
  if (report.without_casts)
    text += "; its records have 22 of the 25 keys, cast_x, cast_g and cast_w are missing";
  if (report.replaced > 0)
    text += fmt::format("; {} earlier record{} of the same shape {} left out, the last one counts",
                        report.replaced, report.replaced == 1 ? "" : "s",
                        report.replaced == 1 ? "is" : "are");
  return printable(text) + "\n";
}

}  // namespace switchback::bench
