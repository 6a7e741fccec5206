// SPDX-License-Identifier: Apache-2.0
// Bench: makes a workload a subcommand, with the options that all workloads share.
#pragma once

#include <memory>
#include <string>

#include "bench/workload/session.hpp"
#include "bench/workload/workload.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace switchback::bench {

/// Adds the workload's subcommand, whose callback runs the workload and calls set_exit_code().
void add_workload_command(CLI::App& app, const std::shared_ptr<Workload>& workload);

/// Adds the options that all workloads share: --device, --threads, --isa, --seed, --deadline,
/// --shard, --out, --append, --resume, --dry-run and --quiet.
void add_session_options(CLI::App& command, SessionOptions& options);

// The shared options in parts, for a workload that adds its own options in between. The returned
// options allow other descriptions.
CLI::Option* add_deadline_option(CLI::App& command, SessionOptions& options);
/// Adds --shard, --out, --append and --resume; returns the last option.
CLI::Option* add_output_options(CLI::App& command, SessionOptions& options);
/// Adds --dry-run and --quiet; returns the first option.
CLI::Option* add_dry_run_and_quiet(CLI::App& command, SessionOptions& options);

}  // namespace switchback::bench
