// SPDX-License-Identifier: Apache-2.0
// Test support: the Contexts on which quantize operations are compared.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/context_state.hpp"
#include "quant/config.hpp"
#include "quant/cpu/targets.hpp"
#include "quant/outputs.hpp"
#include "support/contexts.hpp"
#include "support/refusal.hpp"
#include "switchback/error.hpp"

namespace switchback::test {

/// The types of elements that are quantized.
using FloatTypes = ::testing::Types<float, half, bfloat16>;

/// Numbers of rows and columns of a matrix.
struct Size {
  std::int64_t rows, cols;
};

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

/// The results of operations(context, outputs). The scales of an empty matrix are set by a memset,
/// not by a kernel, so the host waits for them.
template <class Operations>
Outputs results_of(Context& context, Layout layout, const Operations& operations) {
  Outputs out(layout);
  operations(context, out);
  context.synchronize();
  return out;
}

/// Expects that operations(context, outputs) has the same results in every Context as with the
/// reference engine. Returns them.
template <class Operations>
Outputs expect_bits_of_reference(const std::string& what, Layout layout,
                                 const Operations& operations) {
  Outputs want = results_of(reference(), layout, operations);
  expect_same(want, want);  // also of the reference, nothing is written around the results
  for (auto& [name, context] : contexts()) {
    SCOPED_TRACE(name + " " + what);
    expect_same(results_of(context, layout, operations), want);
    if (::testing::Test::HasFailure()) break;
  }
  return want;
}

/// A matrix as the messages of tests describe it.
template <class T>
std::string text_of(const Matrix<T>& x) {
  return std::string(dtype_name(dtype_of<T>)) + " [" + std::to_string(x.rows()) + "," +
         std::to_string(x.cols()) + "] stride " + std::to_string(x.stride());
}

/// Sets the configuration of all quantize operations in a Context.
inline void configure(Context& context, const quant::Config& config) {
  class Fixed : public ConfigSource {
   public:
    explicit Fixed(const ConfigChoice& choice) : choice_(choice) {}
    bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
      choice = choice_;
      return query.op == ConfigOp::quantize;
    }

   private:
    ConfigChoice choice_;
  };
  context.set_config_source(std::make_shared<Fixed>(quant::to_choice(config)));
}

}  // namespace switchback::test
