// SPDX-License-Identifier: Apache-2.0
// Core: the state of a Context: device, instruction set, threads, workspace, source of tuned
// configurations.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "core/config_source.hpp"
#include "core/cpu/isa.hpp"
#include "core/cpu/threads.hpp"
#include "core/device.hpp"
#include "core/device_kind.hpp"
#include "core/workspace.hpp"

namespace switchback {

namespace core {

/// The look-ups of tuned configurations that a dry run made (core/dry_run.hpp). The second run uses
/// the same answers, so that both runs take the same path with one look-up.
class DryRunLookups {
 public:
  void clear() noexcept { count_ = next_ = 0; }
  void add(const ConfigQuery& query, bool found, const ConfigChoice& choice) noexcept {
    if (count_ < most) answers_[count_++] = {query, choice, found};
  }
  /// Marks the answer that was added last as one that the operation cannot use.
  void refuse() noexcept {
    if (count_ > 0) answers_[count_ - 1].found = false;
  }
  /// Returns the next recorded answer, in the order of add(). Returns false if no answer is left,
  /// or if the next answer belongs to another query.
  bool next(const ConfigQuery& query, bool& found, ConfigChoice& choice) noexcept {
    if (next_ == count_ || answers_[next_].query != query) return false;
    const Answer& answer = answers_[next_++];
    found = answer.found;
    choice = answer.choice;
    return true;
  }

 private:
  struct Answer {
    ConfigQuery query;
    ConfigChoice choice;
    bool found = false;
  };
  // The most look-ups that are recorded. A backward makes five. Look-ups beyond this limit are made
  // again in the second run.
  static constexpr std::size_t most = 8;
  std::array<Answer, most> answers_;
  std::size_t count_ = 0;
  std::size_t next_ = 0;
};

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
