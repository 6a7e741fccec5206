// SPDX-License-Identifier: Apache-2.0
// Bench: lets this program serve as the helper process that checks candidate configurations for its
// own tuner.
#pragma once

#include "autotune/validation/validator.hpp"

namespace switchback::bench {

autotune::ValidatorOptions this_program_as_validator();

}  // namespace switchback::bench
