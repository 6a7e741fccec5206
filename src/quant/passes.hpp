// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the operations that fulfil a request.
#pragma once

#include <vector>

#include "quant/ops.hpp"

namespace switchback::quant {

/// The number of results that a request wants.
int results_wanted(const Request& request) noexcept;
/// The number of wanted results of a request that an operation computes. It is 0 if the operation
/// does not fit the request: because it reads another source, or computes a result that is not
/// wanted.
int results_made(const OpParts& op, const Request& request) noexcept;

/// The operation that computes all wanted results of a request in one pass; null if there is none.
const OpParts* single_pass(const Request& request) noexcept;

/// Whether a request that takes several passes needs memory for v (quant/request.hpp). If v is not
/// x, all passes after the first read v: `value` must be given then.
bool lacks_value(const Request& request) noexcept;
/// Whether a request that takes several passes needs memory for rotate(v): if codes of rotate(v)
/// are wanted other than those of rows.
bool lacks_rotated(const Request& request) noexcept;
/// The operation that is the first pass of a request: the one that computes the most results.
const OpParts& first_pass(const Request& request) noexcept;
/// The part of the request that the operation computes (done_by), and the part that remains
/// (left_by).
Request done_by(const OpParts& op, Request request) noexcept;
Request left_by(const OpParts& op, Request request) noexcept;
/// Calls visit(op, part) for each pass of a request in order, where `part` is what the operation
/// `op` computes of it.
template <class Visit>
void for_each_pass(Request left, Visit visit) {
  while (results_wanted(left) > 0) {
    const OpParts& op = first_pass(left);
    visit(op.op, done_by(op, left));
    left = left_by(op, left);
  }
}

/// The operations that fulfil a request, in order. A tuner treats each of them as a separate
/// problem.
std::vector<Op> passes(Request request);

}  // namespace switchback::quant
