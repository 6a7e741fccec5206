// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/race.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/cli/table.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/statistic.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device_table.hpp"
#include "gemm/floating/engine.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

std::vector<measure::Rival> without_refusing(std::vector<measure::Rival> rivals) {
  std::erase_if(rivals, [](const measure::Rival& rival) {
    try {
      rival.call();
      return false;
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      return true;
    }
  });
  return rivals;
}

std::vector<std::string> fast_engines(const std::vector<EngineInfo>& infos) {
  std::vector<std::string> names;
  for (const EngineInfo& info : infos)
    if (info.available && info.name != core::oracle_name) names.push_back(info.name);
  // The reference engine is measured only if no other engine is available.
  for (const EngineInfo& info : infos)
    if (names.empty() && info.available) names.push_back(info.name);
  return names;
}

std::vector<std::string> fast_floating_engines(const Context& context) {
  std::vector<std::string> names = fast_engines(gemm_standard_engines(context));
  std::erase_if(names, [&](const std::string& name) {
    return floating::factor_error(context.state().device.kind, name) > 0;
  });
  return names;
}

namespace {

Json timed_json(const std::string& name, const measure::Stats& s) {
  Json json = {{"name", name}, {"count", s.count}};
  put_stats(s, json);
  return json;
}

std::vector<Column> race_columns() {
  std::vector<Column> columns = {
      {.name = "variant", .meaning = "mode, activation, or where the data lies"},
      {.name = "dtype", .meaning = "type of the subject's operands"},
      {.name = "batch", .meaning = "rows of X"},
      {.name = "dim_in", .meaning = "columns of X"},
      {.name = "dim_out", .meaning = "rows of W; 0: no W"},
      {.name = "subject", .meaning = "what is measured, and its times"},
      {.name = "rival", .meaning = "what it is measured against, and its times"},
      {.name = "ratio",
       .meaning = "the rival's time divided by the subject's, median of the rounds"},
      {.name = "ratio_mad", .meaning = "its median absolute deviation"},
      {.name = "gop_s",
       .meaning = "operations of a product; a multiply-add is two",
       .unit = "GOP/s"},
      {.name = "gb_s", .meaning = "bytes read and written by a quantize", .unit = "GB/s"},
      {.name = "ceiling", .meaning = "the instruction whose rate in registers is the ceiling"},
      {.name = "share_of_ceiling", .meaning = "the product's rate divided by that ceiling"},
      {.name = "share_mad", .meaning = "its median absolute deviation"},
      {.name = "output", .meaning = "type that an int8 product writes"},
      {.name = "share_of_reading_w",
       .meaning = "time to read as many bytes as W has codes, divided by the product's"},
      {.name = "share_of_reading_w_mad", .meaning = "its median absolute deviation"}};
  for (Column& column : disturbance_columns())
    columns.push_back(std::move(column));
  return columns;
}

// A result as one line of text: "MxKxN variant subject: 3.61 ± 0.04", where the number is the
// ratio.
std::string summary_of(const RaceRow& row) {
  return fmt::format("{} {} {}: {}", shape_text(row.shape), row.variant, row.subject,
                     number_with_spread(row.ratio.median, row.ratio.mad, row.subject_ms.count));
}

}  // namespace

RaceRow::RaceRow(std::string bench_name, std::string subject_name,
                 const measure::Timed& subject_timed, const measure::Timed& rival_timed)
    : bench(std::move(bench_name)),
      subject(std::move(subject_name)),
      rival(rival_timed.name),
      subject_ms(subject_timed.stats),
      rival_ms(rival_timed.stats),
      ratio(measure::speed_ratio(rival_timed.times_ms, subject_timed.times_ms)),
      disturbance(subject_timed.disturbance) {}

double operations_of(const MicroShape& shape) noexcept {
  return 2.0 * static_cast<double>(shape.batch) * static_cast<double>(shape.dim_in) *
         static_cast<double>(shape.dim_out);
}

std::vector<Column> RaceBench::columns() const {
  return race_columns();
}

