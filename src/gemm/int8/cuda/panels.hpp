// SPDX-License-Identifier: Apache-2.0
// Engine zone: the product in panels of rows, whose int32 sums take no more memory than one of them
// (two, where two are in flight) needs.
#pragma once

#include <cstdint>
#include <string>

#include "core/cuda/api.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::gemm_int8::SWITCHBACK_CUDA_NS {

/// How rows are cut. A last panel of few rows is moved up to overlap the one before it: the same
/// rows twice, with the same results, instead of a size the library may refuse.
struct Cut {
  std::int64_t rows = 0;
  std::int64_t panels = 0;
  std::int64_t rest = 0;       ///< rows of the last panel that no other has
  std::int64_t last_rows = 0;  ///< of the last panel
};
/// The rows of a problem in panels of `rows`, or of all of them.
Cut cut_rows(const GemmProblem& problem, std::int64_t rows);

/// Rows of a panel are a multiple of what a block of the library's kernels computes: so many whose
/// sums are of so many bytes, at least one multiple.
std::int64_t panel_rows(const GemmProblem& problem, std::int64_t bytes);

/// The most memory for sums that wait for one pass over them. M·N·4 bytes would be gigabytes for
/// what a large model multiplies at once, which the Context keeps, beside whatever else allocates
/// on the device. Beyond the limit, rows are done in panels, one behind the other. At 256 MiB a
/// panel is 8192 x 8192: tens of tiles for each multiprocessor, of which the last, of which some
/// have none, is the price. Small devices have less.
std::int64_t most_sums_bytes(const ContextState& state);

/// Why cuBLASLt cannot do the panels by the configuration's algorithm; empty if it can.
std::string refuses_panels(const GemmProblem& problem, const GemmConfig& config,
                           const ContextState& state, const Cut& cut);

/// Panel after panel, or, on two streams, two in flight.
void run_panels(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
                const GemmOperands& operands, const Cut& cut, int streams);

}  // namespace switchback::gemm_int8::SWITCHBACK_CUDA_NS
