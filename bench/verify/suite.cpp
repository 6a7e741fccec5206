// SPDX-License-Identifier: Apache-2.0
#include "bench/verify/suite.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "autotune/entry/candidate.hpp"
#include "bench/grid/grid.hpp"
#include "bench/verify/verify.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

namespace {

constexpr std::int64_t large_elements = std::int64_t{1} << 19;

std::int64_t elements(const VerifyShape& s) {
  return s.batch * s.dim_in + s.dim_out * s.dim_in + s.batch * s.dim_out;
}

template <class T>
bool contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// The Context options with which the quantize operations are checked. These operations have no
// engine to force, so there is a Context for each instruction set that this CPU can be capped at,
// from the requested one downwards.
std::vector<ContextOptions> isa_steps(const VerifyOptions& options) {
  if (parse_device(options.context.device).kind != DeviceKind::cpu) return {options.context};
  std::vector<ContextOptions> steps;
  core::CpuFeatures features = core::cpu_features();
  if (!options.context.isa.empty())
    features = features.capped(core::parse_isa(options.context.isa));
  std::vector<core::Isa> seen;
  const auto& isas = core::all_isas();
  for (auto isa = isas.rbegin(); isa != isas.rend(); ++isa) {
    const core::Isa level = features.capped(*isa).level();
    if (contains(seen, level)) continue;
    seen.push_back(level);
    ContextOptions step = options.context;
    step.isa = std::string(core::isa_name(level));
    steps.push_back(step);
  }
  return steps;
}

// Refuses the engine of --engine if no operation has it, or if it is not available for any
// operation.
void check_engine(const Context& context, const std::string& engine) {
  if (engine.empty()) return;
  std::string names;
  std::string reason;
  bool known = false;
  for (const auto& list : {gemm_engines(context), gemm_standard_engines(context)})
    for (const EngineInfo& info : list) {
      names += (names.empty() ? "" : ", ") + info.name;
      if (info.name != engine) continue;
      if (info.available) return;
      known = true;
      reason = info.reason;
    }
  core::require(known, "--engine '{}' is not one of {}", engine, names);
  core::fail(Status::unsupported, "--engine {}: {}", engine, reason);
}

std::string instruction_set(const Context& context) {
  const auto& runtime = context.state().runtime;
  if (runtime == nullptr) return std::string(context.isa());
  return fmt::format("sm_{}{}", runtime->info().compute_major, runtime->info().compute_minor);
}

}  // namespace

Data parse_data(std::string_view name) {
  std::string names;
  for (const Data data : measure::all_data()) {
    if (name == measure::data_name(data)) return data;
    names += names.empty() ? "" : ", ";
    names += measure::data_name(data);
  }
  core::fail(Status::invalid_argument, "--data '{}' is not one of {}", name, names);
}

const std::vector<std::string>& verify_ops() {
  static const std::vector<std::string> ops = [] {
    std::vector<std::string> all;
    for (const autotune::Operation& operation : autotune::operations())
      if (operation.problems != nullptr) all.emplace_back(operation.tunable->name);
    all.insert(all.end(), {"layer", "grouped", "fragmented"});
    return all;
  }();
  return ops;
}

const std::vector<VerifyShape>& default_verify_shapes() {
  // The shapes have sides of one element; fewer than a vector; around 16, 32 and 64; medium numbers
  // that are not multiples; and one as wide as a layer.
  static const std::vector<VerifyShape> shapes = {{1, 1, 1},     {3, 5, 7},       {17, 33, 65},
                                                  {64, 128, 96}, {129, 257, 191}, {48, 512, 160}};
  return shapes;
}

bool Suite::wants(std::string_view op) const {
  return options_.ops.empty() || contains(options_.ops, std::string(op));
}

bool Suite::wants(Data data, const VerifyShape& shape) const {
  if (!options_.data.empty()) return contains(options_.data, data);
  if (elements(shape) <= large_elements) return true;
  return data == Data::normal || data == Data::outliers || data == Data::nonfinite;
}

std::vector<std::string> Suite::engines(const std::vector<EngineInfo>& infos) const {
  std::vector<std::string> names;
  for (const EngineInfo& info : infos)
    if (info.available && (options_.engine.empty() || info.name == options_.engine))
      names.push_back(info.name);
  return names;
}

Rows Suite::rows_for(std::int64_t rows, std::int64_t cols, std::int64_t inner) const {
  const std::int64_t per_row = std::max<std::int64_t>(1, cols * inner);
  return measure::sample_rows(rows, options_.reference_macs / per_row, options_.seed);
}

