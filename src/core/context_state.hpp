// SPDX-License-Identifier: Apache-2.0
// Core: what a Context is inside: device, instruction set, threads, workspace, tuned
// configurations.
#pragma once

#include <memory>
#include <string>

#include "core/config_source.hpp"
#include "core/cpu/isa.hpp"
#include "core/cpu/threads.hpp"
#include "core/workspace.hpp"

namespace switchback {

class Context;

enum class DeviceKind { cpu };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
};

/// Parses "cpu", "cuda", "cuda:N"; empty is the best device. Throws Error(invalid_argument) for a
/// name that is none and Error(device_error) for a device this build or machine does not have.
Device parse_device(const std::string& name);
std::string device_name(Device device);

struct ContextState {
  ContextState(Device device_, core::CpuFeatures features_, int threads_)
      : device(device_), features(features_), threads(threads_) {}

  Device device;
  core::CpuFeatures features;  ///< of the CPU, after the cap of ContextOptions::isa
  core::Threads threads;
  core::Workspace workspace;
  /// The Context that holds this now; objects that outlive a move of it keep the state instead.
  Context* owner = nullptr;
  std::shared_ptr<const ConfigSource> config_source;
};

}  // namespace switchback
