// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the state of a SwitchbackLinear.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/aligned_buffer.hpp"
#include "core/context_state.hpp"
#include "gemm/floating/packed.hpp"
#include "linear/layer_state.hpp"
#include "linear/slots.hpp"
#include "linear/weight_cache.hpp"
#include "switchback/linear.hpp"

namespace switchback {

namespace linear {

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

/// What the last forward that saved keeps for backward. For dw in floating point: x and
/// activation(x), or the codes and row scales of activation(x). For dw in int8: blockwise codes of
/// activation(x), and x if there is an activation. With groups, every matrix except a borrowed x
/// has one row per slot. The buffers only grow.
struct SavedForward {
  explicit SavedForward(const ContextState& context)
      : copy(context.make_buffer()),
        codes(context.make_buffer()),
        absmax(context.make_buffer()),
        activation_of_x(context.make_buffer()),
        numbers(context.make_buffer()) {}

  SavedState state = SavedState::none;
  std::int64_t rows = 0;       ///< of y
  std::optional<Slots> slots;  ///< the groups of the rows of `input`; empty without groups
  KeptInput input;             ///< x or its codes, in the caller's memory or in the buffers below
  KeptInput for_dw;            ///< what dw reads, unless that is `input`
  core::AlignedBuffer copy;    ///< copy of x[M,K] in the layer's dtype
  core::AlignedBuffer codes;   ///< codes of x: rowwise [M,K], or blockwise [K,Mp]
  core::AlignedBuffer absmax;  ///< scales of `codes`: [M], or blockwise [B,K]
  /// activation(x), [M,K] in the layer's dtype, which dw reads: for a layer with an activation that
  /// saves x.
  core::AlignedBuffer activation_of_x;
  core::AlignedBuffer numbers;   ///< copy of the groups' array `ends` or `used`
  std::size_t needed_bytes = 0;  ///< bytes kept for backward, including memory of the caller

  void release() noexcept {
    state = SavedState::none;
    slots.reset();
    input = {};
    for_dw = {};
    copy.release();
    codes.release();
    absmax.release();
    activation_of_x.release();
    numbers.release();
    needed_bytes = 0;
  }
};

}  // namespace linear

struct LinearState : linear::LayerState<LinearOptions> {
  LinearState(ContextState& context_, const LinearOptions& options_)
      : LayerState(context_, options_),
        cache(options_.groups, options_.rotation, options_.transposed_weight),
        saved(context_) {}

  ConstAnyMatrix weight;
  ConstAnyMatrix caller_bias;
  ConstAnyMatrix bias;  ///< the bias in use: the caller's, or the copy in `prepared`
  enum class WeightSource {
    none,
    caller,  ///< from set_weight: `weight` is the caller's matrix
    codes,   ///< from set_quantized_weight: only `prepared` has the weight
  };
  WeightSource weight_source = WeightSource::none;
  enum class Phase {
    training,
    eval,         ///< after prepare_for_eval or set_quantized_weight
    eval_packed,  ///< like eval, and the weight is packed for products of mode standard
  };
  Phase phase = Phase::training;
  std::shared_ptr<linear::PreparedWeight> prepared;  ///< in eval
  /// The weight's codes for the int8 modes. In eval this cache holds only the codes for dX, except
  /// in mode automatic, where it holds all codes.
  linear::WeightCache cache;
  linear::SavedForward saved;

  [[nodiscard]] bool in_eval() const noexcept { return phase != Phase::training; }
  /// The weight's codes for the forward product X · Wᵀ, whether they are valid or not.
  [[nodiscard]] const linear::QuantizedWeight& forward_codes() const noexcept {
    return in_eval() && is_int8() ? prepared->codes : cache.forward_codes();
  }
  [[nodiscard]] std::size_t cached_weight_bytes() const noexcept {
    std::size_t bytes = cache.bytes();
    if (prepared != nullptr) bytes += prepared->codes.bytes() + prepared->packed.bytes();
    return bytes;
  }
};

}  // namespace switchback
