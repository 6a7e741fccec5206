// SPDX-License-Identifier: Apache-2.0
// Every allocation of the C ABI's calls, made to fail one after the other: each failure is reported
// as out_of_memory, leaves outputs and objects as they were, and nothing crashes or leaks. These
// are sequences of calls on one object; each function on its own is in
// out_of_memory_functions_test.cpp.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "capi/failing_allocations.hpp"
#include "switchback/switchback.h"

namespace switchback {
namespace {

// Calls `call` with the first, second, ... allocation failing until it needs no more than allowed.
// `check_failure` looks at the outputs after each failure. Returns how many allocations failed.
long sweep(const std::function<switchback_status()>& call,
           const std::function<void()>& check_failure) {
  for (long allowed = 0; allowed < 2000; ++allowed) {
    test::refuse_allocations(allowed, test::Refuse::from_then);
    const switchback_status status = call();
    if (!test::stop_refusing()) {
      EXPECT_EQ(status, SWITCHBACK_OK) << switchback_last_error();
      return allowed;
    }
    // Doing without what could not be had is fine too.
    if (status == SWITCHBACK_OK) continue;
    EXPECT_EQ(status, SWITCHBACK_OUT_OF_MEMORY)
        << "allocation " << allowed << ": " << switchback_last_error();
    EXPECT_STRNE(switchback_last_error(), "");
    check_failure();
  }
  ADD_FAILURE() << "never succeeded";
  return 0;
}

constexpr std::int64_t rows = 9;
constexpr std::int64_t cols = 70;

template <class T>
switchback_matrix matrix(std::vector<T>& data, std::int32_t dtype, std::int64_t m, std::int64_t n) {
  data.assign(static_cast<std::size_t>(m * n), T(1));
  return {data.data(), dtype, m, n, n};
}

switchback_context* new_context() {
  switchback_context_options options = {};
  options.struct_size = sizeof(options);
  options.device = "cpu";
  options.threads = 1;  // refusals are counted in the calling thread
  switchback_context* context = nullptr;
  EXPECT_EQ(switchback_context_create(&options, &context), SWITCHBACK_OK);
  return context;
}

TEST(OutOfMemory, HandlesAreNotMade) {
  switchback_context_options options = {};
  options.struct_size = sizeof(options);
  options.device = "cpu";
  options.threads = 1;
  switchback_context* context = nullptr;
  EXPECT_GT(sweep([&] { return switchback_context_create(&options, &context); },
                  [&] { EXPECT_EQ(context, nullptr); }),
            0);
  switchback_packed_weight* packed = nullptr;
  EXPECT_GT(sweep([&] { return switchback_packed_weight_create(&packed); },
                  [&] { EXPECT_EQ(packed, nullptr); }),
            0);
  switchback_linear_options layer_options = {};
  layer_options.struct_size = sizeof(layer_options);
  layer_options.in_features = cols;
  layer_options.out_features = rows;
  layer_options.mode = SWITCHBACK_ROWWISE;
  switchback_linear* layer = nullptr;
  EXPECT_GT(sweep([&] { return switchback_linear_create(context, &layer_options, &layer); },
                  [&] { EXPECT_EQ(layer, nullptr); }),
            0);
  const switchback_engine_info* infos = nullptr;
  std::size_t count = 0;
  EXPECT_GT(
      sweep([&] { return switchback_engines(context, SWITCHBACK_ENGINES_GEMM, &infos, &count); },
            [&] { EXPECT_EQ(infos, nullptr); }),
      0);
  switchback_linear_destroy(layer);
  switchback_packed_weight_destroy(packed);
  switchback_context_destroy(context);
}

TEST(OutOfMemory, OperationsReportItAndThenSucceed) {
  switchback_context* context = new_context();
  std::vector<float> x, absmax(static_cast<std::size_t>(rows + cols));
  std::vector<std::int8_t> q, b;
  std::vector<std::int32_t> d;
  const auto mx = matrix(x, SWITCHBACK_F32, rows, cols);
  const auto mq = matrix(q, SWITCHBACK_S8, rows, cols);
  const auto mb = matrix(b, SWITCHBACK_S8, rows, cols);
  const auto md = matrix(d, SWITCHBACK_S32, rows, rows);
  sweep([&] { return switchback_quantize_rowwise(context, &mx, &mq, absmax.data()); }, [] {});
  sweep([&] { return switchback_quantize_global(context, &mx, &mq, absmax.data()); }, [] {});
  sweep([&] { return switchback_gemm_s8s8s32(context, &mq, &mb, &md); }, [] {});
  EXPECT_EQ(d[0], 127 * static_cast<int>(cols));  // 1 / 1 has the code 127
  switchback_context_destroy(context);
}

TEST(OutOfMemory, AFailedPackKeepsTheOldOne) {
  switchback_context* context = new_context();
  std::vector<std::int8_t> a, small, large;
  std::vector<std::int32_t> d;
  const auto ma = matrix(a, SWITCHBACK_S8, 2, cols);
  const auto msmall = matrix(small, SWITCHBACK_S8, 1, cols);
  const auto mlarge = matrix(large, SWITCHBACK_S8, 500, cols);
  const auto md = matrix(d, SWITCHBACK_S32, 2, 1);
  switchback_packed_weight* packed = nullptr;
  ASSERT_EQ(switchback_packed_weight_create(&packed), SWITCHBACK_OK);
  ASSERT_EQ(switchback_pack_weight(context, &msmall, packed, nullptr), SWITCHBACK_OK);
  EXPECT_GT(
      sweep([&] { return switchback_pack_weight(context, &mlarge, packed, nullptr); },
            [&] {
              d.assign(d.size(), 0);
              EXPECT_EQ(switchback_gemm_s8s8s32_packed(context, &ma, packed, &md), SWITCHBACK_OK)
                  << switchback_last_error();
              EXPECT_EQ(d[0], static_cast<int>(cols));
            }),
      0);
  switchback_packed_weight_destroy(packed);
  switchback_context_destroy(context);
}

// oneDNN's products take memory while they compute, when dx may have been written. Small integers
// have the same sums in any order.
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
      ASSERT_EQ(switchback_linear_create(context, &options, &layer), SWITCHBACK_OK);
      std::vector<float> x, w, g, y, dx, dw, db;
      const auto mx = integers(x, batch, inputs, 1);
      const auto mw = integers(w, outputs, inputs, 2);
      const auto my = matrix(y, SWITCHBACK_F32, batch, outputs);
      ASSERT_EQ(switchback_linear_set_weight(layer, &mw, nullptr), SWITCHBACK_OK);
      ASSERT_EQ(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY), SWITCHBACK_OK);
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
      ASSERT_EQ(switchback_linear_backward(layer, &undisturbed), SWITCHBACK_OK);
      const std::vector<float> want_dx = dx, want_dw = dw, want_db = db;
      int refusals = 0;
      for (long allowed = 0;; ++allowed) {
        ASSERT_LT(allowed, 100) << "it never succeeds";
        const switchback_linear_grads grads = backward();
        test::refuse_allocations_of_onednn(allowed);
        const switchback_status status = switchback_linear_backward(layer, &grads);
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

class OutOfMemoryInMode : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(OutOfMemoryInMode, ATrainingStepCanBeRepeated) {
  switchback_context* context = new_context();
  switchback_linear_options options = {};
  options.struct_size = sizeof(options);
  options.in_features = cols;
  options.out_features = rows;
  options.mode = GetParam();
  // oneDNN's primitive cache calls std::terminate when an allocation of its own fails; there is no
  // way around that from outside.
  if (GetParam() == SWITCHBACK_STANDARD) options.engine = "reference";
  switchback_linear* layer = nullptr;
  ASSERT_EQ(switchback_linear_create(context, &options, &layer), SWITCHBACK_OK);
  constexpr std::int64_t batch = 3;
  std::vector<float> x, w, g, y, dx, dw, db;
  const auto mx = matrix(x, SWITCHBACK_F32, batch, cols);
  const auto mw = matrix(w, SWITCHBACK_F32, rows, cols);
  const auto my = matrix(y, SWITCHBACK_F32, batch, rows);
  switchback_linear_grads grads = {};
  grads.struct_size = sizeof(grads);
  grads.g = matrix(g, SWITCHBACK_F32, batch, rows);
  grads.dx = matrix(dx, SWITCHBACK_F32, batch, cols);
  grads.dw = matrix(dw, SWITCHBACK_F32, rows, cols);
  grads.db = matrix(db, SWITCHBACK_F32, 1, rows);
  EXPECT_EQ(switchback_linear_set_weight(layer, &mw, nullptr), SWITCHBACK_OK);
  // Libraries generate code when first used, in thousands of allocations: that is not swept.
  EXPECT_EQ(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY), SWITCHBACK_OK);
  EXPECT_EQ(switchback_linear_backward(layer, &grads), SWITCHBACK_OK);
  switchback_linear_destroy(layer);
  switchback_context_destroy(context);
  context = new_context();
  layer = nullptr;
  ASSERT_EQ(switchback_linear_create(context, &options, &layer), SWITCHBACK_OK);
  EXPECT_EQ(switchback_linear_set_weight(layer, &mw, nullptr), SWITCHBACK_OK);
  for (auto* results : {&y, &dx, &dw, &db})
    results->assign(results->size(), 0.0f);
  sweep([&] { return switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY); }, [] {});
  EXPECT_FLOAT_EQ(y[0], static_cast<float>(cols));
  sweep([&] { return switchback_linear_backward(layer, &grads); }, [] {});
  EXPECT_FLOAT_EQ(dx[0], static_cast<float>(rows));
  EXPECT_FLOAT_EQ(dw[0], static_cast<float>(batch));
  EXPECT_FLOAT_EQ(db[0], static_cast<float>(batch));
  EXPECT_EQ(switchback_linear_weight_updated(layer), SWITCHBACK_OK);
  sweep([&] { return switchback_linear_prepare_for_eval(layer); }, [] {});
  EXPECT_EQ(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING), SWITCHBACK_OK);
  EXPECT_FLOAT_EQ(y[0], static_cast<float>(cols));
  switchback_linear_destroy(layer);
  switchback_context_destroy(context);
}

INSTANTIATE_TEST_SUITE_P(Modes, OutOfMemoryInMode,
                         ::testing::Values(SWITCHBACK_STANDARD, SWITCHBACK_ROWWISE,
                                           SWITCHBACK_GLOBAL, SWITCHBACK_GLOBAL_MEM_EFFICIENT));

}  // namespace
}  // namespace switchback
