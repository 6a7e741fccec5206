// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: which operations make a request.
#pragma once

#include <vector>

#include "quant/ops.hpp"

namespace switchback::quant {

/// How many results are wanted.
int results_wanted(const Request& request) noexcept;
/// How many of them the operation makes; 0 if it is not for this request, because it reads
/// something else or makes what is not wanted.
int results_made(const OpParts& op, const Request& request) noexcept;

/// The operation that makes all that is wanted in one pass; null if there is none.
const OpParts* single_pass(const Request& request) noexcept;

/// A request for several passes. Where v is not x they need a place for v, from which all but the
/// first read it: `value` must be given then.
bool lacks_value(const Request& request) noexcept;
/// The operation to begin with: the one that makes most.
const OpParts& first_pass(const Request& request) noexcept;
/// What the operation makes of the request, and what is left to make when it has.
Request done_by(const OpParts& op, Request request) noexcept;
Request left_by(const OpParts& op, Request request) noexcept;

/// The operations that make a request, in their order. Each is a problem of its own to a tuner.
std::vector<Op> passes(Request request);

}  // namespace switchback::quant
