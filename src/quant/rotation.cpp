// SPDX-License-Identifier: Apache-2.0
#include "switchback/rotation.hpp"

#include "core/check.hpp"
#include "quant/checked.hpp"
#include "quant/rotate.hpp"

namespace switchback {

std::string_view rotation_name(Rotation rotation) noexcept {
  switch (rotation) {
    case Rotation::none:
      return "none";
    case Rotation::hadamard_4:
      return "hadamard_4";
    case Rotation::hadamard_16:
      return "hadamard_16";
    case Rotation::hadamard_64:
      return "hadamard_64";
    case Rotation::hadamard_256:
      return "hadamard_256";
    case Rotation::hadamard_1024:
      return "hadamard_1024";
  }
  return "unknown";
}

void rotate(Context& context, ConstAnyMatrix x, Rotation rotation, AnyMatrix y) {
  quant::run_checked(context, quant::Op::rotate, {.x = x, .rotation = rotation, .rotated = y});
}

void rotate_quantize(Context& context, ConstAnyMatrix x, Rotation rotation,
                     MatrixView<std::int8_t> q, std::span<float> absmax, Activation activation) {
  const quant::Op op = activation == Activation::none ? quant::Op::rotate_quantize
                                                      : quant::Op::activation_rotate_quantize;
  quant::run_checked(context, op,
                     {.x = x,
                      .activation = activation,
                      .q = {quant::Scales::per_row, q, absmax},
                      .rotation = rotation});
}

namespace quant {

void check_rotation(std::string_view op, Rotation rotation, std::int64_t cols,
                    std::string_view cols_name) {
  core::require(is_rotation(rotation),
                "{}: rotation = {}; it must be one of hadamard_4 (4), hadamard_16 (16), "
                "hadamard_64 (64), hadamard_256 (256), hadamard_1024 (1024)",
                op, static_cast<std::int32_t>(rotation));
  core::require(cols % group_of(rotation) == 0,
                "{}: {} = {}; it must be a multiple of the rotation's group, {}", op, cols_name,
                cols, group_of(rotation));
}

}  // namespace quant
}  // namespace switchback
