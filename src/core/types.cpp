// SPDX-License-Identifier: Apache-2.0
#include "switchback/types.hpp"

#include "core/check.hpp"

namespace switchback {

std::string_view dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::s8:
      return "s8";
    case DType::s32:
      return "s32";
  }
  return "unknown";
}

std::size_t dtype_size_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
    case DType::s32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::s8:
      return 1;
  }
  return 0;
}

DType parse_dtype(std::string_view name) {
  if (name == "f32" || name == "float32") return DType::f32;
  if (name == "f16" || name == "float16" || name == "half") return DType::f16;
  if (name == "bf16" || name == "bfloat16") return DType::bf16;
  if (name == "s8" || name == "int8") return DType::s8;
  if (name == "s32" || name == "int32") return DType::s32;
  core::fail(Status::invalid_argument, "dtype '{}' is not one of f32, f16, bf16, s8, s32", name);
}

std::string_view mode_name(Mode mode) noexcept {
  switch (mode) {
    case Mode::standard:
      return "standard";
    case Mode::rowwise:
      return "rowwise";
    case Mode::global:
      return "global";
    case Mode::global_mem_efficient:
      return "global_mem_efficient";
    case Mode::automatic:
      return "auto";
  }
  return "unknown";
}

Mode parse_mode(std::string_view name) {
  for (const Mode mode :
       {Mode::standard, Mode::rowwise, Mode::global, Mode::global_mem_efficient, Mode::automatic})
    if (name == mode_name(mode)) return mode;
  core::fail(Status::invalid_argument,
             "mode '{}' is not one of standard, rowwise, global, global_mem_efficient, auto", name);
}

std::string_view activation_name(Activation activation) noexcept {
  switch (activation) {
    case Activation::none:
      return "none";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::gelu_erf:
      return "gelu_erf";
  }
  return "unknown";
}

Activation parse_activation(std::string_view name) {
  for (const Activation activation :
       {Activation::none, Activation::gelu_tanh, Activation::gelu_erf})
    if (name == activation_name(activation)) return activation;
  core::fail(Status::invalid_argument, "activation '{}' is not one of none, gelu_tanh, gelu_erf",
             name);
}

}  // namespace switchback