Check Suite::check(std::string op, std::string part, DType dtype, Data data,
                   const VerifyShape& shape) const {
  Check c;
  c.op = std::move(op);
  c.part = std::move(part);
  c.dtype = std::string(dtype_name(dtype));
  c.engine = "chosen";
  c.isa = instruction_set(context_);
  c.threads = context_.threads();
  c.data = data;
  c.shape = shape;
  return c;
}

void Suite::report(const Check& check) {
  switch (check.outcome) {
    case Check::Outcome::pass:
      ++summary_.passed;
      break;
    case Check::Outcome::fail:
      ++summary_.failed;
      break;
    case Check::Outcome::skipped:
      ++summary_.skipped;
      break;
  }
  sink_(check);
}

bool Suite::attempt(const Check& check, const std::function<void()>& operation) {
  try {
    operation();
    context_.synchronize();
    return true;
  } catch (const Error& error) {
    Check thrown = check;
    // An engine may refuse a problem with Error(unsupported) and a reason. Any other error is a
    // failure.
    thrown.outcome =
        error.status() == Status::unsupported ? Check::Outcome::skipped : Check::Outcome::fail;
    thrown.reason = error.what();
    report(thrown);
    return false;
  }
}

void Suite::exact(Check check, AnyMatrix written, const Rows& rows, ConstAnyMatrix want,
                  std::string_view bound, const Accuracy& accuracy) {
  check.output = std::string(dtype_name(written.dtype));
  check.bound = std::string(bound);
  if (options_.tamper) options_.tamper(check, written);
  check.comparison = measure::compare_exact(written, rows, want);
  bool accurate = true;
  if (accuracy.reference != nullptr) {
    measure::add_accuracy(check.comparison, written, rows, *accuracy.reference);
    if (accuracy.largest_relative_error > 0) {
      // Comparisons with NaN are false, so a result whose accuracy could not be measured is not
      // accurate.
      accurate = check.comparison.relative_error <= accuracy.largest_relative_error &&
                 check.comparison.cosine >= accuracy.smallest_cosine;
      check.bound += fmt::format("; relative error at most {}, cosine at least {}",
                                 accuracy.largest_relative_error, accuracy.smallest_cosine);
    }
  }
  check.outcome = check.comparison.pass() && accurate ? Check::Outcome::pass : Check::Outcome::fail;
  if (!accurate) check.reason = "not accurate enough against f64";
  report(check);
}

void Suite::exact(Check check, AnyMatrix written, ConstAnyMatrix want, std::string_view bound) {
  exact(std::move(check), written, all_rows(written.rows), want, bound);
}

void Suite::bounded(Check check, AnyMatrix written, const Rows& rows, const Reference& reference,
                    std::string_view bound) {
  check.output = std::string(dtype_name(written.dtype));
  check.bound = std::string(bound);
  if (options_.tamper) options_.tamper(check, written);
  check.comparison = measure::compare_bounded(written, rows, reference);
  measure::add_accuracy(check.comparison, written, rows, reference);
  check.outcome = check.comparison.pass() ? Check::Outcome::pass : Check::Outcome::fail;
  report(check);
}

measure::Matrix Suite::unwritten(DType dtype, std::int64_t rows, std::int64_t cols) const {
  measure::Matrix m = matrix(dtype, rows, cols);
  std::memset(m.data(), 0x6B, m.size_bytes());
  return m;
}

std::vector<float> as_floats(ConstAnyMatrix m) {
  return rows_as_floats(m, all_rows(m.rows));
}

std::vector<float> rows_as_floats(ConstAnyMatrix m, const Rows& rows) {
  std::vector<float> values;
  values.reserve(rows.size() * static_cast<std::size_t>(m.cols));
  for (const std::int64_t row : rows)
    for (std::int64_t c = 0; c < m.cols; ++c)
      values.push_back(core::load_float(m.data, m.dtype, row * m.stride + c));
  return values;
}

