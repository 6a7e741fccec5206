// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the parts of its weight that a layer prepared for eval keeps. Several layers may
// hold them, each on a Context that another thread uses.
#pragma once

#include <atomic>

#include "core/aligned_buffer.hpp"
#include "core/context_state.hpp"
#include "gemm/floating/packed.hpp"
#include "linear/weight_cache.hpp"

namespace switchback::linear {

/// Passes only read it. (Mode automatic packs in its first forward, and so cannot be shared.)
struct PreparedWeight {
  explicit PreparedWeight(const ContextState& state) : bias(state.make_buffer()) {}
  ~PreparedWeight() {
    if (!shared) return;
    codes.release_shared();
    bias.release_shared();
  }
  PreparedWeight(const PreparedWeight&) = delete;
  PreparedWeight& operator=(const PreparedWeight&) = delete;

  QuantizedWeight codes;                  ///< for X · Wᵀ, of the int8 modes
  floating::PackedStandardWeight packed;  ///< of mode standard; memory of the host
  core::AlignedBuffer bias;               ///< a copy, so that the caller may free the bias
  std::atomic<bool> shared = false;       ///< another layer holds it, or has held it
};

}  // namespace switchback::linear
