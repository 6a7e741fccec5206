// SPDX-License-Identifier: Apache-2.0
// Bench: `switchback-bench tune --prove`: tries each kernel of a device that may not run by default
// in another process. The results go to the cache.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "autotune/entry/candidate.hpp"
#include "autotune/operations.hpp"
#include "autotune/prove_kernels.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/prover.hpp"
#include "bench/cli/status_line.hpp"
#include "bench/cli/table.hpp"
#include "bench/tune/tune.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "gemm/int8/problem.hpp"

namespace switchback::bench {

namespace {

using autotune::KernelProof;
using autotune::Proof;

// A kernel, for all types of its results.
struct KernelRow {
  std::string operation, kernel, problems;
  std::vector<std::string> right, not_right;
};

// Which kinds of problems a kernel computes, if an operation has several kinds.
std::string problems_of(const KernelProof& one) {
  if (one.query.op == ConfigOp::gemm_blockwise)
    return fmt::format("blocks of {} rows", one.kernel.variant);
  if (one.query.op != ConfigOp::grouped_int8) return "";
  return one.kernel.variant == static_cast<std::int64_t>(gemm_int8::ScaleMode::row_scalar)
             ? "one scale of each group"
             : "one scale of each column";
}

std::vector<KernelRow> rows_of(const std::vector<KernelProof>& all) {
  std::vector<KernelRow> rows;
  for (const KernelProof& one : all) {
    const std::string operation(autotune::tunable_of(one.query.op).name);
    const std::string kernel = autotune::describe(autotune::to_text(one.query.op, one.choice));
    const std::string problems = problems_of(one);
    auto row = std::find_if(rows.begin(), rows.end(), [&](const KernelRow& r) {
      return r.operation == operation && r.kernel == kernel && r.problems == problems;
    });
    if (row == rows.end()) row = rows.insert(rows.end(), {operation, kernel, problems, {}, {}});
    const std::string type(dtype_name(static_cast<DType>(one.kernel.output)));
    if (one.proof.result == Proof::Result::right)
      row->right.push_back(type);
    else
      row->not_right.push_back(type + ": " + one.proof.why);
  }
  return rows;
}

void print(const std::vector<KernelRow>& rows, const Context& context) {
  if (rows.empty()) {
    fmt::print(
        "Every kernel for this device is in a committed record, was tried in place or is in "
        "the cache.\n");
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

int prove_command(const TuneOptions& options) {
  StatusLine out(options.quiet);
  Context context(options.context);
  core::require(!context.state().on_cpu(),
                "--prove: it is of a device's kernels; --device names one");
  TunerOptions tuner_options;
  tuner_options.mode = "read";
  tuner_options.cache_directory = options.cache;
  tuner_options.warn = [&](const std::string& text) { out.warning(text); };
  const auto tuner = Tuner::open(context, tuner_options);
  autotune::Prover prover(context.state(), this_program_as_prover());
  const std::vector<KernelProof> all = autotune::prove_kernels(
      tuner->state(), context, [&](const ConfigQuery& query, const ConfigChoice& choice) {
        out.status(autotune::describe(query));
        return prover.prove(query, choice);
      });
  out.clear();
  const bool ok = std::all_of(all.begin(), all.end(), [](const KernelProof& one) {
    return one.proof.result == Proof::Result::right;
  });
  if (!options.quiet) print(rows_of(all), context);
  tuner->state().flush();
  const auto stored = tuner->state().stored();
  if (stored.lost > 0)
    out.warning(fmt::format("{} outcomes are not in the cache: {}", stored.lost, stored.error));
  return ok && stored.lost == 0 ? exit_codes::ok : exit_codes::failed;
}

}  // namespace switchback::bench
