// SPDX-License-Identifier: Apache-2.0
// Core: where the operations of a Context look up tuned configurations by themselves.
#pragma once

#include <memory>

#include "core/config_source.hpp"

namespace switchback::core {

/// The tuner that the environment describes (SWITCHBACK_TUNE and its kin), opened at the first
/// look-up. Null: nothing is to be looked up. Defined by the tuner (autotune/usual_source.cpp),
/// which is above this layer.
std::shared_ptr<const ConfigSource> usual_source();

}  // namespace switchback::core
