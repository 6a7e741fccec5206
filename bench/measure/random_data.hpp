// SPDX-License-Identifier: Apache-2.0
// Bench: seeded random operands, as the tuner makes them.
#pragma once

#include "autotune/random_data.hpp"

namespace switchback::bench {

using autotune::fill_codes;
using autotune::fill_normal;
using autotune::random_bits;

}  // namespace switchback::bench
