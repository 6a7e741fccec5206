// SPDX-License-Identifier: Apache-2.0
// Bench: `switchback-bench tune --validate`: runs each kernel of a device that is not trusted by
// default in another process, and checks its results. The outcome goes to the tuning cache.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "autotune/entry/candidate.hpp"
#include "autotune/operations.hpp"
#include "autotune/tune.hpp"
#include "autotune/tuner_state.hpp"
#include "autotune/validation/validator.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/tune/tune.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "gemm/int8/problem.hpp"

namespace switchback::bench {

namespace {

using autotune::KernelValidation;
using autotune::Validation;

// A row of the table of validated kernels: one kernel, and for which types its results are right.
struct KernelRow {
  std::string operation, kernel, problems;
  std::vector<std::string> right, not_right;
};

// Which kinds of problems a kernel computes, as text; empty if its operation has only one kind.
std::string problems_of(const KernelValidation& one) {
  if (one.query.op == ConfigOp::gemm_blockwise)
    return fmt::format("blocks of {} rows", one.kernel.variant);
  if (one.query.op != ConfigOp::grouped_int8) return "";
  return one.kernel.variant == static_cast<std::int64_t>(gemm_int8::ScaleMode::row_scalar)
             ? "one scale of each group"
             : "one scale of each column";
}

std::vector<KernelRow> rows_of(const std::vector<KernelValidation>& all) {
  std::vector<KernelRow> rows;
  for (const KernelValidation& one : all) {
    const std::string operation(autotune::tunable_of(one.query.op).name);
    const std::string kernel = autotune::describe(autotune::to_text(one.query.op, one.choice));
    const std::string problems = problems_of(one);
    auto row = std::find_if(rows.begin(), rows.end(), [&](const KernelRow& r) {
      return r.operation == operation && r.kernel == kernel && r.problems == problems;
    });
    if (row == rows.end()) row = rows.insert(rows.end(), {operation, kernel, problems, {}, {}});
    const std::string type(dtype_name(static_cast<DType>(one.kernel.output)));
    if (one.validation.result == Validation::Result::right)
      row->right.push_back(type);
    else
      row->not_right.push_back(type + ": " + one.validation.why);
  }
  return rows;
}

void print(const std::vector<KernelRow>& rows, const Context& context) {
  if (rows.empty()) {
    fmt::print("Every kernel for this device is trusted by default or was validated before.\n");
    return;
  }
  Table table({"operation", "kernel", "problems", "right in", "not right"},
              {"kernel", "problems", "right in", "not right"});
  for (const KernelRow& row : rows)
    table.add({row.operation, row.kernel, row.problems,
               fmt::format("{}", fmt::join(row.right, " ")),
               fmt::format("{}", fmt::join(row.not_right, "; "))});
  fmt::print("{}", table.text_for(stdout, 2));
  const core::DeviceInfo& info = context.state().runtime->info();
  for (const KernelRow& row : rows)
    if (row.not_right.empty())
      fmt::print("seen on {}.{} ({}): {} {}{}{}\n", info.compute_major, info.compute_minor,
                 printable(info.name), row.operation, row.kernel, row.problems.empty() ? "" : ", ",
                 row.problems);
}

}  // namespace

int validate_command(const TuneOptions& options) {
  StatusLine out(options.quiet);
  Context context(options.context);
  core::require(!context.state().on_cpu(),
                "--validate: it validates a device's kernels; give the device with --device");
  TunerOptions tuner_options;
  tuner_options.mode = "read";
  tuner_options.cache_directory = options.cache;
  tuner_options.warn = [&](const std::string& text) { out.warning(text); };
  const auto tuner = Tuner::open(context, tuner_options);
  autotune::Validator validator(context.state(), this_program_as_validator());
  const std::vector<KernelValidation> all = autotune::validate_kernels(
      tuner->state(), context, [&](const ConfigQuery& query, const ConfigChoice& choice) {
        out.status(autotune::describe(query));
        return validator.validate(query, choice);
      });
  out.clear();
  const bool ok = std::all_of(all.begin(), all.end(), [](const KernelValidation& one) {
    return one.validation.result == Validation::Result::right;
  });
  if (!options.quiet) print(rows_of(all), context);
  tuner->state().flush();
  const auto stored = tuner->state().stored();
  if (stored.lost > 0)
    out.warning(fmt::format("{} results are not in the cache: {}", stored.lost, stored.error));
  return ok && stored.lost == 0 ? exit_codes::ok : exit_codes::failed;
}

}  // namespace switchback::bench
