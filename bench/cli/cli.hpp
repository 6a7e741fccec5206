// SPDX-License-Identifier: Apache-2.0
// Bench: what the subcommands of switchback-bench share: exit codes, functions that add
// subcommands, and options that have the same spelling everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "switchback/context.hpp"
#include "switchback/error.hpp"

// CLI11 takes seconds to compile, so this header only declares its classes. Only files that declare
// options include it.
namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI
namespace switchback::autotune {
struct ValidatorOptions;
}

namespace switchback::bench {

/// Exit codes of the process. Scripts rely on these numbers.
namespace exit_codes {
inline constexpr int ok = 0;
/// A result is wrong, a case failed, or a file could not be read or written.
inline constexpr int failed = 1;
inline constexpr int usage = 2;   ///< an option, a grid or an input file is invalid
inline constexpr int slower = 3;  ///< a comparison found that something is slower
/// A comparison with --strict could not decide about something.
inline constexpr int ambiguous = 4;
inline constexpr int device = 5;  ///< the device or an engine is not available on this machine
/// The time of --deadline was over before all cases were measured.
inline constexpr int deadline = 6;
inline constexpr int interrupted = 130;  ///< the user stopped the program with SIGINT or SIGTERM
}  // namespace exit_codes

/// The exit code of the process if an Error with this status ends it.
int exit_code_for(Status status) noexcept;

/// The exit code of this process, set by the callback of the subcommand that ran.
void set_exit_code(int code) noexcept;
int exit_code() noexcept;

// Each of the functions add_NAME_command adds one subcommand that is not a workload
// (workload/workload.hpp). The subcommand's callback runs it and calls set_exit_code(). If a
// callback throws an Error, run_cli() prints it.
void add_list_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_compare_command(CLI::App& app);
void add_compare_builds_command(CLI::App& app);
void add_merge_command(CLI::App& app);
void add_verify_command(CLI::App& app);
void add_info_command(CLI::App& app);
void add_micro_command(CLI::App& app);
void add_tune_command(CLI::App& app);
void add_cache_command(CLI::App& app);
/// Adds the hidden subcommand that `tune` runs in another process to check candidate
/// configurations.
void add_validate_command(CLI::App& app);

/// The whole program: parses the arguments, runs the subcommand, prints errors to stderr, and
/// returns the exit code.
int run_cli(int argc, const char* const* argv);

/// Adds --device, --threads and --isa to a subcommand that computes, with the same spelling
/// everywhere.
void add_context_options(CLI::App& command, ContextOptions& options);
/// Adds --seed, the seed of the random data.
void add_seed_option(CLI::App& command, std::uint64_t& seed);
/// Adds an option that accepts an integer from low to high; parse_integer() refuses other values.
CLI::Option* add_integer_option(CLI::App& command, const std::string& name,
                                std::function<void(std::uint64_t)> take, std::uint64_t low,
                                std::uint64_t high, const std::string& description);
/// Adds an option whose text `take` parses; `type` is the name of its value in the help.
CLI::Option* add_text_option(CLI::App& command, const std::string& name, const std::string& type,
                             const std::string& description,
                             std::function<void(const std::string&)> take);
/// Adds options that are parsed by parse_percentage() (and stored as a fraction of 1) and by
/// parse_duration_s().
CLI::Option* add_percentage_option(CLI::App& command, const std::string& name, double& share,
                                   double low, double high, const std::string& description);
CLI::Option* add_duration_option(CLI::App& command, const std::string& name,
                                 std::function<void(double)> take, const std::string& description);

/// Parses an option's text as a whole number from low to high. Otherwise throws
/// Error(invalid_argument) that names the option, the text and the rule. Numbers that are too large
/// do not wrap around.
std::uint64_t parse_integer(std::string_view option, std::string_view text, std::uint64_t low,
                            std::uint64_t high);

/// Throws Error(invalid_argument) that names an option, its text and the allowed values.
[[noreturn]] void refuse_choice(std::string_view option, std::string_view text,
                                const std::vector<std::string_view>& allowed);
/// The element of `all` whose name is an option's text. Calls refuse_choice() if there is none.
template <class E>
E parse_choice(std::string_view option, std::string_view text, std::string_view (*name_of)(E),
               std::initializer_list<E> all) {
  std::vector<std::string_view> names;
  for (const E one : all) {
    if (name_of(one) == text) return one;
    names.push_back(name_of(one));
  }
  refuse_choice(option, text, names);
}

/// Parses an option's percentage "5", "2.5" or "5%", from low to high. Throws
/// Error(invalid_argument) that names the option, the text and the rule.
double parse_percentage(std::string_view option, std::string_view text, double low, double high);

/// Parses an option's duration "90", "90s", "1.5m", "2h" or "500ms"; returns seconds. Throws
/// Error(invalid_argument) that names the option.
double parse_duration_s(std::string_view option, std::string_view text);
/// A duration as text: "3.2 s", "42 s", "1 min 20 s" or "2 h 5 min".
std::string format_duration(double seconds);
/// A number of bytes as text: "1.3 GiB", "512 KiB", "12 B".
std::string format_bytes(double bytes);
/// The help text of --shape in all subcommands.
inline constexpr const char* shape_help =
    "one shape M,K,N: the batch (rows of X), dim_in and dim_out; the printed form MxKxN is "
    "accepted too";
/// Splits a list at the separator: "a,b, c" → {"a","b","c"}. Empty parts are dropped.
std::vector<std::string> split_list(std::string_view text, char separator = ',');

/// The message for a command line that CLI11 cannot parse. It names the unknown word with the
/// nearest known one (or with all of them), the option that lacks a value, or the value that an
/// option refuses.
std::string parse_error_text(const CLI::App& app, const CLI::ParseError& error);

/// The known word that `word` is most likely meant to be; empty if no word is similar.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// Options of a tuner whose candidate configurations a process of this program checks.
autotune::ValidatorOptions this_program_as_validator();

}  // namespace switchback::bench
