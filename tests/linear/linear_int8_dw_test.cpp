// SPDX-License-Identifier: Apache-2.0
// Tests of dw in int8: what a forward keeps for it, large and empty batches, gradients that are not
// finite. linear_steps_test.cpp compares it with its operations.
#include <utility>

#include "linear/linear_support.hpp"

namespace switchback::test {
namespace {

LayerCase int8_dw_case(std::int64_t m = 300) {
  LayerCase c;
  c.m = m, c.k = 40, c.n = 52;
  return c;
}

SwitchbackLinear layer_of(Context& context, LayerTrial& t, std::int64_t block_rows,
                          Activation activation = Activation::none) {
  LinearOptions options = t.options();
  options.dw = WeightGradient::int8_block;
  options.dw_block_rows = block_rows;
  options.activation = activation;
  return t.make(context, options);
}

TEST(LinearInt8Dw, KeepsCodesInsteadOfX) {
  Context context(device_options());
  LayerTrial t(int8_dw_case());
  SwitchbackLinear layer = layer_of(context, t, 256);
  t.forward(layer, Save::copy);
  const std::size_t codes = 512 * 40 + 2 * 40 * 4;
  EXPECT_EQ(layer.saved_for_backward_bytes(), codes);
  t.backward(layer);
  const FloatMatrix dw = t.dw;
  t.forward(layer, Save::borrow);
  EXPECT_EQ(layer.saved_for_backward_bytes(), codes);
  // The layer keeps codes, so x may change before backward runs, even if it was borrowed.
  t.x.fill_value(3.0f);
  t.backward(layer);
  context.synchronize();
  EXPECT_TRUE(t.dw == dw);
  SwitchbackLinear active = layer_of(context, t, 256, Activation::gelu_tanh);
  t.forward(active, Save::copy);
  EXPECT_EQ(active.saved_for_backward_bytes(), codes + 300 * 40 * 4) << "dx needs x";
}

TEST(LinearInt8Dw, MicrobatchesOfSuperblocksAreOneBatch) {
  Context context(device_options());
  LayerCase c = int8_dw_case(2 * blockwise_superblock_rows - 100);
  c.k = 9, c.n = 7;
  LayerTrial t(c);
  SwitchbackLinear layer = layer_of(context, t, 1024);
  t.forward(layer, Save::copy);
  t.backward(layer);
  context.synchronize();
  const FloatMatrix whole = t.dw;
  t.dw.fill_value(0.0f);
  for (const auto& [begin, end] :
       {std::pair<std::int64_t, std::int64_t>{0, blockwise_superblock_rows},
        {blockwise_superblock_rows, c.m}}) {
    const auto rows = [begin = begin, end = end](AnyMatrix m) {
      return AnyMatrix(static_cast<float*>(m.data) + begin * m.stride, m.dtype, end - begin, m.cols,
                       m.stride);
    };
    layer.forward(rows(t.x.any()), rows(t.y.any()), Save::copy);
    layer.backward({rows(t.g.any()), rows(t.dx.any()), t.dw.any(), {}, true});
  }
  context.synchronize();
  EXPECT_TRUE(t.dw == whole);
}

TEST(LinearInt8Dw, EmptyBatchAndNonFiniteGradients) {
  Context context(device_options());
  LayerTrial empty(int8_dw_case(0));
  SwitchbackLinear of_none = layer_of(context, empty, 128);
  empty.forward(of_none, Save::copy);
  empty.backward(of_none);
  context.synchronize();
  EXPECT_TRUE(empty.dw_right()) << "zeros";

  LayerTrial t(int8_dw_case());
  SwitchbackLinear layer = layer_of(context, t, 128);
  t.g.set(200, 17, std::numeric_limits<float>::quiet_NaN());
  t.forward(layer, Save::copy);
  t.backward(layer);
  context.synchronize();
  for (std::int64_t r = 0; r < t.dw.rows(); ++r)
    for (std::int64_t c = 0; c < t.dw.cols(); ++c)
      ASSERT_EQ(std::isnan(t.dw.get(r, c)), r == 17) << r << "," << c;
}

}  // namespace
}  // namespace switchback::test
