// SPDX-License-Identifier: Apache-2.0
#include "bench/report/columns.hpp"

#include <utility>

#include "bench/run/fields.hpp"

namespace switchback::bench {

namespace {

using Json = nlohmann::ordered_json;

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
