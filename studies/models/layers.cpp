// SPDX-License-Identifier: Apache-2.0
#include "studies/models/layers.hpp"

#include "core/check.hpp"
#include "core/modes.hpp"
#include "quant/dispatch.hpp"

namespace switchback::models {

namespace {

MatrixView<std::int8_t> codes_of(const KeptTensor& kept) {
  return {kept.codes.values<std::int8_t>().data(), kept.codes.rows(), kept.codes.cols()};
}

void take_codes(const Surroundings& around, ConstAnyMatrix x, KeptTensor& kept) {
  kept.codes = around.take(MemoryClass::saved, DType::s8, x.rows, x.cols);
  kept.absmax = around.take(MemoryClass::saved, DType::f32, 1, x.rows);
}

LinearOptions options_of(const LinearSpec& spec) {
  LinearOptions options;
  options.in_features = spec.in;
  options.out_features = spec.out;
  options.mode = spec.mode;
  options.dtype = spec.dtype;
  options.activation = spec.activation;
  options.dw = spec.dw;
  options.rotation = spec.rotation;
  return options;
}

Parameter* bias_of(Parameters& parameters, const LinearSpec& spec) {
  if (!spec.bias) return nullptr;
  return &parameters.get({.name = spec.name + ".bias", .rows = 1, .cols = spec.out});
}

}  // namespace

KeptInput KeptTensor::input() const {
  if (!codes.empty()) return {codes.any(), absmax.floats()};
  return {x.any(), {}};
}

Linear::Linear(const Surroundings& around, Parameters& parameters, const LinearSpec& spec)
    : weight_(parameters.get({.name = spec.name + ".weight",
                              .rows = spec.out,
                              .cols = spec.in,
                              .deviation = spec.deviation,
                              .decays = true,
                              .read_as = spec.dtype})),
      bias_(bias_of(parameters, spec)),
      layer_(around.context, options_of(spec)) {
  layer_.set_weight(weight_.read(),
                    bias_ != nullptr ? ConstAnyMatrix(bias_->value.any()) : ConstAnyMatrix());
}

void Linear::forward(ConstAnyMatrix x, AnyMatrix y) {
  layer_.forward(x, y, Save::nothing);
}

void Linear::forward_for_training(ConstAnyMatrix x, AnyMatrix y) {
  layer_.forward(x, y, Save::caller);
}

void Linear::forward_keeping_codes(const Surroundings& around, ConstAnyMatrix x, AnyMatrix y,
                                   KeptTensor& kept) {
  if (!traits_of(layer_.options().mode).is_int8()) {
    keep_codes(around, x, kept);
    return layer_.forward(x, y, Save::caller);
  }
  take_codes(around, x, kept);
  layer_.forward_codes(x, y, codes_of(kept), kept.absmax.floats());
}

void Linear::backward(const KeptInput& x, const Gradient& gradient) {
  LinearGrads grads;
  grads.g = gradient.g;
  grads.dx = gradient.dx;
  grads.dw = weight_.gradient.any();
  if (bias_ != nullptr) grads.db = bias_->gradient.any();
  grads.accumulate = gradient.accumulate;
  grads.y = gradient.y;
  grads.y_activation = gradient.y_activation;
  grads.dx_of_activation = gradient.dx_of_activation;
  layer_.backward_from(x, grads);
}

void Linear::updated() {
  layer_.weight_updated();
}

void check_tokens(std::string_view argument, Tokens tokens, std::int64_t count,
                  std::int64_t vocabulary) {
  core::require(static_cast<std::int64_t>(tokens.size()) == count,
                "model: {} has {} elements; it must have {}", argument, tokens.size(), count);
  for (const std::int32_t token : tokens)
    core::require(token >= 0 && token < vocabulary, "model: {} has {}; tokens must be from 0 to {}",
                  argument, token, vocabulary - 1);
}

void keep_codes(const Surroundings& around, ConstAnyMatrix x, KeptTensor& kept) {
  take_codes(around, x, kept);
  quant::run(around.state(),
             {.x = x, .q = {quant::Scales::per_row, codes_of(kept), kept.absmax.floats()}});
}

Tensor dequantized(const Surroundings& around, const KeptTensor& kept, DType dtype) {
  Tensor x = around.take(MemoryClass::workspace, dtype, kept.codes.rows(), kept.codes.cols());
  quant::run(around.state(),
             {.x = kept.codes.any(), .absmax_x = kept.absmax.floats(), .value = x.any()});
  return x;
}

}  // namespace switchback::models
