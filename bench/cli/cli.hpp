// SPDX-License-Identifier: Apache-2.0
// Bench: shared by the subcommands of switchback-bench: exit codes, registration, and options that
// have the same spelling everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "switchback/context.hpp"
#include "switchback/error.hpp"

// Only files that declare options include CLI11, which takes seconds to compile.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace switchback::bench {

/// What the process returns. Scripts rely on these numbers.
namespace exit_codes {
inline constexpr int ok = 0;
inline constexpr int failed = 1;         ///< a wrong result, a failed case, a file that failed
inline constexpr int usage = 2;          ///< an option, a grid or a file of the wrong kind
inline constexpr int slower = 3;         ///< a comparison found something slower
inline constexpr int ambiguous = 4;      ///< a comparison with --strict found something undecided
inline constexpr int device = 5;         ///< the device or an engine is not available here
inline constexpr int deadline = 6;       ///< the deadline came first
inline constexpr int interrupted = 130;  ///< SIGINT or SIGTERM
}  // namespace exit_codes

/// The exit code of the process after this Error.
int exit_code_for(Status status) noexcept;

/// The exit code of this process, set by the callback of the subcommand that ran.
void set_exit_code(int code) noexcept;
int exit_code() noexcept;

// Each function adds one subcommand that is not a workload (workload/workload.hpp). Its callback
// runs the subcommand and calls set_exit_code(). If a callback throws an Error, run_cli() prints
// it.
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
/// The subcommand that `tune` itself runs in another process; not listed in the help.
void add_validate_command(CLI::App& app);

/// The whole program: parses the arguments, runs the subcommand, prints errors to stderr, and
/// returns the exit code.
int run_cli(int argc, const char* const* argv);

/// --device, --threads and --isa, with the same spelling in every subcommand that computes.
void add_context_options(CLI::App& command, ContextOptions& options);
/// --seed of the random data.
void add_seed_option(CLI::App& command, std::uint64_t& seed);
/// An option that accepts an integer from low to high; parse_integer() refuses other values.
CLI::Option* add_integer_option(CLI::App& command, const std::string& name,
                                std::function<void(std::uint64_t)> take, std::uint64_t low,
                                std::uint64_t high, const std::string& description);
/// An option whose text is parsed by `take`; `type` is the name of its value in the help.
CLI::Option* add_text_option(CLI::App& command, const std::string& name, const std::string& type,
                             const std::string& description,
                             std::function<void(const std::string&)> take);
/// Options that use parse_percentage() (stored as a fraction of 1) and parse_duration_s().
CLI::Option* add_percentage_option(CLI::App& command, const std::string& name, double& share,
                                   double low, double high, const std::string& description);
CLI::Option* add_duration_option(CLI::App& command, const std::string& name,
                                 std::function<void(double)> take, const std::string& description);

/// A whole number from low to high. Otherwise throws Error(invalid_argument) that names the option,
/// the text and the rule. Numbers that are too large do not wrap around.
std::uint64_t parse_integer(std::string_view option, std::string_view text, std::uint64_t low,
                            std::uint64_t high);

/// Throws Error(invalid_argument) that names the option, the text and the allowed values.
[[noreturn]] void refuse_choice(std::string_view option, std::string_view text,
                                const std::vector<std::string_view>& allowed);
/// The element of `all` whose name is `text`; calls refuse_choice() if there is none.
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

/// "5", "2.5" or "5%": percent, from low to high. Throws Error(invalid_argument) in the same way.
double parse_percentage(std::string_view option, std::string_view text, double low, double high);

/// "90", "90s", "1.5m", "2h", "500ms" in seconds. Throws Error(invalid_argument) that names the
/// option.
double parse_duration_s(std::string_view option, std::string_view text);
/// "3.2 s", "42 s", "1 min 20 s", "2 h 5 min"
std::string format_duration(double seconds);
/// "1.3 GiB", "512 KiB", "12 B"
std::string format_bytes(double bytes);
/// How --shape is described in all subcommands.
inline constexpr const char* shape_help =
    "one shape M,K,N: the batch (rows of X), dim_in and dim_out; the printed form MxKxN is "
    "accepted too";
/// "a,b, c" → {"a","b","c"}; empty parts are dropped.
std::vector<std::string> split_list(std::string_view text, char separator = ',');

}  // namespace switchback::bench
