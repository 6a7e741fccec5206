// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what a device remembers in its memory of the weight that codes were made from.
#pragma once

#include <cstdint>

#include "switchback/matrix.hpp"

namespace switchback {
struct ContextState;
}

namespace switchback::quant {

/// The fingerprint of the weight that codes were made from.
struct CodesProof {
  unsigned long long sums[3];
  unsigned known;  ///< 0: none
  unsigned unused;
};

/// The fingerprints that belong to the codes for the forward (of[0]) and to those for dX (of[1]).
/// If all bytes are 0, nothing is known.
struct WeightProof {
  unsigned long long sums[3];  ///< zeros except while a kernel adds to them
  unsigned tickets;
  unsigned changed;  ///< the last answer: 0 if the weight is unchanged
  CodesProof of[2];
};

/// Queues a check whether w is the weight that codes were made from: the codes of proof->of[i] for
/// each bit i that is set in `codes`. Work that is queued later finds the answer in proof->changed.
/// From then on the stored fingerprints of these codes are those of w. For devices; w is not empty.
void ask_whether_changed(ContextState& state, ConstAnyMatrix w, WeightProof* proof, unsigned codes);

}  // namespace switchback::quant
