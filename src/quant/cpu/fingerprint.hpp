// SPDX-License-Identifier: Apache-2.0
// Engine zone: the hash of fingerprint() with vectors and threads.
#pragma once

#include "core/context_state.hpp"
#include "quant/fingerprint.hpp"

namespace switchback::quant::cpu {

/// Computes the hash of x: the same value as hash::reference. x may be empty.
hash::Field fingerprint(ContextState& state, const hash::Key& key, ConstAnyMatrix x);

}  // namespace switchback::quant::cpu
