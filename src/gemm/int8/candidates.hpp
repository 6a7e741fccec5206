// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the configurations of a problem, and how to run one of them. The tuner uses these
// functions; an ordinary call goes through multiply() of dispatch.hpp.
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
/// but runs no product. Some may need validation first: see needs_validation().
std::vector<GemmConfig> candidates(const GemmProblem& problem, const ContextState& state);
/// As candidates(), but with all algorithms of a library that has many (cuBLASLt).
std::vector<GemmConfig> all_candidates(const GemmProblem& problem, const ContextState& state);

/// Whether running the configuration may hang or fault, because its kernel is not trusted here. The
/// tuner tries such a configuration in another process first.
bool needs_validation(const GemmProblem& problem, const GemmConfig& config,
                      const ContextState& state);

/// Writes to `kernel` which kernel a configuration runs, as validations identify it: configurations
/// that run the same kernel get the same value. Returns false if the kernels of the engine need no
/// validation.
bool kernel_of(DeviceKind device, const GemmProblem& problem, const GemmConfig& config,
               core::KernelId& kernel);

/// The configuration that runs if no ConfigSource has one. Throws Error(unsupported) if the problem
/// is packed for an engine that cannot run here.
GemmConfig default_config(const GemmProblem& problem, const ContextState& state);
/// The default configuration, given the kernels that are known to be right or wrong.
GemmConfig default_config(const GemmProblem& problem, const ContextState& state,
                          const core::KnownKernels& known);
/// The default configuration of one engine, which must accept the problem.
GemmConfig default_config(const Engine& engine, const GemmProblem& problem,
                          const ContextState& state);

/// Why this configuration cannot run the problem here; empty if it can.
std::string check_config(const GemmProblem& problem, const GemmConfig& config,
                         const ContextState& state);
/// As check_config(), for a configuration that from_choice() has read, whose members are already
/// within their limits.
std::string check_read_config(const GemmProblem& problem, const GemmConfig& config,
                              const ContextState& state);

/// The form in which a library describes the algorithm of a configuration, for records (such as
/// cuBLASLt's 64 bytes in hexadecimal digits); empty if there is none.
std::string provenance(const GemmProblem& problem, const GemmConfig& config,
                       const ContextState& state);

/// Runs a problem with one configuration. Throws Error(unsupported) with the reason if the
/// configuration cannot run it. Operands are not validated.
void run(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
         const GemmOperands& operands);
inline void run(Context& context, const GemmProblem& problem, const GemmConfig& config,
                const GemmOperands& operands) {
  run(context.state(), problem, config, operands);
}
/// Runs a problem with a configuration that check_config() has accepted.
void run_checked(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
                 const GemmOperands& operands);

}  // namespace switchback::gemm_int8
