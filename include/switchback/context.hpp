// SPDX-License-Identifier: Apache-2.0
// Entry zone: the Context: one device, its threads or stream, and one workspace.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "switchback/export.h"

namespace switchback {

class ConfigSource;   // src/core/config_source.hpp; the tuner implements it
struct ContextState;  // src/core/context_state.hpp

/// What a Context is made of. The defaults take the best device there is, whole.
struct ContextOptions {
  /// "cpu", or empty for the best device of this machine.
  std::string device;
  /// CPU threads; 0 means every core this process may run on.
  int threads = 0;
  /// Upper bound on the instruction set used on a CPU, for tests and comparisons: "scalar", "sse4",
  /// "avx2", "avx_vnni", "avx512", "avx512_vnni", "amx", or empty for no bound. Codes and int32
  /// sums are the same at every level.
  std::string isa;
};

/// Everything an operation needs besides its operands. Move-only; used by one thread at a time.
/// Creating one starts nothing expensive; the first operations allocate the workspace, which grows
/// to the largest need and is then reused, so that a steady state allocates nothing.
class SWITCHBACK_API Context {
 public:
  explicit Context(const ContextOptions& options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// The device in the form its option takes: "cpu".
  [[nodiscard]] std::string device() const;
  [[nodiscard]] int threads() const noexcept;
  /// The instruction set in use, in the words of ContextOptions::isa.
  [[nodiscard]] std::string_view isa() const noexcept;
  /// Bytes the workspace holds now.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept;

  /// Where operations look up tuned configurations; null (the start) means the defaults.
  void set_config_source(std::shared_ptr<const ConfigSource> source) noexcept;

  /// The library's own view of the Context. Not part of the API.
  [[nodiscard]] ContextState& state() const noexcept { return *state_; }

 private:
  std::unique_ptr<ContextState> state_;
};

}  // namespace switchback
