// SPDX-License-Identifier: Apache-2.0
// Engine zone: the int8 product by cuBLASLt in panels of rows, so that the int32 sums need only the
// memory of one panel (or of two, if two are in flight).
#pragma once

#include <cstdint>
#include <string>

#include "core/cuda/api.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::gemm_int8::cuda {

/// How the rows of d are divided into panels. A last panel of few rows is moved up to overlap the
/// panel before it. Some rows are then computed twice, with the same results, but a size that
/// cuBLASLt may refuse is avoided.
struct Cut {
  std::int64_t rows = 0;
  std::int64_t panels = 0;
  std::int64_t rest = 0;       ///< rows of the last panel that no other panel has
  std::int64_t last_rows = 0;  ///< all rows of the last panel
};
/// Divides the rows of a problem into panels of `rows` rows; a problem with fewer rows is one
/// panel.
Cut cut_rows(const GemmProblem& problem, std::int64_t rows);

/// The number of rows in a panel whose int32 sums take about this many bytes. It is a multiple of
/// the rows that a thread block of cuBLASLt's kernels computes, and at least that.
std::int64_t panel_rows(const GemmProblem& problem, std::int64_t bytes);

/// The limit on memory for int32 sums, in bytes. For a large model M·N·4 bytes would be gigabytes,
/// which the Context would keep. Beyond the limit, rows are computed in panels, one after the
/// other. At 256 MiB a panel is 8192 x 8192: tens of tiles for each multiprocessor. The price is
/// that the last wave of tiles in each panel does not fill the device. Small devices have a lower
/// limit.
std::int64_t most_sums_bytes(const ContextState& state);

/// Why the configuration's cuBLASLt algorithm cannot compute the panels; empty if it can.
std::string refuses_panels(const GemmProblem& problem, const GemmConfig& config,
                           const ContextState& state, const Cut& cut);

/// Computes one panel after another; with two streams, two panels are in flight.
void run_panels(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
                const GemmOperands& operands, const Cut& cut, int streams);

}  // namespace switchback::gemm_int8::cuda
