// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: in a device's memory, what proves that codes are those of the present weight.
#pragma once

#include <cstdint>

#include "switchback/matrix.hpp"

namespace switchback {
struct ContextState;
}

namespace switchback::quant {

/// The fingerprint of the weight that codes were made of.
struct CodesProof {
  unsigned long long sums[3];
  unsigned known;  ///< 0: none
  unsigned unused;
};

/// Of the codes for the forward and of those for dX. Zeros: nothing is known.
struct WeightProof {
  unsigned long long sums[3];  ///< zeros except while a kernel adds to them
  unsigned tickets;
  unsigned changed;  ///< the last answer
  CodesProof of[2];
};

/// Queues the question whether w is the weight that all of these codes were made of (bit i:
/// proof->of[i]). The answer is in proof->changed for what is queued later, and the fingerprints of
/// these codes are w's from then on. For devices; w is not empty.
void ask_whether_changed(ContextState& state, ConstAnyMatrix w, WeightProof* proof, unsigned codes);

}  // namespace switchback::quant
