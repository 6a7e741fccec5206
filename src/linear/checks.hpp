// SPDX-License-Identifier: Apache-2.0
// Entry zone: the checks that all linear layers share. Every message begins with `op`.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/check.hpp"
#include "linear/layer_state.hpp"
#include "switchback/linear.hpp"

namespace switchback::linear {

void check_usable(std::string_view op, bool moved_from, bool context_is_gone);
void check_options(std::string_view op, const Context& context, const LinearOptions& options);
/// Checks an operand that must have the layer's own type.
void check_dtype(std::string_view op, std::string_view argument, DType dtype, DType layer);
/// Checks an output, or an input in mixed precision: its type is the layer's, or f32.
void check_output_dtype(std::string_view op, std::string_view argument, DType dtype, DType layer);
/// Checks an output of backward; it is skipped if its data is null.
void check_gradient(std::string_view op, std::string_view argument, AnyMatrix m, DType layer,
                    std::int64_t rows, std::string_view rows_name, std::int64_t cols,
                    std::string_view cols_name);

/// An output of backward as an operand for the checks of memory and overlap; empty if the output is
/// skipped.
inline core::Operand gradient_operand(std::string_view argument, const AnyMatrix& m) {
  return core::operand(argument, m.data != nullptr ? ConstAnyMatrix(m) : ConstAnyMatrix());
}

/// Returns the state of a layer. Throws Error if the layer was moved from, or if its Context was
/// destroyed.
template <class State>
State& usable(const std::unique_ptr<State>& state, std::string_view op) {
  check_usable(op, state == nullptr, state != nullptr && state->context_lives.expired());
  return *state;
}

void check_weight_is_set(std::string_view op, bool is_set);
/// Checks that `save` is a known value.
void check_save(std::string_view op, Save save);
/// Checks that `save` is Save::nothing if the layer is in eval.
void check_saves_in_training(std::string_view op, Save save, bool in_eval);
void check_trains(std::string_view op, bool in_eval);
/// Checks that there is a saved forward that backward can run on.
void check_saved(std::string_view op, SavedState saved);
/// If an earlier forward borrowed an x that `output` is about to overwrite, its saved forward is
/// dropped. This is not an error: the caller may be done with it, and the memory may have been
/// freed and allocated again since. If backward is called for that forward nevertheless, the call
/// is refused.
void forget_overwritten(SavedState& saved, ConstAnyMatrix x, ConstAnyMatrix output);

}  // namespace switchback::linear
