// SPDX-License-Identifier: Apache-2.0
// Test support: the Contexts on which quantize operations are compared.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/context_state.hpp"
#include "quant/cpu/targets.hpp"
#include "support/contexts.hpp"
#include "switchback/error.hpp"

namespace switchback::test {

/// Contexts for each instruction set that has its own kernels here, on one thread, and for the best
/// one on three: how work is divided among threads does not depend on the instruction set. Contexts
/// are kept, so that many shapes use the same workspaces one after the other.
inline std::vector<std::pair<std::string, Context>>& contexts() {
  static auto* const all = [] {
    auto* list = new std::vector<std::pair<std::string, Context>>;
    if (!on_cpu()) {
      list->emplace_back(device(), Context(device_options()));
      return list;
    }
    std::int64_t last = -1;
    for (const auto& options :
         under_thread_sanitizer ? std::vector<ContextOptions>() : isa_contexts()) {
      Context context(options);
      const std::int64_t targets = quant::cpu::allowed_targets(context.state().features);
      if (targets != last) list->emplace_back(describe(options), std::move(context));
      last = targets;
    }
    ContextOptions threads = cpu_options();
    threads.threads = 3;
    list->emplace_back(describe(threads), Context(threads));
    return list;
  }();
  return *all;
}

/// A Context that computes with the reference engine, on one thread.
inline Context& reference() {
  static Context context = [] {
    ContextOptions options = cpu_options();
    options.isa = "scalar";
    options.threads = 1;
    return Context(options);
  }();
  return context;
}

/// The message of the Error(invalid_argument) that a call throws; "accepted" if it does not.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    return error.what();
  }
  return "accepted";
}

}  // namespace switchback::test
