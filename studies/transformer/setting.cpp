// SPDX-License-Identifier: Apache-2.0
#include "studies/transformer/setting.hpp"

#include <array>

#include "bench/cli/cli.hpp"
#include "core/check.hpp"
#include "core/modes.hpp"
#include "studies/published/published.hpp"

namespace switchback::bench::transformer {

std::string_view pass_name(Pass pass) {
  constexpr std::array<std::string_view, 3> names = {"forward", "backward", "step"};
  return names[static_cast<std::size_t>(pass)];
}

Pass parse_pass(const std::string& name) {
  return parse_choice("--pass", name, pass_name, {Pass::forward, Pass::backward, Pass::step});
}

const std::vector<Size>& sizes() {
  static const std::vector<Size> all = [] {
    const PublishedTable table("transformer_sizes");
    std::vector<Size> made;
    for (std::size_t row = 0; row < table.rows(); ++row) {
      const auto integer = [&](std::string_view column) {
        return static_cast<std::int64_t>(table.number(row, column).value());
      };
      made.push_back({.name = std::string(table.text(row, "size")),
                      .width = integer("d_model"),
                      .hidden = integer("d_ff"),
                      .layers = integer("layers"),
                      .heads = integer("heads"),
                      .published_params = table.number(row, "million_parameters").value()});
    }
    return made;
  }();
  return all;
}

const Size& size_named(const std::string& name) {
  for (const Size& size : sizes())
    if (size.name == name) return size;
  core::fail(Status::invalid_argument,
             "--size {}: it must be small, medium, large, xl or 2.7B; or give --d-model, --d-ff, "
             "--layers and --heads",
             name);
}

std::string Setting::variant() const {
  std::string text;
  if (dw != WeightGradient::floating) text += ", dw " + std::string(weight_gradient_name(dw));
  if (rotation != Rotation::none)
    text += ", rotation " + std::to_string(static_cast<int>(rotation));
  return text;
}

models::DecoderOptions Setting::decoder(Mode mode) const {
  return {.vocabulary = vocabulary,
          .width = size.width,
          .hidden = size.hidden,
          .layers = size.layers,
          .heads = size.heads,
          .context = context,
          .dtype = dtype,
          .mode = mode,
          .dw = traits_of(mode).has_int8_dw() ? dw : WeightGradient::floating,
          .rotation = traits_of(mode).is_int8() ? rotation : Rotation::none};
}

models::MemoryUse bytes_wanted(const Setting& s, const std::vector<Mode>& modes) {
  using models::MemoryClass;
  models::MemoryUse use;
  const auto set = [&](MemoryClass c, double bytes) {
    use.bytes[static_cast<std::size_t>(c)] = static_cast<std::size_t>(bytes);
  };
  const auto d = static_cast<double>(s.size.width);
  const auto f = static_cast<double>(s.size.hidden);
  const auto v = static_cast<double>(s.vocabulary);
  const auto layers = static_cast<double>(s.size.layers);
  const auto rows = static_cast<double>(s.rows());
  const auto element = static_cast<double>(dtype_size_bytes(s.dtype));
  const auto params = static_cast<double>(s.decoder(Mode::standard).parameters());
  // A little too large, because `params` also counts the gains of norms.
  const double linear_weights = params - v * d;
  const double largest = std::max(v, 2 * f);
  const bool trains = s.pass != Pass::forward;
  set(MemoryClass::param,
      params * 4 + (s.dtype == DType::bf16 ? linear_weights * 2 : 0) +
          static_cast<double>(s.context) * d * 4 / static_cast<double>(s.size.heads));
  set(MemoryClass::grad, params * 4);
  set(MemoryClass::optimizer, s.pass == Pass::step ? params * 8 : 0);
  double int8_weights = 0;
  for (const Mode mode : modes)
    if (!traits_of(mode).is_floating()) int8_weights += linear_weights * (trains ? 2.2 : 1.1);
  set(MemoryClass::int8_weights, int8_weights);
  const double saved_of_layer =
      (8 * d + 3 * f) * element + (static_cast<double>(s.size.heads) + 2) * 4;
  const double logits = rows * v * element;
  if (trains) {
    set(MemoryClass::saved, rows * (layers * saved_of_layer + 2 * d * element + 4) + logits);
    // Gradients of one block's activations, and the scratch memory of matrix products: int8 codes
    // and packed operands.
    set(MemoryClass::workspace,
        rows * (3 * d + 3 * f) * element + rows * largest * 1.5 + largest * d * 5 + 4e6);
  } else {
    set(MemoryClass::workspace,
        logits + rows * (4 * d + 3 * f) * element + rows * largest * 1.5 + largest * d * 5 + 4e6);
  }
  return use;
}

}  // namespace switchback::bench::transformer
