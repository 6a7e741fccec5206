// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the quantize engine of a kind of device other than the CPU.
#pragma once

#include "core/device_table.hpp"
#include "quant/config.hpp"
#include "quant/proof.hpp"

namespace switchback::quant {

struct DeviceEngine {
  /// Queues the operation on the Context's stream. Sizes may be zero; nothing needs to be aligned.
  void (*run)(ContextState& state, const Problem& problem, const Config& config,
              const Request& request);
  /// ask_whether_changed() with this process's key.
  void (*ask_whether_changed)(ContextState& state, ConstAnyMatrix w, const std::uint64_t (&seed)[2],
                              WeightProof* proof, unsigned codes);
};

/// The engine of each kind; null for a kind that this build has no engine for, and for the CPU,
/// which has its own engine (quant/cpu/engine.hpp).
core::DeviceTable<const DeviceEngine*>& device_engines() noexcept;

}  // namespace switchback::quant
