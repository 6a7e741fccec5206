// SPDX-License-Identifier: Apache-2.0
#include "bench/recommend/recommend.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/run/fields.hpp"
#include "bench/statistics/ranks.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/whole_file.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

constexpr double advice_confidence = 0.95;

/// A way to do the work: fields whose times add up, in a mode.
struct Way {
  Mode mode;
  std::vector<Field> fields;
};

/// The times of a way by round; of the last run.
struct WayTimes {
  double median_ms = 0;
  std::vector<double> times_ms;
  bool disturbed = false;
};

std::optional<WayTimes> times_of(const CaseTimes& c, const Way& way) {
  WayTimes total;
  for (std::size_t i = 0; i < way.fields.size(); ++i) {
    const FieldTimes* field = c.field(field_name(way.fields[i]));
    if (field == nullptr) return std::nullopt;
    const RunTimes& run = field->runs.back();
    total.median_ms += run.median_ms;
    total.disturbed = total.disturbed || run.disturbed;
    if (i == 0)
      total.times_ms = run.times_ms;
    else if (total.times_ms.size() == run.times_ms.size())
      for (std::size_t r = 0; r < run.times_ms.size(); ++r)
        total.times_ms[r] += run.times_ms[r];
    else
      total.times_ms.clear();
  }
  return total;
}

// The fastest of the ways that were measured.
std::optional<std::pair<Mode, WayTimes>> fastest(const CaseTimes& c, const std::vector<Way>& ways) {
  std::optional<std::pair<Mode, WayTimes>> best;
  for (const Way& way : ways)
    if (auto times = times_of(c, way);
        times && (!best || times->median_ms < best->second.median_ms))
      best.emplace(way.mode, std::move(*times));
  return best;
}

Advice advise(const CaseTimes& c, const std::vector<Way>& standard, const std::vector<Way>& int8,
              double margin, bool trust_disturbed) {
  Advice advice;
  const auto rival = fastest(c, standard), subject = fastest(c, int8);
  if (!rival || !subject) return advice;
  const WayTimes &slow = rival->second, &fast = subject->second;
  advice.fastest = subject->first;
  advice.gain = slow.median_ms / fast.median_ms;
  // Rounds pair the times of both.
  if (slow.times_ms.size() == fast.times_ms.size() && !fast.times_ms.empty()) {
    std::vector<double> differences;
    for (std::size_t i = 0; i < fast.times_ms.size(); ++i)
      differences.push_back(std::log(slow.times_ms[i] / fast.times_ms[i]));
    const Interval interval = paired_shift(differences, advice_confidence);
    advice.gain = std::exp(interval.value);
    if (std::isfinite(interval.high)) {
      advice.low = std::exp(interval.low);
      advice.high = std::exp(interval.high);
    }
  }
  advice.in_doubt = slow.disturbed || fast.disturbed;
  advice.withheld = advice.in_doubt && !trust_disturbed;
  if (advice.withheld) return advice;
  const bool pays = advice.low ? *advice.low > 1 : *advice.gain > 1 + margin;
  const bool loses = advice.high ? *advice.high < 1 : *advice.gain < 1;
  if (pays) advice.mode = advice.fastest;
  advice.undecided = !pays && !loses;
  return advice;
}

const std::vector<Way>& training_standard() {
  static const std::vector<Way> ways = {{Mode::standard, sum_table()[0].parts}};
  return ways;
}
const std::vector<Way>& training_int8() {
  static const std::vector<Way> ways = {{Mode::rowwise, sum_table()[1].parts},
                                        {Mode::global, sum_table()[2].parts}};
  return ways;
}
const std::vector<Way>& inference_standard() {
  static const std::vector<Way> ways = {{Mode::standard, {Field::standard_fwd}},
                                        {Mode::standard, {Field::standard_fwd_packed}}};
  return ways;
}
// Without the packed product those that pack W each time, which is more than inference needs.
const std::vector<Way>& inference_int8() {
  static const std::vector<Way> ways = {
      {Mode::rowwise, {Field::x_quantize_rowwise, Field::fwd_packed}},
      {Mode::rowwise, {Field::x_quantize_rowwise, Field::rowwise_fwd}},
      {Mode::global, {Field::x_quantize_rowwise, Field::global_fwd}}};
  return ways;
}

std::string gain_text(const Advice& advice) {
  if (!advice.gain) return "-";
  return advice.low
             ? fmt::format("{:.2f}x ({:.2f}..{:.2f})", *advice.gain, *advice.low, *advice.high)
             : fmt::format("{:.2f}x", *advice.gain);
}

std::string mode_text(const Advice& advice) {
  const std::string name(advice.withheld ? "-" : mode_name(advice.mode));
  return name + (advice.undecided ? " ?" : "") + (advice.in_doubt ? " !" : "");
}

bool withheld(const Recommendation& r) {
  return r.training.withheld || r.inference.withheld;
}

