// SPDX-License-Identifier: Apache-2.0
// Bench: who takes part in the races of `micro` (measure/rounds.hpp).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "measure/rounds.hpp"
#include "measure/statistics.hpp"
#include "switchback/context.hpp"
#include "switchback/engine_info.hpp"

namespace switchback::bench {

/// Rounds of a group of rivals that no deadline cuts: of fewer calls there is no spread to show.
inline constexpr int fewest_micro_rounds = 3;
/// Without those that refuse what they are called with, with Error(unsupported).
std::vector<measure::Rival> without_refusing(std::vector<measure::Rival> rivals);

/// Names of the available engines that are meant to be fast (not the reference).
std::vector<std::string> fast_engines(const std::vector<EngineInfo>& infos);
/// Those of the floating point products, without the ones that round the factors first: theirs is
/// another product.
std::vector<std::string> fast_floating_engines(const Context& context);

}  // namespace switchback::bench
