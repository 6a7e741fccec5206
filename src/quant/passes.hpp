// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the operations that fulfil a request.
#pragma once

#include <vector>

#include "quant/ops.hpp"

namespace switchback::quant {

/// How many results are wanted.
int results_wanted(const Request& request) noexcept;
/// How many of them an operation computes; 0 if it does not fit the request, because it reads
/// something else or computes a result that is not wanted.
int results_made(const OpParts& op, const Request& request) noexcept;

/// The operation that computes all wanted results in one pass; null if there is none.
const OpParts* single_pass(const Request& request) noexcept;

/// A request in several passes. If v is not x, the passes need a place for v, which all but the
/// first of them read: `value` must be given then.
bool lacks_value(const Request& request) noexcept;
/// Likewise a place for rotate(v), if other codes of it are wanted than those of rows.
bool lacks_rotated(const Request& request) noexcept;
/// The first operation: the one that computes the most results.
const OpParts& first_pass(const Request& request) noexcept;
/// The part of the request that the operation computes, and the part that remains.
Request done_by(const OpParts& op, Request request) noexcept;
Request left_by(const OpParts& op, Request request) noexcept;
/// Calls visit(op, part of the request) for each pass, in order.
template <class Visit>
void for_each_pass(Request left, Visit visit) {
  while (results_wanted(left) > 0) {
    const OpParts& op = first_pass(left);
    visit(op.op, done_by(op, left));
    left = left_by(op, left);
  }
}

/// The operations that fulfil a request, in order. For a tuner each is a problem of its own.
std::vector<Op> passes(Request request);

}  // namespace switchback::quant
