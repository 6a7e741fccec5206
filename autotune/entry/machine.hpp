// SPDX-License-Identifier: Apache-2.0
// Tuner: the properties of a machine, and the libraries, kernels and driver, that a measurement
// depends on.
#pragma once

#include <cstdint>
#include <string>

#include "autotune/store/entry.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

/// The properties of a machine that a measurement depends on. Which one of several equal devices
/// was used is not part of it.
struct Machine {
  std::string backend;  ///< "cpu", "cuda" or "emulated"
  // For a CPU: its design ("AMD family 26 model 2"), its highest instruction set, and the number of
  // cores that this process may use.
  std::string design;
  std::string isa;
  std::int64_t cores = 0;
  // The following members are for a CUDA device.
  std::int64_t compute_capability = 0;  ///< 90 means sm_90
  std::int64_t multiprocessors = 0;
  std::int64_t memory_gib = 0;  ///< rounded to a power of two, or 5/4 or 3/2 of one
  std::string mig;              ///< the profile of a MIG part of a device; empty: the whole device

  friend bool operator==(const Machine&, const Machine&) = default;
};
Machine machine_of(const ContextState& state);
/// The file name of a machine in a cache, without its extension: describe() reduced to letters,
/// digits, dots, hyphens and underscores.
std::string machine_name(const Machine& machine);
/// A machine as text: "cpu AMD family 26 model 2, avx512_vnni, 2 cores" or "cuda sm_90, 132
/// multiprocessors, 128 GiB".
std::string describe(const Machine& machine);
/// The kind of device that a machine's backend stands for.
DeviceKind device_kind_of(const Machine& machine) noexcept;

/// The versions of this build's libraries and kernels, the driver and the processor's name, as
/// Entry::env stores them.
Environment environment_of(const ContextState& state);

}  // namespace switchback::autotune

/// Formats a machine as describe() does.
template <>
struct fmt::formatter<switchback::autotune::Machine>
    : switchback::core::DescribedFormatter<switchback::autotune::Machine,
                                           switchback::autotune::describe> {};
