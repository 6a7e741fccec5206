// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/cli.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>

#include "autotune/default_source.hpp"
#include "bench/cli/table.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/machine/machine.hpp"
#include "bench/workload/command.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"
#include "core/cpu/isa.hpp"

namespace switchback::bench {

namespace {
int process_exit_code = exit_codes::ok;

void print_error(std::string_view message) {
  fmt::print(stderr, "switchback-bench: {}\n", printable(message));
}
}  // namespace

int exit_code_for(Status status) noexcept {
  switch (status) {
    case Status::invalid_argument:
      return exit_codes::usage;
    case Status::device_error:
    case Status::unsupported:
      return exit_codes::device;
    default:
      return exit_codes::failed;
  }
}

void set_exit_code(int code) noexcept {
  process_exit_code = code;
}
int exit_code() noexcept {
  return process_exit_code;
}

namespace {

// Formats help texts to the width of the terminal, from 60 to 120 columns; 80 without a terminal.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return wrapped_help(CLI::Formatter::make_help(app, std::move(name), mode), columns(),
                        get_column_width());
  }
  // Removes CLI11's "Excludes: --other" from an option's line. The descriptions say which options
  // exclude each other.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    return text.substr(0, text.find(" Excludes:"));
  }
  std::string make_footer(const CLI::App* app) const override {
    return filled_paragraphs(CLI::Formatter::make_footer(app), columns());
  }

 private:
  static std::size_t columns() {
    const std::size_t terminal = terminal_columns(stdout);
    return terminal == 0 ? 80 : std::clamp<std::size_t>(terminal, 60, 120);
  }
};

// The command line arguments, where a subcommand's former name is replaced by its present name.
std::vector<const char*> with_present_name(int argc, const char* const* argv) {
  constexpr std::pair<std::string_view, const char*> names[] = {
      {"ab", "compare-builds"}, {"accum", "accumulators"}, {"multimodel", "parallel-linears"}};
  std::vector<const char*> arguments(argv, argv + argc);
  if (argc < 2) return arguments;
  for (const auto& [former, present] : names)
    if (arguments[1] == former) arguments[1] = present;
  return arguments;
}

int parse_and_run(int argc, const char* const* argv) {
  CLI::App app("Compares int8 linear layers with floating point ones on this machine.",
               "switchback-bench");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", tool_name());
  app.require_subcommand(1);
  app.footer(
      "'switchback-bench COMMAND --help' explains a command. Without options,\n"
      "'switchback-bench run' takes half a minute and tells whether int8 is faster here.");
  for (const std::shared_ptr<Workload>& workload : make_workloads())
    add_workload_command(app, workload);
  add_tune_command(app);
  add_cache_command(app);
  add_validate_command(app);
  add_report_command(app);
  add_compare_command(app);
  add_compare_builds_command(app);
  add_merge_command(app);
  add_list_command(app);
  add_verify_command(app);
  add_micro_command(app);
  add_info_command(app);

  set_exit_code(exit_codes::ok);
  try {
    app.parse(argc, with_present_name(argc, argv).data());
  } catch (const CLI::ParseError& error) {
    // CLI11 throws for --help and --version too; these errors have the exit code 0.
    if (error.get_exit_code() != 0) {
      print_error(parse_error_text(app, error));
      return exit_codes::usage;
    }
    std::ostringstream text;
    app.exit(error, text, text);
    fmt::print("{}", text.str());
  }
  flush_stdout();
  return exit_code();
}

}  // namespace

int run_cli(int argc, const char* const* argv) {
  // Subcommands that use tuned configurations attach a tuner themselves.
  autotune::look_nothing_up_by_itself();
  try {
    return parse_and_run(argc, argv);
  } catch (const Error& error) {
    print_error(error.what());
    return exit_code_for(error.status());
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return exit_codes::failed;
  } catch (const std::system_error& error) {
    // fmt throws std::system_error when a stream does not accept the output.
    print_error(std::ferror(stdout) != 0
                    ? "standard output: cannot be written: " + error.code().message()
                    : fmt::format("unexpected error: {}", error.what()));
    std::clearerr(stdout);
    return exit_codes::failed;
  } catch (const std::exception& error) {
    print_error(fmt::format("unexpected error: {}", error.what()));
    return exit_codes::failed;
  }
}

