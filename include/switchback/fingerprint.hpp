// SPDX-License-Identifier: Apache-2.0
// Entry zone: a fingerprint of a matrix, to find out whether somebody else has changed it.
//
// A layer keeps int8 codes of a weight that it borrows, and has to be told of every change
// (SwitchbackLinear::weight_updated). If you cannot know of all changes, compare fingerprints:
// reading the weight costs a fraction of quantizing it.
#pragma once

#include <array>
#include <cstdint>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/matrix.hpp"

namespace switchback {

/// 127 bits of hash, in the order low, high.
using Fingerprint = std::array<std::uint64_t, 2>;

/// The fingerprint of x[rows,cols], of any dtype: of its shape, its dtype and the bits of its
/// elements. Strides, addresses and what lies between rows do not enter, nor do instruction set and
/// thread count. -0 and 0, and two NaNs with different payloads, are different elements.
///
/// Equal matrices have equal fingerprints. Two given matrices that differ have the same one with a
/// probability of at most 2^-95 (up to 1 TiB each, and 2^-76 up to 2^60 bytes), over the random key
/// that each process draws at its first call, whatever the matrices are. So fingerprints of one
/// process mean nothing in another; and they are not signatures: the key can be
/// learned from fingerprints.
///
/// On the CPU only: elsewhere it would have to wait for the stream, and throws
/// Error(Status::unsupported). Throws Error(Status::io_error) if the system has no random numbers.
SWITCHBACK_API Fingerprint fingerprint(Context& context, ConstAnyMatrix x);

}  // namespace switchback
