// SPDX-License-Identifier: Apache-2.0
// Bench: a workload for every combination of values of its options, as one workload.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/workload/axis.hpp"
#include "bench/workload/workload.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace switchback::bench {

/// The names of the command's options that take one value, without those that all workloads share.
std::vector<std::string> single_options(const CLI::App& command);

/// Workloads like this one (Workload::another()), each with the options that the command was given
/// and one of the combinations. Their cases follow each other; ids and records also say the values.
/// Throws Error(invalid_argument) for a value that an option refuses.
std::shared_ptr<Workload> make_product(const Workload& like, const CLI::App& command,
                                       const std::vector<Combination>& combinations);

}  // namespace switchback::bench
