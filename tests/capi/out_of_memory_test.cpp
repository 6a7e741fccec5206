// SPDX-License-Identifier: Apache-2.0
// Makes the allocations of oneDNN fail one after the other while a backward runs. Failures of the
// library's own allocations are in out_of_memory_functions_test.cpp.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "capi/failing_allocations.hpp"
#include "switchback/switchback.h"

namespace switchback {
namespace {

template <class T>
switchback_matrix matrix(std::vector<T>& data, std::int32_t dtype, std::int64_t m, std::int64_t n) {
  data.assign(static_cast<std::size_t>(m * n), T(1));
  return {data.data(), dtype, m, n, n};
}

// Products of oneDNN allocate while they compute, when dx may already have been written. The
// operands are small integers, whose sums are the same in any order.
TEST(OutOfMemory, OfOneDnnInABackwardLeavesTheRightGradients) {
  if (!test::has_shared_onednn()) GTEST_SKIP() << "needs a shared oneDNN";
  constexpr std::int64_t batch = 130, inputs = 400, outputs = 270;
  const auto integers = [](std::vector<float>& data, std::int64_t m, std::int64_t n, int seed) {
    const switchback_matrix made = matrix(data, SWITCHBACK_F32, m, n);
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(seed)) % 11) - 5.0f;
    return made;
  };
  for (const std::int32_t mode : {SWITCHBACK_STANDARD, SWITCHBACK_ROWWISE})
    for (const auto& [threads, accumulate] : {std::pair{1, 0}, {1, 1}, {2, 0}, {2, 1}}) {
      SCOPED_TRACE(testing::Message()
                   << "mode " << mode << ", " << threads << " threads, accumulate " << accumulate);
      switchback_context_options context_options = {};
      context_options.struct_size = sizeof(context_options);
      context_options.device = "cpu";
      context_options.threads = threads;
      switchback_context* context = nullptr;
      ASSERT_EQ(switchback_context_create(&context_options, &context), SWITCHBACK_OK);
      switchback_linear_options options = {};
      options.struct_size = sizeof(options);
      options.in_features = inputs;
      options.out_features = outputs;
      options.mode = mode;
      options.engine = mode == SWITCHBACK_STANDARD ? "onednn_sgemm" : "onednn";
      switchback_linear* layer = nullptr;
      const switchback_status created = switchback_linear_create(context, &options, &layer);
      if (mode == SWITCHBACK_ROWWISE && created == SWITCHBACK_UNSUPPORTED) {
        EXPECT_NE(std::string(switchback_last_error()).find("the CPU has no AVX-512 VNNI"),
                  std::string::npos)
            << switchback_last_error();
        switchback_context_destroy(context);
        continue;
      }
      ASSERT_EQ(created, SWITCHBACK_OK) << switchback_last_error();
      std::vector<float> x, w, g, y, dx, dw, db;
      const auto mx = integers(x, batch, inputs, 1);
      const auto mw = integers(w, outputs, inputs, 2);
      const auto my = matrix(y, SWITCHBACK_F32, batch, outputs);
      ASSERT_EQ(switchback_linear_set_weight(layer, &mw, nullptr), SWITCHBACK_OK);
      ASSERT_EQ(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, nullptr),
                SWITCHBACK_OK);
      const auto backward = [&, adds = accumulate] {
        switchback_linear_grads grads = {};
        grads.struct_size = sizeof(grads);
        grads.accumulate = adds;
        grads.g = integers(g, batch, outputs, 3);
        grads.dx = integers(dx, batch, inputs, 4);
        grads.dw = integers(dw, outputs, inputs, 5);
        grads.db = integers(db, 1, outputs, 6);
        return grads;
      };
      const switchback_linear_grads undisturbed = backward();
      ASSERT_EQ(switchback_linear_backward(layer, &undisturbed, nullptr), SWITCHBACK_OK);
      const std::vector<float> want_dx = dx, want_dw = dw, want_db = db;
      int refusals = 0;
      for (long allowed = 0;; ++allowed) {
        ASSERT_LT(allowed, 100) << "it never succeeds";
        const switchback_linear_grads grads = backward();
        test::refuse_allocations_of_onednn(allowed);
        const switchback_status status = switchback_linear_backward(layer, &grads, nullptr);
        const bool refused = test::stop_refusing_onednn();
        EXPECT_EQ(status, SWITCHBACK_OK) << switchback_last_error();
        EXPECT_TRUE(dx == want_dx && dw == want_dw && db == want_db) << allowed << " allocations";
        if (!refused) break;
        ++refusals;
      }
      EXPECT_GT(refusals, 0) << "oneDNN took no memory that could be refused";
      switchback_linear_destroy(layer);
      switchback_context_destroy(context);
    }
}

}  // namespace
}  // namespace switchback
