// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the record in a device's memory of the weight that codes were made from.
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

/// The records of the codes for the forward and of those for dX. Zeros: nothing is known.
struct WeightProof {
  unsigned long long sums[3];  ///< zeros except while a kernel adds to them
  unsigned tickets;
  unsigned changed;  ///< the last answer
  CodesProof of[2];
};

/// Queues a check whether w is the weight that all of these codes were made from (bit i:
/// proof->of[i]). Work that is queued later finds the answer in proof->changed. From then on the
/// stored fingerprints of these codes are those of w. For devices; w is not empty.
void ask_whether_changed(ContextState& state, ConstAnyMatrix w, WeightProof* proof, unsigned codes);

}  // namespace switchback::quant
