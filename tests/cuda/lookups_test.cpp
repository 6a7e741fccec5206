// SPDX-License-Identifier: Apache-2.0
// How often a layer asks the driver which memory an address belongs to (cudaPointerGetAttributes).
#include "cuda/cuda_support.hpp"

namespace switchback::test {
namespace {

template <class Call>
std::size_t lookups(Call&& call) {
  const auto count = [] { return switchback_cuda_emu::calls("cudaPointerGetAttributes"); };
  const std::size_t before = count();
  call();
  return count() - before;
}

// A layer looks up each operand of the caller once, and never its own memory.
TEST_F(Cuda, ALayerLooksUpEachOperandOnce) {
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global, Mode::global_mem_efficient})
    for (const Activation activation : {Activation::none, Activation::gelu_tanh}) {
      // With an activation, a layer of mode global_mem_efficient keeps only codes of activation(x),
      // from which dx cannot be computed.
      if (mode == Mode::global_mem_efficient && activation != Activation::none) continue;
      SCOPED_TRACE(::testing::Message() << mode_name(mode) << ", " << activation_name(activation));
      switchback_cuda_emu::reset();
      Context context(emulated());
      LayerOnDevice t(context, mode, false, activation);
      const DeviceMatrix<float> bias(context, normal_matrix<float>(1, LayerOnDevice::n, 4));
      LinearGrads grads;
      grads.g = t.g.view();
      grads.dx = t.dx.view();
      grads.dw = t.dw.view();
      grads.db = t.db.view();
      const auto forward = [&](Save save) { t.layer.forward(t.x.view(), t.y.view(), save); };

      EXPECT_EQ(lookups([&] { t.layer.set_weight(t.w.view(), bias.view()); }), 2u);
      // The second step finds the weight's codes in the layer.
      for (int step = 0; step < 2; ++step) {
        // The addresses of the weight and the bias were looked up when the layer was given them.
        EXPECT_EQ(lookups([&] { forward(Save::copy); }), 2u) << "x, y";
        EXPECT_EQ(lookups([&] { t.layer.backward(grads); }), 4u) << "g, dx, dw, db";
      }
      EXPECT_EQ(lookups([&] { t.layer.prepare_for_eval(); }), 0u);
      EXPECT_EQ(lookups([&] { forward(Save::nothing); }), 2u) << "x, y";
      context.synchronize();
    }
}

}  // namespace
}  // namespace switchback::test
