// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: which configurations there are for a problem, and running one of them. The tuner
// drives these; an ordinary call goes through
// multiply() of dispatch.hpp.
#pragma once

#include <string>
#include <vector>

#include "gemm/int8/config.hpp"
#include "gemm/int8/engine.hpp"
#include "gemm/int8/problem.hpp"
#include "switchback/context.hpp"

namespace switchback::gemm_int8 {

/// Every configuration worth measuring, the default first, of every engine that accepts the problem
/// in this Context (for a packed problem: of the engine it is packed for). May take milliseconds,
/// but runs no product. See is_risky().
std::vector<GemmConfig> candidates(const GemmProblem& problem, const ContextState& state);

/// What runs when no ConfigSource knows better. Throws Error(unsupported) if the problem is packed
/// for an engine that cannot run here.
GemmConfig default_config(const GemmProblem& problem, const ContextState& state);

/// Why this configuration cannot run the problem here; empty when it can.
std::string check_config(const GemmProblem& problem, const GemmConfig& config,
                         const ContextState& state);
/// The same of what from_choice() read, whose members are within their limits.
std::string check_read_config(const GemmProblem& problem, const GemmConfig& config,
                              const ContextState& state);

/// What a library calls the configuration, to be recorded beside it (64 bytes of cuBLASLt's own in
/// hexadecimal digits, say); empty where there is nothing to add.
std::string provenance(const GemmProblem& problem, const GemmConfig& config,
                       const ContextState& state);

/// Runs a problem as one configuration says. Throws Error(unsupported) with the reason if it
/// cannot; operands are not validated.
void run(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
         const GemmOperands& operands);
inline void run(Context& context, const GemmProblem& problem, const GemmConfig& config,
                const GemmOperands& operands) {
  run(context.state(), problem, config, operands);
}
/// The same of a configuration that check_config() has passed.
void run_checked(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
                 const GemmOperands& operands);

}  // namespace switchback::gemm_int8
