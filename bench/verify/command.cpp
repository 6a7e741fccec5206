// SPDX-License-Identifier: Apache-2.0
// Bench: the `verify` subcommand: reads the options, and prints a table or one JSON object per
// line.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/machine/machine.hpp"
#include "bench/verify/verify.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/whole_file.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

struct VerifyArguments {
  VerifyOptions options;
  std::vector<std::string> shapes;
  std::string grid;
  std::string dtypes;
  std::string modes;
  std::vector<std::string> ops;
  std::string data;
  std::string out;
  bool json = false, force = false;
};

std::string verified_shape(const VerifyShape& s) {
  return fmt::format("{}x{}x{}", s.batch, s.dim_in, s.dim_out);
}

std::string value_text(double value) {
  return fmt::format("{:.9g}", value);
}

// Describes a failed check as text: the operation, the position, and the size of the error.
std::string explain(const Check& check) {
  const Comparison& c = check.comparison;
  std::string text =
      fmt::format("{} {}{}{} of {} -> {}, engine {}, isa {}, {} threads, {} data, shape MxKxN {}",
                  check.op, check.mode, check.mode.empty() ? "" : " ", check.part, check.dtype,
                  check.output.empty() ? "?" : check.output, check.engine, check.isa, check.threads,
                  data_name(check.data), verified_shape(check.shape));
  if (c.wrong > 0)
    text +=
        fmt::format("\n    {} of {} wrong; worst [{},{}]: {} instead of {}", c.wrong, c.compared,
                    c.worst.row, c.worst.col, value_text(c.worst.got), value_text(c.worst.want));
  if (c.wrong > 0 && std::isfinite(c.worst_share))
    text += fmt::format(" ({:.3g} times the bound)", c.worst_share);
  if (!check.reason.empty()) text += "\n    " + check.reason;
  if (!std::isnan(c.relative_error))
    text += fmt::format("\n    relative error {:.3g}, {:.1f} dB, cosine {:.7f} against f64",
                        c.relative_error, c.snr_db, c.cosine);
  if (!check.bound.empty()) text += "\n    bound: " + check.bound;
  return text;
}

// A line of the table: all checks of one operation, mode and engine.
struct Line {
  std::int64_t checks = 0;
  std::int64_t failed = 0;
  std::int64_t skipped = 0;
  std::int64_t compared = 0;
  double largest_share = 0;
  double largest_error = measure::not_measured;
  double smallest_snr_db = measure::not_measured;
};

class VerifyReport {
 public:
  void add(const Check& check) {
    const auto [entry, is_new] = lines_.try_emplace({check.op, check.mode, check.engine});
    if (is_new) order_.push_back(&*entry);
    Line& line = entry->second;
    ++line.checks;
    line.failed += check.outcome == Check::Outcome::fail ? 1 : 0;
    line.skipped += check.outcome == Check::Outcome::skipped ? 1 : 0;
    line.compared += check.comparison.compared;
    line.largest_share = std::fmax(line.largest_share, check.comparison.worst_share);
    // Accuracy is shown for normal random data only, because it is the accuracy that users can
    // expect.
    if (check.data == Data::normal) {
      line.largest_error = std::fmax(line.largest_error, check.comparison.relative_error);
      line.smallest_snr_db = std::fmin(line.smallest_snr_db, check.comparison.snr_db);
    }
    if (check.outcome == Check::Outcome::fail && failures_.size() < shown_failures)
      failures_.push_back(explain(check));
    if (check.outcome == Check::Outcome::skipped)
      ++skips_[fmt::format("{} on {}: {}", check.op, check.engine, check.reason)];
  }

  void print(std::FILE* to, const VerifySummary& summary) const {
    Table table({"operation", "mode", "engine", "checks", "failed", "elements", "of bound",
                 "rel. error", "SNR dB"},
                {"mode", "engine"});
    for (const auto* entry : order_) {
      const auto& [op, mode, engine] = entry->first;
      const Line& line = entry->second;
      // A check that requires equal bits has no error bound, so it has no share of a bound either.
      table.add({op, mode, engine, fmt::format("{}", line.checks - line.skipped),
                 line.failed > 0 ? fmt::format("{} !", line.failed) : "0",
                 fmt::format("{}", line.compared),
                 line.largest_share == 0 ? "equal" : number(line.largest_share),
                 number(line.largest_error), number(line.smallest_snr_db)});
    }
    fmt::print(to, "{}", table.text_for(to, 3));
    fmt::print(
        to,
        "\n"
        "'of bound': the largest error as a share of the allowed error; 'equal' if the bits must "
        "be\n"
        "and are the same. Relative error and SNR: the worst for random normal data against f64.\n"
        "Each line combines all dtypes, shapes, data and, for the quantize operations, instruction "
        "sets.\n");
    for (const auto& [what, count] : skips_)
      fmt::print(to, "skipped {}: {}\n", count, printable(what));
    for (const std::string& failure : failures_)
      fmt::print(to, "\nFAILED {}\n", failure);
    if (summary.failed > static_cast<std::int64_t>(failures_.size()))
      fmt::print(to, "\n… and {} more failures; --json lists them all\n",
                 summary.failed - static_cast<std::int64_t>(failures_.size()));
    fmt::print(to, "\n{}: {} checks passed, {} failed, {} skipped\n",
               summary.failed == 0 ? "PASSED" : "FAILED", summary.passed, summary.failed,
               summary.skipped);
  }

