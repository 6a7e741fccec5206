// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: matrices whose rows are split into fragments, of which each row selects some.
// These are the operations between the products of a fragmented layer, for callers that have
// validated their arguments.
//
// x[B,K] has F fragments of K/F columns. The logit of fragment f is the inner product of x_f and
// the selector's row s_f. Sums are f32 sums of 32 lanes: element i is added to lane i mod 32, in
// order, and then the lanes are added by repeated halving. So every engine gives the same bits.
#pragma once

#include <cstdint>

#include "switchback/matrix.hpp"

namespace switchback {
struct ContextState;
}

namespace switchback::grouped {

struct Fragments {
  ConstAnyMatrix x;         ///< matrix [B,K]: f32, f16 or bf16
  ConstAnyMatrix selector;  ///< matrix [F,K/F], of the type of x

  [[nodiscard]] std::int64_t count() const noexcept { return selector.rows; }
  [[nodiscard]] std::int64_t each() const noexcept { return selector.cols; }
};

/// The fragment with the largest logit of each row, and the rows sorted by that fragment: groups as
/// in switchback/groups.hpp. Among equal logits the first fragment is taken; NaN is less than any
/// number.
struct FragmentOrder {
  std::int32_t* chosen = nullptr;  ///< [B]: fragment of each row
  std::int32_t* ends = nullptr;    ///< [F]: first slot after each fragment
  std::int32_t* index = nullptr;   ///< [B]: the row in each slot; the rows of a fragment ascend
  /// [B,2]: for each row its slot, and B plus the row. combine() adds these two rows of a result.
  std::int32_t* slots = nullptr;
};

/// Computes weights[B,F]: the softmax of each row's logits.
void weigh_fragments(ContextState& state, const Fragments& fragments, float* weights);
void choose_fragments(ContextState& state, const Fragments& fragments, const FragmentOrder& order);
/// Sets slots[rows,2], for each row, to the row and `rows` plus the row.
void pair_slots(ContextState& state, std::int64_t rows, std::int32_t* slots);

/// Computes selected = p·x and rest = (1 - p)·x, of the type of x, where p is a fragment's weight.
void split_softly(ContextState& state, ConstAnyMatrix x, std::int64_t fragments,
                  const float* weights, AnyMatrix selected, AnyMatrix rest);
/// Sets rest to x with zeros in the chosen fragment of each row.
void without_chosen(ContextState& state, ConstAnyMatrix x, std::int64_t fragments,
                    const std::int32_t* chosen, AnyMatrix rest);

/// The gradients of x and selector, propagated back through split_softly and weigh_fragments.
struct FragmentGradients {
  Fragments fragments;
  const float* weights = nullptr;     ///< [B,F]: result of weigh_fragments
  const float* d_selected = nullptr;  ///< [B,K]: gradient of `selected`
  const float* d_rest = nullptr;      ///< [B,K]: gradient of `rest`
  AnyMatrix dx;                       ///< result [B,K], or no data
  AnyMatrix d_selector;               ///< result [F,K/F], or no data
  bool accumulate = false;            ///< adds the gradient to d_selector
};
void fragment_gradients(ContextState& state, const FragmentGradients& args);

}  // namespace switchback::grouped
