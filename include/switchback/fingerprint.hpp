// SPDX-License-Identifier: Apache-2.0
// Entry zone: the fingerprint of a matrix, which tells whether other code has changed it.
//
// A layer keeps int8 codes of a weight that it borrows, and must be told of every change
// (SwitchbackLinear::weight_updated). A program that cannot know of every change can compare
// fingerprints: reading the weight costs a fraction of quantizing it.
#pragma once

#include <array>
#include <cstdint>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/matrix.hpp"

namespace switchback {

/// A hash of 127 bits: first the low 64 bits, then the high ones.
using Fingerprint = std::array<std::uint64_t, 2>;

/// The fingerprint of x[rows,cols], of any dtype. It depends on the shape, the dtype and the bits
/// of the elements, and not on stride, address, the memory between rows, instruction set or thread
/// count. -0 and 0 are different elements, and so are two NaNs with different payloads.
///
/// Equal matrices have equal fingerprints. Two given matrices that differ have equal fingerprints
/// with a probability of at most 2^-95 (up to 1 TiB each; 2^-76 up to 2^60 bytes), whatever the
/// matrices are. The probability is over a random key that each process draws at its first call,
/// so a fingerprint means nothing in another process. Fingerprints are not signatures: the key can
/// be learned from them.
///
/// CPU only: on a CUDA device it would have to wait for the stream, so it throws
/// Error(Status::unsupported). Throws Error(Status::io_error) if the system has no random numbers.
SWITCHBACK_API Fingerprint fingerprint(Context& context, ConstAnyMatrix x);

}  // namespace switchback