RaceSink RaceBench::rows_to(const Sink& sink) const {
  return [this, &sink](const RaceRow& row) {
    sink({to_json(row).dump(), cells(row), summary_of(row)});
  };
}

Json to_json(const RaceRow& row) {
  Json json;
  json["type"] = "micro";
  json["v"] = 1;
  json["bench"] = row.bench;
  for (const Column& column : race_columns())
    json[column.name] = nullptr;
  json["variant"] = row.variant;
  json["dtype"] = dtype_name(row.dtype);
  json["batch"] = row.shape.batch;
  json["dim_in"] = row.shape.dim_in;
  json["dim_out"] = row.shape.dim_out;
  json["subject"] = timed_json(row.subject, row.subject_ms);
  if (!row.rival.empty()) {
    json["rival"] = timed_json(row.rival, row.rival_ms);
    json["ratio"] = row.ratio.median;
    json["ratio_mad"] = row.ratio.mad;
  }
  if (row.gop_s > 0) json["gop_s"] = row.gop_s;
  if (row.gb_s > 0) json["gb_s"] = row.gb_s;
  if (row.output) json["output"] = dtype_name(*row.output);
  if (row.share) {
    json["ceiling"] = row.ceiling;
    json["share_of_ceiling"] = row.share->median;
    json["share_mad"] = row.share->mad;
  }
  if (row.read_share) {
    json["share_of_reading_w"] = row.read_share->median;
    json["share_of_reading_w_mad"] = row.read_share->mad;
  }
  put_disturbance(row.disturbance, json);
  json["disturbed"] = row.disturbance.in_doubt();
  return json;
}

std::string shape_text(const MicroShape& s) {
  return s.dim_out > 0 ? fmt::format("{}x{}x{}", s.batch, s.dim_in, s.dim_out)
                       : fmt::format("{}x{}", s.batch, s.dim_in);
}

std::string time_text(const measure::Stats& stats) {
  return number_with_spread(stats.median_ms, stats.mad_ms, stats.count);
}

std::string ratio_text(const RaceRow& row) {
  return (row.subject_ms.count < 3 ? number(row.ratio.median)
                                   : number_with_spread(row.ratio.median, row.ratio.mad)) +
         doubt_mark(row.disturbance);
}

Ceiling::Ceiling(Context& context, const RegisterLoop& loop_) : loop(loop_) {
  for (;; steps *= 2) {
    const measure::Stats s = measure::stats_of(
        {.repeat = 2}, [&] { operations = run_on_all_threads(context, loop, steps); });
    if (s.min_ms > 2) break;
  }
}

measure::Middle share_of(const measure::Timed& subject, double operations,
                         const measure::Timed& ceiling, double ceiling_operations) {
  measure::Middle ratio = measure::speed_ratio(ceiling.times_ms, subject.times_ms);
  const double factor = operations / ceiling_operations;
  return {ratio.median * factor, ratio.mad * factor};
}

std::string share_text(const measure::Middle& share, std::int64_t samples) {
  std::string text = percent_text(share.median);
  if (samples < 3 || text == "!") return text;
  return fmt::format("{:.0f} ± {:.0f} %", 100 * share.median, 100 * share.mad);
}

bool is_right(autotune::Validator& validator, const ConfigQuery& query, const ConfigChoice& choice,
              const std::string& name, LeftOut& left_out) {
  using autotune::Validation;
  const Validation validation = validator.validate(query, choice);
  if (validation.result == Validation::Result::right) return true;
  (validation.result == Validation::Result::wrong ? left_out.wrong : left_out.unvalidated)
      .push_back(fmt::format("{}: {}", name, validation.why));
  return false;
}

void LeftOutWarnings::add(Session& session, const LeftOut& of_case, std::string_view bench,
                          bool is_last) {
  for (const std::string& what : of_case.unvalidated)
    session.warning("left out: " + what);
  for (const std::string& what : of_case.wrong)
    session.warning("WRONG: " + what);
  wrong_ += of_case.wrong.size();
  if (is_last && wrong_ > 0)
    core::fail(Status::device_error, "micro {}: {} configurations are wrong on {}: see above",
               bench, wrong_, session.context().device());
}

}  // namespace switchback::bench
