// SPDX-License-Identifier: Apache-2.0
// Core: the state of a Context: device, instruction set, threads, workspace, source of tuned
// configurations.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "core/config_source.hpp"
#include "core/cpu/isa.hpp"
#include "core/cpu/threads.hpp"
#include "core/device.hpp"
#include "core/device_kind.hpp"
#include "core/dry_run_lookups.hpp"
#include "core/workspace.hpp"

namespace switchback {

namespace core {
/// Whether an operation runs by itself, or in the first (dry run) or second (actual) run of
/// a sequence (core/dry_run.hpp).
enum class Stage { single, dry_run, run };
}  // namespace core

struct ContextState : std::enable_shared_from_this<ContextState> {
  ContextState(Device device_, core::CpuFeatures features_, int threads_,
               std::shared_ptr<core::DeviceRuntime> runtime_)
      : device(device_),
        features(features_),
        threads(threads_),
        runtime(std::move(runtime_)),
        workspace(runtime) {}
  ~ContextState() {
    if (runtime != nullptr) runtime->close();
  }
  ContextState(const ContextState&) = delete;
  ContextState& operator=(const ContextState&) = delete;

  [[nodiscard]] bool on_cpu() const noexcept { return device.kind == DeviceKind::cpu; }
  /// An empty buffer whose memory will come from this Context's device.
  [[nodiscard]] core::AlignedBuffer make_buffer() const { return core::AlignedBuffer(runtime); }

  /// Asks the ConfigSource for a tuned configuration. In the second run of a sequence, repeats the
  /// answer that the dry run got.
  bool find_config(const ConfigQuery& query, ConfigChoice& choice);
  /// Tells the ConfigSource that the last answer of find_config() cannot be used.
  void refuse_config(const ConfigQuery& query, const ConfigChoice& choice,
                     std::string_view reason) noexcept;

  Device device;
  core::CpuFeatures features;  ///< CPU features, limited by ContextOptions::isa
  core::Threads threads;
  std::shared_ptr<core::DeviceRuntime> runtime;  ///< null on the CPU; buffers share its ownership
  core::Workspace workspace;                     ///< scratch memory, on the device
  std::shared_ptr<const ConfigSource> config_source;
  core::Stage stage = core::Stage::single;
  core::DryRunLookups dry_run_lookups;
};

}  // namespace switchback
