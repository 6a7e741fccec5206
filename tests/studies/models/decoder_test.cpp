// SPDX-License-Identifier: Apache-2.0
// Tests a whole decoder against its formula in f64: the loss, and the gradients of every parameter
// against central differences.
#include "studies/models/decoder.hpp"

#include <gtest/gtest.h>

#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using namespace models;

double loss_of(const DecoderOptions& o, const Named& p, const std::vector<std::int32_t>& tokens,
               const std::vector<std::int32_t>& targets, std::int64_t batch) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const std::int64_t length = rows / batch;
  const std::int64_t dim = o.width / o.heads;
  Values x;
  for (const std::int32_t token : tokens)
    for (std::int64_t c = 0; c < o.width; ++c)
      x.push_back(p.at("embedding")[reference::at(token * o.width + c)]);
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    const auto of = [&](const std::string& name) -> const Values& {
      return p.at("layers." + std::to_string(layer) + "." + name);
    };
    const Values normed1 = reference::rms_norm(x, o.width, of("norm1"));
    const Values qkv = reference::rope(reference::linear(normed1, rows, of("qkv.weight"), o.width),
                                       length, o.heads, dim, static_cast<double>(o.rope_theta));
    const Values attended = reference::attention(qkv, batch, length, o.heads, dim);
    x = reference::sum(x, reference::linear(attended, rows, of("out.weight"), o.width));
    const Values normed2 = reference::rms_norm(x, o.width, of("norm2"));
    const Values hidden = reference::swiglu(
        reference::linear(normed2, rows, of("gate_up.weight"), o.width), o.hidden);
    x = reference::sum(x, reference::linear(hidden, rows, of("down.weight"), o.hidden));
  }
  const Values normed = reference::rms_norm(x, o.width, p.at("final_norm"));
  return reference::cross_entropy(reference::linear(normed, rows, p.at("head.weight"), o.width),
                                  targets);
}

TEST(ModelsGradient, DecoderOfEveryParameter) {
  const DecoderOptions o{
      .vocabulary = 11, .width = 12, .hidden = 10, .layers = 2, .heads = 2, .context = 9};
  Context context(device_options());
  Memory memory(visible_memory(context));
  const Surroundings around{context, memory};
  Parameters parameters(context.state(), memory, 3);
  Decoder model(around, parameters, o);
  const Named named = fill_parameters(parameters);
  model.weights_updated();
  const std::vector<std::int32_t> tokens = {1, 2, 3, 10, 0, 3, 3, 7, 8, 9};
  const std::vector<std::int32_t> targets = {2, 3, 10, 0, 4, 3, 7, 8, 9, 1};
  for (const bool accumulate : {false, true}) {
    model.forward({tokens, 2, 5});
    EXPECT_NEAR(model.loss(targets), loss_of(o, named, tokens, targets, 2), 1e-5);
    model.backward(accumulate);
  }
  expect_gradients(parameters, named, 2,
                   [&](const Named& n) { return loss_of(o, n, tokens, targets, 2); });
}

}  // namespace
}  // namespace switchback::test
