// SPDX-License-Identifier: Apache-2.0
// Test support: a test of the fused engine on each generation of GPUs that has kernels.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "support/contexts.hpp"
#include "support/device_memory.hpp"
#include "switchback/gemm.hpp"

namespace switchback::test {

/// The parameter is the compute capability of a generation. The emulated device uses it; a GPU uses
/// its own.
class FusedTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "the fused engine is for devices";
    if (!on_emulated() && GetParam() != 90)
      GTEST_SKIP() << "only the emulated device can change its generation";
    show_fused_products(true);
    if (on_emulated()) emulate_compute_capability(GetParam());
    context_.emplace(device_options());
    for (const EngineInfo& engine : gemm_engines(*context_))
      if (engine.name == "fused" && !engine.available) GTEST_SKIP() << engine.reason;
  }
  void TearDown() override {
    context_.reset();
    show_fused_products(false);
    if (on_emulated()) emulate_compute_capability(90);
  }
  Context& context() { return *context_; }

 private:
  std::optional<Context> context_;
};

/// The stand-in for the kernels is the same for all generations, so a build with a sanitizer runs
/// it for one.
inline std::vector<int> generations(std::vector<int> all) {
  return sanitized ? std::vector{90} : all;
}

}  // namespace switchback::test
