// SPDX-License-Identifier: Apache-2.0
#include "quant/passes.hpp"

#include <cstddef>

#include "core/assert.hpp"

namespace switchback::quant {

namespace {

bool wants_sums(const Request& r) noexcept {
  return !r.column_sums.empty();
}

// 1 for a result that is wanted and computed, 0 for a result that is not computed, and `misfit` for
// a result that is computed without being wanted.
constexpr int misfit = -8;
int made(Makes makes, bool wanted) noexcept {
  if (makes == Makes::no) return 0;
  return wanted ? 1 : makes == Makes::yes ? misfit : 0;
}
int made(Scales makes, Scales wanted) noexcept {
  if (makes == Scales::none) return 0;
  return makes == wanted ? 1 : misfit;
}

}  // namespace

int results_made(const OpParts& op, const Request& r) noexcept {
  if (op.source != source_of(r)) return 0;
  // The operation that quantizes a gradient requires g to have the type of x.
  if (op.source == Source::gradient && op.q != Scales::none && r.g.dtype != r.x.dtype) return 0;
  const bool codes = op.q != Scales::none || op.q_t != Scales::none;
  if (codes && op.rotates != (r.rotation != Rotation::none)) return 0;
  if (codes && op.stochastic != r.stochastic.has_value()) return 0;
  const Makes scaled = r.column_scales.empty() ? Makes::no : Makes::yes;
  if (op.q != Scales::none && op.scaled != scaled && op.scaled != Makes::if_wanted) return 0;
  const int count = made(op.q, r.q.scales) + made(op.q_t, r.q_t.scales) +
                    made(op.sums, wants_sums(r)) + made(op.value, is_given(r.value)) +
                    made(op.rotated, is_given(r.rotated));
  return count < 0 ? 0 : count;
}

int results_wanted(const Request& r) noexcept {
  return (r.q.scales != Scales::none ? 1 : 0) + (r.q_t.scales != Scales::none ? 1 : 0) +
         (wants_sums(r) ? 1 : 0) + (is_given(r.value) ? 1 : 0) + (is_given(r.rotated) ? 1 : 0);
}

const OpParts* single_pass(const Request& r) noexcept {
  const int wanted = results_wanted(r);
  for (const OpParts& op : all_ops)
    if (results_made(op, r) == wanted) return &op;
  return nullptr;
}

bool lacks_value(const Request& r) noexcept {
  return source_of(r) != Source::floats && !is_given(r.value);
}

bool lacks_rotated(const Request& r) noexcept {
  const bool others =
      r.q_t.scales != Scales::none || (r.q.scales != Scales::none && r.q.scales != Scales::per_row);
  return r.rotation != Rotation::none && others && !is_given(r.rotated);
}

const OpParts& first_pass(const Request& r) noexcept {
  const bool has_v = source_of(r) == Source::floats;
  const OpParts* best = nullptr;
  int most = 0;
  for (const OpParts& op : all_ops) {
    const int count = results_made(op, r);
    if (count <= most || (!has_v && op.value == Makes::no)) continue;
    best = &op;
    most = count;
  }
  SWITCHBACK_ASSERT(best != nullptr);
  return *best;
}

Request done_by(const OpParts& op, Request r) noexcept {
  if (op.q == Scales::none) {
    r.q = {};
    r.column_scales = {};
  }
  if (op.q_t == Scales::none) r.q_t = {};
  if (op.sums == Makes::no) r.column_sums = {};
  if (op.value == Makes::no) r.value = {};
  if (op.rotated == Makes::no) r.rotated = {};
  if (op.rotated == Makes::no && !op.rotates) r.rotation = Rotation::none;
  return r;
}

Request left_by(const OpParts& op, Request r) noexcept {
  if (op.q != Scales::none) {
    r.q = {};
    r.column_scales = {};
  }
  if (op.q_t != Scales::none) r.q_t = {};
  if (op.sums != Makes::no) r.column_sums = {};
  if (op.value != Makes::no) {
    r.x = r.value;
    r.g = {};
    r.activation = Activation::none;
    r.absmax_x = {};
    r.value = {};
  }
  // Only codes are left: a rotation comes after the operations that compute any other result.
  if (op.rotated != Makes::no) {
    r.x = r.rotated;
    r.rotation = Rotation::none;
    r.rotated = {};
  }
  return r;
}

std::vector<Op> passes(Request request) {
  if (results_wanted(request) == 0) return {};
  if (const OpParts* op = single_pass(request)) return {op->op};
  std::byte anywhere{};
  if (lacks_value(request)) request.value.data = &anywhere;
  if (lacks_rotated(request)) request.rotated.data = &anywhere;
  std::vector<Op> ops;
  for_each_pass(request, [&](Op op, const Request&) { ops.push_back(op); });
  return ops;
}

}  // namespace switchback::quant
