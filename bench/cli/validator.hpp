// SPDX-License-Identifier: Apache-2.0
// Bench: lets this program be the helper that validates candidates for its own tuner.
#pragma once

#include "autotune/validation/validator.hpp"

namespace switchback::bench {

autotune::ValidatorOptions this_program_as_validator();

}  // namespace switchback::bench
