// SPDX-License-Identifier: Apache-2.0
// Tests of the operations of a model on a GPU: elementwise ones give the bits of the CPU, and all
// can be captured in a graph. The other suites of models run on a GPU too.
#include <gtest/gtest.h>

#include "studies/models/operations.hpp"

namespace switchback::test {
namespace {

using models::Memory;

class ModelsOnADevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "a test of devices; see --device";
  }
};

TEST_F(ModelsOnADevice, ElementsHaveTheBitsOfTheCpu) {
#if defined(__x86_64__)
  if (core::cpu_features().level() < core::Isa::avx2)
    GTEST_SKIP() << "this CPU has no fused multiply-add";
#endif
  // Rows are summed over several blocks.
  const models::AttentionShape shape{.batch = 2, .length = 35, .heads = 3, .head_dim = 14};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<Operations::Bits> all;
    for (const ContextOptions& options : {cpu_options(), device_options()}) {
      Context context(options);
      Memory memory(visible_memory(context));
      const Operations operations(context.state(), memory, dtype, shape);
      operations.run();
      context.synchronize();
      all.push_back(operations.exact_results());
    }
    for (std::size_t i = 0; i < all[0].size(); ++i)
      EXPECT_EQ(all[0][i], all[1][i]) << dtype_name(dtype) << " result " << i;
  }
}

// A graph of all operations is launched twice. The results are those of two direct calls.
TEST_F(ModelsOnADevice, OperationsCanBeCaptured) {
  Context context(device_options());
  ContextState& state = context.state();
  Memory memory(visible_memory(context));
  const models::AttentionShape shape{.batch = 2, .length = 10, .heads = 2, .head_dim = 6};
  const Operations direct(state, memory, DType::f32, shape);
  direct.run();
  direct.run();
  const Operations captured(state, memory, DType::f32, shape);
  state.runtime->begin_capture();
  captured.run();
  const auto graph = state.runtime->end_capture();
  graph->launch();
  graph->launch();
  context.synchronize();
  EXPECT_EQ(captured.results(), direct.results());
}

}  // namespace
}  // namespace switchback::test