Json advice_json(const Advice& advice) {
  const auto optional = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  return {{"mode", advice.withheld ? Json(nullptr) : Json(mode_name(advice.mode))},
          {"gain_of", advice.gain ? Json(mode_name(advice.fastest)) : Json(nullptr)},
          {"gain", optional(advice.gain)},
          {"low", optional(advice.low)},
          {"high", optional(advice.high)},
          {"undecided", advice.undecided},
          {"in_doubt", advice.in_doubt}};
}

// Lines of a comment: where it is from, and what is left out.
std::string comment_text(const Side& side, const std::vector<Recommendation>& all,
                         std::string_view mark) {
  std::string text =
      fmt::format("{} Modes of layers as measured by switchback-bench. {}.\n", mark,
                  printable(fmt::format("From {}{}{}", side.path, side.machine.empty() ? "" : "; ",
                                        side.machine)));
  if (const std::string doubt = recommendation_doubt(all); !doubt.empty())
    text += fmt::format("{} {}", mark, doubt);
  if (std::any_of(all.begin(), all.end(), withheld))
    text += fmt::format("{} Those rows are left out.\n", mark);
  return text;
}

}  // namespace

std::vector<Recommendation> recommend(const Side& side, double margin, bool trust_disturbed) {
  std::vector<Recommendation> all;
  for (const CaseTimes& c : side.cases) {
    if (c.workload != "run") continue;
    Recommendation r;
    r.shape = parse_shape(c.id);
    for (const auto& [name, value] : c.key)
      if (name == "dtype") r.dtype = value;
    r.training = advise(c, training_standard(), training_int8(), margin, trust_disturbed);
    r.inference = advise(c, inference_standard(), inference_int8(), margin, trust_disturbed);
    all.push_back(std::move(r));
  }
  core::require(!all.empty(), "{}: it has no records of 'run'", side.path);
  std::stable_sort(all.begin(), all.end(), [](const Recommendation& a, const Recommendation& b) {
    return case_less(a.shape, b.shape);
  });
  return all;
}

std::string recommendation_doubt(const std::vector<Recommendation>& all) {
  Doubt doubt;
  for (const Recommendation& r : all)
    doubt.add(r.training.in_doubt || r.inference.in_doubt ? others_were_running : "");
  return doubt.sentence();
}

std::string recommendation_table(const std::vector<Recommendation>& all, std::size_t columns) {
  Table table(
      {"batch_size", "dim_in", "dim_out", "training", "gain (95 %)", "inference", "gain (95 %)"},
      {"training", "inference"});
  bool undecided = false;
  for (const Recommendation& r : all) {
    undecided = undecided || r.training.undecided || r.inference.undecided;
    table.add({std::to_string(r.shape.batch_size), std::to_string(r.shape.dim_in),
               std::to_string(r.shape.dim_out), mode_text(r.training), gain_text(r.training),
               mode_text(r.inference), gain_text(r.inference)});
  }
  std::string text = recommendation_doubt(all) + table.text(columns, 3);
  text += "gain: of the fastest int8 mode over standard; inference: W's codes are there.\n";
  if (undecided)
    text +=
        "?: the interval holds 1, or there is none: standard is kept, whose results are not "
        "rounded to int8.\n";
  return text;
}