void add_context_options(CLI::App& command, ContextOptions& options) {
  command
      .add_option("--device", options.device,
                  "cpu, cuda or cuda:N; default: the best available one")
      ->type_name("NAME");
  // Only the rough range of --threads is checked here; the library makes the final check.
  add_integer_option(
      command, "--threads", [&options](std::uint64_t n) { options.threads = static_cast<int>(n); },
      0, 4096, "CPU threads; 0 (default): one for each core");
  std::string names;
  for (const core::Isa isa : core::all_isas())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", core::isa_name(isa));
  command
      .add_option(
          "--isa", options.isa,
          fmt::format("highest instruction set to use: {}; default: the best one of this CPU",
                      names))
      ->type_name("NAME");
}

CLI::Option* add_integer_option(CLI::App& command, const std::string& name,
                                std::function<void(std::uint64_t)> take, std::uint64_t low,
                                std::uint64_t high, const std::string& description) {
  return add_text_option(command, name, "N", description,
                         [name, take = std::move(take), low, high](const std::string& text) {
                           take(parse_integer(name, text, low, high));
                         });
}

CLI::Option* add_text_option(CLI::App& command, const std::string& name, const std::string& type,
                             const std::string& description,
                             std::function<void(const std::string&)> take) {
  return command.add_option_function<std::string>(name, std::move(take), description)
      ->type_name(type);
}

CLI::Option* add_percentage_option(CLI::App& command, const std::string& name, double& share,
                                   double low, double high, const std::string& description) {
  return add_text_option(command, name, "PERCENT", description,
                         [name, &share, low, high](const std::string& text) {
                           share = parse_percentage(name, text, low, high) / 100;
                         });
}

CLI::Option* add_duration_option(CLI::App& command, const std::string& name,
                                 std::function<void(double)> take, const std::string& description) {
  return add_text_option(command, name, "TIME", description,
                         [name, take = std::move(take)](const std::string& text) {
                           take(parse_duration_s(name, text));
                         });
}

void add_seed_option(CLI::App& command, std::uint64_t& seed) {
  add_integer_option(
      command, "--seed", [&seed](std::uint64_t n) { seed = n; }, 0,
      std::numeric_limits<std::uint64_t>::max(), "seed of the random data (default 1)");
}

std::uint64_t parse_integer(std::string_view option, std::string_view text, std::uint64_t low,
                            std::uint64_t high) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  core::require(error == std::errc() && rest == end && value >= low && value <= high,
                "{} '{}': it must be an integer from {} to {}", option, text, low, high);
  return value;
}

void refuse_choice(std::string_view option, std::string_view text,
                   const std::vector<std::string_view>& allowed) {
  core::fail(Status::invalid_argument, "{} {}: it must be {}", option, text,
             core::listed(std::vector<std::string>(allowed.begin(), allowed.end())));
}

double parse_percentage(std::string_view option, std::string_view text, double low, double high) {
  const std::string_view digits = text.ends_with('%') ? text.substr(0, text.size() - 1) : text;
  const char* end = digits.data() + digits.size();
  double value = -1;
  const auto [rest, error] = std::from_chars(digits.data(), end, value);
  core::require(error == std::errc() && rest == end && value >= low && value <= high,
                "{} '{}': it must be a percentage from {} to {}", option, text, low, high);
  return value;
}

double parse_duration_s(std::string_view option, std::string_view text) {
  const std::string copy(text);
  std::size_t used = 0;
  double value = -1;
  try {
    // std::stod would also accept "inf", "nan" and hexadecimal numbers.
    if (!copy.empty() && (copy[0] == '.' || (copy[0] >= '0' && copy[0] <= '9')) &&
        copy.find_first_of("xX") == std::string::npos)
      value = std::stod(copy, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string_view unit = text.substr(std::min(used, text.size()));
  double factor = 0;
  if (unit.empty() || unit == "s") factor = 1;
  if (unit == "ms") factor = 1e-3;
  if (unit == "m" || unit == "min") factor = 60;
  if (unit == "h") factor = 3600;
  core::require(used > 0 && value * factor > 0 && value * factor <= 1e9,
                "{} '{}': it must be a duration above zero, such as 90, 90s, 1.5m, 2h or 500ms",
                option, text);
  return value * factor;
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string format_bytes(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes)
                   : fmt::format("{:.{}f} {}", bytes, bytes < 100 ? 1 : 0, units[unit]);
}

std::vector<std::string> split_list(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    std::string_view part = text.substr(0, end);
    while (!part.empty() && part.front() == ' ')
      part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ')
      part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace switchback::bench
