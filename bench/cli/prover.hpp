// SPDX-License-Identifier: Apache-2.0
// Bench: lets this program be the helper that validates candidates for its own tuner.
#pragma once

#include "autotune/proof/prover.hpp"

namespace switchback::bench {

autotune::ProverOptions this_program_as_prover();

}  // namespace switchback::bench
