// SPDX-License-Identifier: Apache-2.0
// Core: the source of tuned configurations that every new Context has.
#pragma once

#include <memory>

#include "core/config_source.hpp"

namespace switchback::core {

/// The tuner that the environment describes (SWITCHBACK_TUNE and the variables related to it),
/// opened at the first look-up. Null if the environment turns look-ups off. The tuner defines this
/// function (autotune/default_source.cpp), because the tuner is in a layer above core.
std::shared_ptr<const ConfigSource> default_source();

}  // namespace switchback::core
