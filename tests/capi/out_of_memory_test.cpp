// SPDX-License-Identifier: Apache-2.0
// Makes the allocations of oneDNN fail one after the other while a backward runs. Failures of the
// library's own allocations are in out_of_memory_functions_test.cpp.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "capi/calls.hpp"
#include "capi/failing_allocations.hpp"

namespace switchback::test {
namespace {

class OfOneDnn : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

// Products of oneDNN allocate while they compute, when dx may already have been written.
TEST_P(OfOneDnn, InABackwardLeavesTheRightGradients) {
  if (!has_shared_onednn()) GTEST_SKIP() << "needs a shared oneDNN";
  constexpr std::int64_t batch = 130, inputs = 400, outputs = 270;
  const auto [mode, threads, accumulate] = GetParam();
  World w(threads);
  auto options = sized<switchback_linear_options>();
  options.in_features = inputs;
  options.out_features = outputs;
  options.mode = mode;
  options.engine = mode == SWITCHBACK_STANDARD ? "onednn_sgemm" : "onednn";
  const switchback_status created = switchback_linear_create(w.context, &options, &w.layer);
  if (mode == SWITCHBACK_ROWWISE && created == SWITCHBACK_UNSUPPORTED) {
    const std::string error = switchback_last_error();
    EXPECT_NE(error.find("the CPU has no AVX-512 VNNI"), std::string::npos) << error;
    return;
  }
  ASSERT_EQ(created, SWITCHBACK_OK) << switchback_last_error();
  const auto x = w.input(SWITCHBACK_F32, batch, inputs);
  const auto weight = w.input(SWITCHBACK_F32, outputs, inputs);
  const auto y = w.input(SWITCHBACK_F32, batch, outputs);
  auto grads = sized<switchback_linear_grads>();
  grads.accumulate = accumulate;
  grads.g = w.input(SWITCHBACK_F32, batch, outputs);
  grads.dx = w.output(SWITCHBACK_F32, batch, inputs);
  grads.dw = w.output(SWITCHBACK_F32, outputs, inputs);
  grads.db = w.output(SWITCHBACK_F32, 1, outputs);
  for (const auto& operand : {x, weight, grads.g})
    World::fill_with_integers(operand);
  expect_ok(switchback_linear_set_weight(w.layer, &weight, nullptr));
  expect_ok(switchback_linear_forward(w.layer, &x, &y, SWITCHBACK_SAVE_COPY, nullptr));
  const auto backward = [&] {
    for (const auto& gradient : {grads.dx, grads.dw, grads.db})
      World::fill_with_integers(gradient);
    return switchback_linear_backward(w.layer, &grads, nullptr);
  };
  expect_ok(backward());
  const Bytes want = w.written();
  long allowed = 0;
  for (;; ++allowed) {
    ASSERT_LT(allowed, 100) << "it never succeeds";
    refuse_allocations_of_onednn(allowed);
    const switchback_status status = backward();
    const bool refused = stop_refusing_onednn();
    EXPECT_EQ(status, SWITCHBACK_OK) << switchback_last_error();
    EXPECT_TRUE(w.written() == want) << allowed << " allocations";
    if (!refused) break;
  }
  EXPECT_GT(allowed, 0) << "oneDNN took no memory that could be refused";
}

INSTANTIATE_TEST_SUITE_P(OutOfMemory, OfOneDnn,
                         ::testing::Combine(::testing::Values(SWITCHBACK_STANDARD,
                                                              SWITCHBACK_ROWWISE),
                                            ::testing::Values(1, 2), ::testing::Values(0, 1)));

}  // namespace
}  // namespace switchback::test
