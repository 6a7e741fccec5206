// SPDX-License-Identifier: Apache-2.0
// Engine zone: tries fused kernels in this process, if nothing in them can hang, before one runs
// by default. The trial is a small product, compared bit by bit with the result of dp4a.
#pragma once

#include <string_view>

#include "core/context_state.hpp"
#include "core/cuda/api.hpp"
#include "gemm/int8/cuda/fused/fused.hpp"
#include "gemm/int8/cuda/fused/groups/launch.hpp"

namespace switchback::products::cuda {

/// Whether a kernel may run by default in this Context. It may if a record has `seen` it (empty: no
/// record has), or if it cannot hang and its trial was right. The table that holds the variant must
/// live as long as the process.
///
/// The first call for a device, a variant and a type of output makes the trial, with both kinds of
/// scales, and waits for the stream. That takes well below a millisecond if nothing else is queued
/// there. While the stream is being captured no trial is made, and the answer is false unless the
/// trial was made before. A wrong kernel is reported to the ConfigSource as a warning. May be
/// called from any thread.
bool trusts(const ContextState& state, const FusedVariant& variant, std::string_view seen,
            DType output);
bool trusts(const ContextState& state, const GroupedFusedVariant& variant, std::string_view seen,
            DType output);

}  // namespace switchback::products::cuda