std::string recommendation_json(const Side& side, const std::vector<Recommendation>& all) {
  Json shapes = Json::array();
  for (const Recommendation& r : all)
    shapes.push_back({{"batch_size", r.shape.batch_size},
                      {"dim_in", r.shape.dim_in},
                      {"dim_out", r.shape.dim_out},
                      {"dtype", r.dtype.empty() ? Json(nullptr) : Json(r.dtype)},
                      {"training", advice_json(r.training)},
                      {"inference", advice_json(r.inference)}});
  std::string doubt = recommendation_doubt(all);
  if (!doubt.empty()) doubt.pop_back();  // its newline
  Json json = {{"type", "recommendation"},
               {"schema", 1},
               {"source", side.path},
               {"machine", side.machine.empty() ? Json(nullptr) : Json(side.machine)},
               {"confidence", advice_confidence},
               {"doubt", doubt.empty() ? Json(nullptr) : Json(doubt)},
               {"shapes", std::move(shapes)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string recommendation_cpp(const Side& side, const std::vector<Recommendation>& all) {
  std::string text = fmt::format(
      "{}#pragma once\n\n#include <array>\n#include <cstdint>\n\n#include "
      "\"switchback/types.hpp\"\n\n"
      "namespace switchback_modes {{\n\n"
      "struct Measured {{\n  std::int64_t batch, dim_in, dim_out;\n"
      "  switchback::Mode training, inference;\n}};\n\n"
      "// By batch within a layer's sizes.\n"
      "inline constexpr std::array<Measured, {}> measured = {{{{\n",
      comment_text(side, all, "//"), std::count_if(all.begin(), all.end(), std::not_fn(withheld)));
  for (const Recommendation& r : all)
    if (!withheld(r))
      text += fmt::format("    {{{}, {}, {}, switchback::Mode::{}, switchback::Mode::{}}},\n",
                          r.shape.batch_size, r.shape.dim_in, r.shape.dim_out,
                          mode_name(r.training.mode), mode_name(r.inference.mode));
  text += R"(}};

// The mode at the largest measured batch that is not above this one; standard for sizes that were
// not measured.
inline switchback::Mode mode_for(std::int64_t batch, std::int64_t dim_in, std::int64_t dim_out,
                                 switchback::Mode Measured::*use) {
  const Measured* best = nullptr;
  for (const Measured& m : measured)
    if (m.dim_in == dim_in && m.dim_out == dim_out && m.batch <= batch &&
        (best == nullptr || m.batch > best->batch))
      best = &m;
  return best != nullptr ? best->*use : switchback::Mode::standard;
}
inline switchback::Mode training_mode(std::int64_t batch, std::int64_t dim_in,
                                      std::int64_t dim_out) {
  return mode_for(batch, dim_in, dim_out, &Measured::training);
}
inline switchback::Mode inference_mode(std::int64_t batch, std::int64_t dim_in,
                                       std::int64_t dim_out) {
  return mode_for(batch, dim_in, dim_out, &Measured::inference);
}

}  // namespace switchback_modes
)";
  return text;
}

std::string recommendation_python(const Side& side, const std::vector<Recommendation>& all) {
  std::string text = fmt::format(
      "{}\n# batch, dim_in, dim_out, mode for training, mode for inference\nMEASURED = [\n",
      comment_text(side, all, "#"));
  for (const Recommendation& r : all)
    if (!withheld(r))
      text += fmt::format("    ({}, {}, {}, \"{}\", \"{}\"),\n", r.shape.batch_size, r.shape.dim_in,
                          r.shape.dim_out, mode_name(r.training.mode), mode_name(r.inference.mode));
  text += R"(]


def _mode(batch, dim_in, dim_out, column):
    """The mode at the largest measured batch that is not above this one; "standard" for sizes
    that were not measured."""
    rows = [r for r in MEASURED if r[1:3] == (dim_in, dim_out) and r[0] <= batch]
    return max(rows)[column] if rows else "standard"


def training_mode(batch, dim_in, dim_out):
    return _mode(batch, dim_in, dim_out, 3)


def inference_mode(batch, dim_in, dim_out):
    return _mode(batch, dim_in, dim_out, 4)
)";
  return text;
}

void add_recommend_command(CLI::App& app) {
  struct Arguments {
    std::string path, format = "table", out;
    double margin = 0.02;
    bool force = false, trust_disturbed = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "recommend", "Say which mode to use at each measured shape, for training and for inference");
  command->add_option("FILE", arguments->path, "records of 'run'")->required();
  command
      ->add_option_function<std::string>(
          "--format",
          [arguments](const std::string& text) {
            core::require(text == "table" || text == "json" || text == "cpp" || text == "python",
                          "--format '{}' is not one of table, json, cpp, python", text);
            arguments->format = text;
          },
          "table (default), json, or code that answers for a shape: cpp, python")
      ->type_name("NAME");
  command
      ->add_option_function<std::string>(
          "--margin",
          [arguments](const std::string& text) {
            arguments->margin = parse_percentage("--margin", text, 0, 1000) / 100;
          },
          "percent that int8 must gain where there are no samples for an interval (default 2)")
      ->type_name("PERCENT");
  command->add_flag("--in-doubt", arguments->trust_disturbed,
                    "recommend also by times that other programs disturbed");
  command->add_option("--out", arguments->out, "write it to this file instead of standard output")
      ->type_name("FILE");
  command->add_flag("--force", arguments->force, "replace the file of --out");
  command->footer(
      "An int8 mode is recommended where the whole interval of its gain over standard is above 1. "
      "Gains are of the rounds of one run, in which all fields take turns; the run file beside the "
      "records has them. Of a shape that other programs disturbed nothing is recommended.\n\n"
      "Example:\n  switchback-bench recommend mine.jsonl --format cpp --out modes.hpp");
  command->callback([arguments] {
    if (!arguments->out.empty()) {
      check_not_the_same("--out", arguments->out, arguments->path);
      check_new_file("--out", arguments->out, arguments->force);
    }
    const Side side = load_side(arguments->path);
    const std::vector<Recommendation> all =
        recommend(side, arguments->margin, arguments->trust_disturbed);
    const std::string& format = arguments->format;
    const std::string text =
        format == "json"  ? recommendation_json(side, all)
        : format == "cpp" ? recommendation_cpp(side, all)
        : format == "python"
            ? recommendation_python(side, all)
            : recommendation_table(all, arguments->out.empty() ? terminal_columns(stdout) : 0);
    if (arguments->out.empty())
      fmt::print("{}", text);
    else
      write_new_file(arguments->out, text);
    set_exit_code(exit_codes::ok);
  });
}

}  // namespace switchback::bench
