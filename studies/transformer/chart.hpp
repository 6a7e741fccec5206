// SPDX-License-Identifier: Apache-2.0
// Bench: a picture of loss curves.
#pragma once

#include <string>
#include <vector>

#include "studies/transformer/training.hpp"

namespace switchback::bench::transformer {

/// Validation losses over steps as SVG: a colour for each mode, a line for each seed.
std::string loss_chart(const std::vector<LossCurve>& curves, const std::string& title);

}  // namespace switchback::bench::transformer
