// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the internal entry points of the grouped operations, for callers that have
// validated their arguments.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/context_state.hpp"
#include "switchback/grouped.hpp"

namespace switchback::grouped {

/// grouped_quantize_rowwise without its checks.
void quantize_rowwise(ContextState& state, const Groups& groups, const GroupedRows& x,
                      MatrixView<std::int8_t> q, std::span<float> absmax);
/// Copies the row that each slot reads to to[M,K], of the same type. Slots without a group stay
/// unchanged.
void gather(ContextState& state, const Groups& groups, const GroupedRows& x, AnyMatrix to);

/// grouped_gemm and grouped_gemm_standard without their checks.
void multiply(ContextState& state, const GroupedGemmArgs& args);
void multiply(ContextState& state, const GroupedStandardGemmArgs& args);

/// combine() without its checks.
void combine(ContextState& state, const CombineArgs& args);

/// db[G,N] (+)= the column sums of each group's rows of g[M,N], as switchback/quant.hpp defines
/// column_sums, rounded to the type of db.
void column_sums(ContextState& state, const Groups& groups, ConstAnyMatrix g, AnyMatrix db,
                 bool accumulate);

}  // namespace switchback::grouped
