// SPDX-License-Identifier: Apache-2.0
// Bench: this program as the helper that proves candidates for its own tuner.
#pragma once

#include "autotune/proof/prover.hpp"

namespace switchback::bench {

autotune::ProverOptions this_program_as_prover();

}  // namespace switchback::bench
