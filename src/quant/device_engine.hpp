// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the quantize engine of a kind of device other than the CPU.
#pragma once

#include "core/device_table.hpp"
#include "quant/config.hpp"
#include "quant/proof.hpp"

namespace switchback::quant {

struct DeviceEngine {
  /// Queues a quantize operation on the Context's stream. Sizes may be zero; nothing needs to be
  /// aligned.
  void (*run)(ContextState& state, const Problem& problem, const Config& config,
              const Request& request);
  /// Does what quant::ask_whether_changed() does, with this process's key as `seed`.
  void (*ask_whether_changed)(ContextState& state, ConstAnyMatrix w, const std::uint64_t (&seed)[2],
                              WeightProof* proof, unsigned codes);
};

/// The quantize engine of each kind of device; null for a kind that this build has no engine for,
/// and for the CPU, which has its own engine (quant/cpu/engine.hpp).
core::DeviceTable<const DeviceEngine*>& device_engines() noexcept;

namespace cuda {
/// Returns the CUDA engine, or null in a build without CUDA.
const DeviceEngine* engine() noexcept;
}  // namespace cuda

}  // namespace switchback::quant
