// SPDX-License-Identifier: Apache-2.0
#include "bench/cli.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>
#include <new>

#include "bench/machine.hpp"
#include "bench/table.hpp"
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

int run_cli(int argc, const char* const* argv) {
  CLI::App app("Measures int8 linear layers against floating point ones on this machine.",
               "switchback-bench");
  app.set_version_flag("--version", tool_name());
  app.require_subcommand(1);
  app.footer(
      "'switchback-bench COMMAND --help' explains a command. Without options,\n"
      "'switchback-bench run' takes about a minute and says whether int8 pays here.");
  add_run_command(app);
  add_tune_command(app);
  add_cache_command(app);
  add_probe_command(app);
  add_report_command(app);
  add_list_command(app);
  add_verify_command(app);
  add_micro_command(app);
  add_info_command(app);

  set_exit_code(exit_codes::ok);
  try {
    app.parse(argc, argv);
    return exit_code();
  } catch (const CLI::ParseError& error) {
    // --help and --version are errors to CLI11, with the exit code of a success.
    return app.exit(error) == 0 ? exit_codes::ok : exit_codes::usage;
  } catch (const Error& error) {
    print_error(error.what());
    return exit_code_for(error.status());
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return exit_codes::failed;
  } catch (const std::exception& error) {
    print_error(fmt::format("unexpected: {}", error.what()));
    return exit_codes::failed;
  }
}

void add_context_options(CLI::App& command, ContextOptions& options) {
  command.add_option("--device", options.device, "cpu, cuda or cuda:N; default: the best there is")
      ->type_name("NAME");
  command.add_option("--threads", options.threads, "CPU threads; 0 (default): every core")
      ->type_name("N");
  std::string names;
  for (const core::Isa isa : core::all_isas())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", core::isa_name(isa));
  command
      .add_option("--isa", options.isa,
                  fmt::format("instruction set at most: {}; default: the best this CPU has", names))
      ->type_name("NAME");
}

double parse_duration_s(std::string_view option, std::string_view text) {
  const std::string copy(text);
  std::size_t used = 0;
  double value = -1;
  try {
    // stod would take "inf", "nan" and hexadecimal too.
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
  core::require(used > 0 && factor > 0 && value > 0 && value * factor <= 1e9,
                "{} '{}': not a duration above zero such as 90, 90s, 1.5m, 2h or 500ms", option,
                text);
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
