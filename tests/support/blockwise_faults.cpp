// SPDX-License-Identifier: Apache-2.0
// Test support: plants faults in the blockwise products (int8 dW) of the emulated device, for tests
// of the code that must find them.
#include <cstdlib>
#include <optional>
#include <vector>

#include "gemm/cuda/engines.hpp"
#include "support/device_memory.hpp"

namespace switchback::test {

namespace {

using blockwise::BlockwiseConfig;
using blockwise::BlockwiseOperands;
using blockwise::BlockwiseProblem;
using blockwise::Engine;

void (*right)(ContextState&, const BlockwiseProblem&, const BlockwiseConfig&,
              const BlockwiseOperands&) = nullptr;

void crash(ContextState&, const BlockwiseProblem&, const BlockwiseConfig&,
           const BlockwiseOperands&) {
  std::abort();
}

// A faulty engine: computes the product, then sets the last element of d to zero. Random operands
// do not give a zero.
void run_wrong(ContextState& state, const BlockwiseProblem& p, const BlockwiseConfig& config,
               const BlockwiseOperands& o) {
  right(state, p, config, o);
  if (state.runtime->is_dry_run()) return;
  const std::size_t element = dtype_size_bytes(p.output);
  const auto last = static_cast<std::size_t>((p.n - 1) * p.stride_d + p.k - 1);
  state.runtime->fill(static_cast<std::byte*>(o.d) + last * element, 0, element);
}

// Installs copies of the backend's engines with one change. Either the named engine has a fault,
// and no committed record of right results; or `seen` says whether all engines have such a record.
void change_blockwise_products(Fault how, std::string_view engine,
                               std::optional<bool> seen) noexcept {
  static std::vector<Engine> engines;
  static std::vector<const Engine*> table;
  engines.clear();
  table.clear();
  for (const Engine* each : blockwise::cuda::engines()) {
    Engine& copy = engines.emplace_back(*each);
    const bool is_broken = how != Fault::none && each->name == engine;
    if (is_broken) copy.seen = {};
    if (seen.has_value()) copy.seen = *seen ? "a record" : "";
    if (!is_broken) continue;
    right = each->run;
    copy.run = how == Fault::crash ? crash : run_wrong;
  }
  for (const Engine& each : engines)
    table.push_back(&each);
  blockwise::engine_table().install(DeviceKind::emulated, table);
}

}  // namespace

void break_blockwise_products(Fault how, std::string_view engine) noexcept {
  change_blockwise_products(how, engine, std::nullopt);
}

void mark_blockwise_products(bool seen) noexcept {
  change_blockwise_products(Fault::none, {}, seen);
}

}  // namespace switchback::test
