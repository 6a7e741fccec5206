// SPDX-License-Identifier: Apache-2.0
// Engine zone: fused kernels in which nothing can hang are tried in this process, before one runs
// by default: a small product, compared bit by bit with that of dp4a.
#pragma once

#include <string_view>

#include "core/context_state.hpp"
#include "core/cuda/api.hpp"
#include "gemm/int8/cuda/fused/fused.hpp"
#include "gemm/int8/cuda/fused/groups/launch.hpp"

namespace switchback::products::cuda {

/// Whether a kernel may run by default in this Context: a record has `seen` it (empty: none has),
/// or it cannot hang and its trial was right. The variant is of a table that lives as long as the
/// process. The first call for a device, a variant and a type of output makes the trial, with both
/// kinds of scales, and waits for the stream: well below a millisecond if nothing else is queued
/// there. While the stream is being captured there is no trial, and the answer is no unless there
/// was one before. A wrong kernel is a warning to the ConfigSource. From any thread.
bool trusts(const ContextState& state, const FusedVariant& variant, std::string_view seen,
            DType output);
bool trusts(const ContextState& state, const GroupedFusedVariant& variant, std::string_view seen,
            DType output);

}  // namespace switchback::products::cuda
