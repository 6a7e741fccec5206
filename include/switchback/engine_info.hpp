// SPDX-License-Identifier: Apache-2.0
// Entry zone: the description of an engine, which is one implementation of an operation.
#pragma once

#include <string>

#include "switchback/language.hpp"

namespace switchback {

/// An engine, which is one implementation of an operation, and whether it can run on a Context.
struct EngineInfo {
  std::string name;        ///< selects this engine in members `engine` of arguments
  bool available = false;  ///< whether the engine can run on the Context
  std::string reason;      ///< why the engine cannot run; empty when available
};

}  // namespace switchback
