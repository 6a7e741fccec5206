// SPDX-License-Identifier: Apache-2.0
// Core: where the operations of a Context look up tuned configurations by themselves.
#pragma once

#include <memory>

#include "core/config_source.hpp"

namespace switchback::core {

/// The tuner that the environment describes (SWITCHBACK_TUNE and the variables related to it),
/// opened at the first look-up. Null: nothing is to be looked up. The tuner defines this function
/// (autotune/default_source.cpp), because it is above this layer.
std::shared_ptr<const ConfigSource> default_source();

}  // namespace switchback::core