 private:
  static constexpr std::size_t shown_failures = 20;
  using Key = std::array<std::string, 3>;
  std::map<Key, Line> lines_;
  std::vector<const std::pair<const Key, Line>*> order_;
  std::vector<std::string> failures_;
  std::map<std::string, int> skips_;
};

VerifyOptions read(const VerifyArguments& arguments) {
  VerifyOptions options = arguments.options;
  for (const std::string& text : arguments.shapes)
    options.shapes.push_back(parse_verify_shape(text));
  if (!arguments.grid.empty())
    for (const VerifyShape& shape : verify_shapes_of_grid(arguments.grid))
      options.shapes.push_back(shape);
  if (!arguments.dtypes.empty()) {
    options.dtypes.clear();
    for (const std::string& name : split_list(arguments.dtypes)) {
      options.dtypes.push_back(parse_dtype(name));
      core::require(
          dtype_size_bytes(options.dtypes.back()) == 2 || options.dtypes.back() == DType::f32,
          "--dtype '{}' is not one of f32, f16, bf16", name);
    }
  }
  if (!arguments.modes.empty()) {
    options.modes.clear();
    for (const std::string& name : split_list(arguments.modes)) {
      options.modes.push_back(parse_mode(name));
      core::require(options.modes.back() != Mode::automatic,
                    "--mode 'auto' becomes one of the other modes at run time; give those instead");
    }
    // If the user chose modes of a layer, only the layer is checked.
    if (arguments.ops.empty()) options.ops = {"layer"};
  }
  for (const std::string& name : arguments.ops) {
    core::require(std::find(verify_ops().begin(), verify_ops().end(), name) != verify_ops().end(),
                  "operation '{}' is not one of {}", name, fmt::join(verify_ops(), ", "));
    options.ops.push_back(name);
  }
  for (const std::string& name : split_list(arguments.data))
    options.data.push_back(parse_data(name));
  return options;
}

void run_verify(const VerifyArguments& arguments) {
  const VerifyOptions options = read(arguments);
  NewLines out("--out", arguments.out, arguments.force);
  const auto write = [&](const nlohmann::ordered_json& json) {
    const std::string line = json_line(json);
    if (arguments.json) fmt::print("{}\n", line);
    out.write(line);
  };
  nlohmann::ordered_json start;
  {
    const Context context(options.context);
    start["type"] = "verify_start";
    start["v"] = 1;
    start["seed"] = options.seed;
    start["machine"] = machine_json(context);
    fmt::print(stderr, "{} on {}, isa {}, {} threads, seed {}\n", tool_name(),
               printable(start["machine"]["cpu"].get<std::string>()), context.isa(),
               context.threads(), options.seed);
  }
  write(start);

  VerifyReport report;
  const VerifySummary summary = run_verify(options, [&](const Check& check) {
    report.add(check);
    write(to_json(check));
  });
  write({{"type", "verify_end"},
         {"passed", summary.passed},
         {"failed", summary.failed},
         {"skipped", summary.skipped}});
  // The table goes to standard error if the JSON goes to standard output.
  report.print(arguments.json ? stderr : stdout, summary);
  core::require(summary.passed + summary.failed > 0,
                "nothing was checked: the options exclude every check{}",
                summary.skipped > 0 ? " that is not skipped" : "");
  set_exit_code(summary.failed == 0 ? exit_codes::ok : exit_codes::failed);
}

// The names of the modes that `verify` checks by default.
std::vector<std::string> all_modes() {
  std::vector<std::string> names;
  for (const Mode mode : VerifyOptions().modes)
    names.emplace_back(mode_name(mode));
  return names;
}

}  // namespace

void add_verify_command(CLI::App& app) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command = app.add_subcommand(
      "verify", "Check every operation, layer mode, dtype and engine against f64 references");
  command
      ->add_option("operation", arguments->ops,
                   fmt::format("{} (default: all)", fmt::join(verify_ops(), ", ")))
      ->type_name("NAME");
  add_context_options(*command, arguments->options.context);
  command
      ->add_option(
          "--shape", arguments->shapes,
          std::string(shape_help) + "; may be repeated (default: odd, small and medium ones)")
      ->type_name("M,K,N")
      ->allow_extra_args(false);
  command
      ->add_option("--grid", arguments->grid, "use the shapes of a grid file or of a built-in grid")
      ->type_name("FILE");
  command
      ->add_option("--dtype", arguments->dtypes,
                   "types, separated by commas: f32, f16, bf16 (default: all)")
      ->type_name("LIST");
  command
      ->add_option(
          "--mode", arguments->modes,
          fmt::format("check only layers, and only in these modes, separated by commas: {}",
                      fmt::join(all_modes(), ", ")))
      ->type_name("LIST");
  command
      ->add_option("--data", arguments->data,
                   "kinds of data, separated by commas: normal, outliers, zeros, ties, subnormal, "
                   "nonfinite (default: all; for large shapes normal, outliers, nonfinite)")
      ->type_name("LIST");
  command
      ->add_option("--engine", arguments->options.engine,
                   "check only the products of this engine (default: every available one)")
      ->type_name("NAME");
  add_seed_option(*command, arguments->options.seed);
  command->add_flag("--json", arguments->json,
                    "print one JSON object per check on stdout, and the table on stderr");
  command->add_option("--out", arguments->out, "write the JSON objects to a new file")
      ->type_name("FILE");
  command->add_flag("--force", arguments->force, "replace the file of --out if it exists");
  command->footer(
      "Exit codes: 0 all checks passed; 1 something is wrong; 2 usage; 5 no such device or "
      "engine.");
  command->callback([arguments] { run_verify(*arguments); });
}

}  // namespace switchback::bench
