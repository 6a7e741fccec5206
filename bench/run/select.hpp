// SPDX-License-Identifier: Apache-2.0
// Bench: the options that choose cases, as every subcommand with a grid spells them.
#pragma once

#include "bench/cli/cli.hpp"
#include "bench/run/run.hpp"

namespace switchback::bench {

/// --grid, --shape and --filter.
void add_selection_options(CLI::App& command, CaseSelection& selection);

}  // namespace switchback::bench