void Suite::trials(const autotune::Operation& operation, const VerifyShape& shape) {
  const std::string name(operation.tunable->name);
  if (!wants(name)) return;
  measure::TrialOptions trial_options;
  trial_options.seed = options_.seed;
  trial_options.most_reference_work = static_cast<double>(options_.reference_macs);
  Check check;
  if (options_.tamper)
    trial_options.tamper = [&](const measure::Finding& finding, AnyMatrix written) {
      check.bound = finding.rule;
      options_.tamper(check, written);
    };
  for (const DType dtype : options_.dtypes)
    for (const Data data : operation.data) {
      if (!wants(data, shape)) continue;
      trial_options.data = data;
      for (const autotune::TrialProblem& problem : operation.problems(
               context_.state(), {shape.batch, shape.dim_out, shape.dim_in}, dtype)) {
        check = this->check(name, problem.text, dtype, data, shape);
        attempt(check, [&] {
          const std::unique_ptr<measure::Trial> trial = problem.make_trial(context_, trial_options);
          for (const ConfigChoice& choice : trial->engines()) {
            check.engine = autotune::to_text(operation.tunable->op, choice).engine;
            if (!options_.engine.empty() && check.engine != options_.engine) continue;
            for (const measure::Finding& finding : trial->findings(choice)) {
              Check found = check;
              found.op = finding.op;
              found.part = finding.part;
              found.output = dtype_name(finding.output);
              found.comparison = finding.comparison;
              found.bound = finding.rule;
              found.outcome =
                  finding.comparison.pass() ? Check::Outcome::pass : Check::Outcome::fail;
              report(found);
            }
          }
        });
      }
    }
}

VerifySummary run_verify(const VerifyOptions& options,
                         const std::function<void(const Check&)>& sink) {
  const std::vector<VerifyShape>& shapes =
      options.shapes.empty() ? default_verify_shapes() : options.shapes;
  VerifySummary summary;
  Context context(options.context);
  check_engine(context, options.engine);
  Suite suite(context, options, sink, summary);
  for (const VerifyShape& shape : shapes) {
    for (const autotune::Operation& operation : autotune::operations()) {
      if (operation.problems == nullptr) continue;
      if (operation.tunable->op == ConfigOp::quantize) {
        for (const ContextOptions& step : isa_steps(options)) {
          Context capped(step);
          Suite(capped, options, sink, summary).trials(operation, shape);
        }
      } else {
        suite.trials(operation, shape);
      }
    }
    if (suite.wants("layer")) verify_layer(suite, shape);
    if (suite.wants("grouped")) verify_grouped(suite, shape);
    if (suite.wants("fragmented")) verify_fragmented(suite, shape);
  }
  return summary;
}

nlohmann::ordered_json to_json(const Check& check) {
  const auto finite = [](double value) -> nlohmann::ordered_json {
    if (std::isfinite(value)) return value;
    if (std::isnan(value)) return nullptr;
    return value > 0 ? "inf" : "-inf";
  };
  const auto text = [](double value) -> nlohmann::ordered_json {
    if (std::isfinite(value)) return value;
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  };
  const Comparison& c = check.comparison;
  nlohmann::ordered_json json;
  json["type"] = "check";
  json["op"] = check.op;
  json["part"] = check.part;
  json["mode"] = nullptr;
  if (!check.mode.empty()) json["mode"] = check.mode;
  json["dtype"] = check.dtype;
  json["output"] = check.output;
  json["engine"] = check.engine;
  json["isa"] = check.isa;
  json["threads"] = check.threads;
  json["data"] = std::string(data_name(check.data));
  json["batch"] = check.shape.batch;
  json["dim_in"] = check.shape.dim_in;
  json["dim_out"] = check.shape.dim_out;
  json["outcome"] = check.outcome == Check::Outcome::pass   ? "pass"
                    : check.outcome == Check::Outcome::fail ? "fail"
                                                            : "skipped";
  json["reason"] = check.reason;
  json["compared"] = c.compared;
  json["wrong"] = c.wrong;
  json["snr_db"] = finite(c.snr_db);
  json["relative_error"] = finite(c.relative_error);
  json["cosine"] = finite(c.cosine);
  json["worst_share_of_bound"] = finite(c.worst_share);
  json["worst"] = nullptr;
  if (c.worst.row >= 0)
    json["worst"] = {{"row", c.worst.row},
                     {"col", c.worst.col},
                     {"got", text(c.worst.got)},
                     {"want", text(c.worst.want)}};
  json["bound"] = check.bound;
  return json;
}

VerifyShape parse_verify_shape(std::string_view text) {
  constexpr std::int64_t largest = std::int64_t{1} << 30;
  const auto [batch, dim_in, dim_out] = parse_sides(text, {largest, largest, largest});
  return {batch, dim_in, dim_out};
}

std::vector<VerifyShape> verify_shapes_of_grid(const std::string& file_or_name) {
  std::vector<VerifyShape> shapes;
  for (const Case& c : load_grid(file_or_name).cases)
    shapes.push_back({c.batch_size, c.dim_in, c.dim_out});
  return shapes;
}

}  // namespace switchback::bench
