// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the quantize engine of a kind of device beside the CPU.
#pragma once

#include "quant/config.hpp"

namespace switchback::quant {

struct DeviceEngine {
  /// Queues the operation on the Context's stream. Sizes may be zero; nothing needs to be aligned.
  void (*run)(ContextState& state, const Problem& problem, const Config& config,
              const Operands& operands);
};

/// The engine of a kind, or null if this build has none.
const DeviceEngine* device_engine(DeviceKind kind) noexcept;
/// Makes the engine of a kind of device known; tests do it for the emulated one.
void install_device_engine(DeviceKind kind, const DeviceEngine* engine) noexcept;

}  // namespace switchback::quant
