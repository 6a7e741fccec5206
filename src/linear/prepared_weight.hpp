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

/// The prepared weight of one layer or several. Passes only read it. (Mode automatic packs in its
/// first forward, and so cannot share it.)
struct PreparedWeight {
  explicit PreparedWeight(const ContextState& state) : bias(state.make_buffer()) {}
  ~PreparedWeight() {
    if (!shared) return;
    codes.release_shared();
    bias.release_shared();
  }
  PreparedWeight(const PreparedWeight&) = delete;
  PreparedWeight& operator=(const PreparedWeight&) = delete;

  QuantizedWeight codes;                  ///< of the int8 modes: W's codes for X · Wᵀ
  floating::PackedStandardWeight packed;  ///< of mode standard: W packed, in host memory
  core::AlignedBuffer bias;               ///< a copy, so that the caller may free the bias
  std::atomic<bool> shared = false;       ///< whether another layer holds this, or has held it
};

}  // namespace switchback::linear
