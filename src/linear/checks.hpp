// SPDX-License-Identifier: Apache-2.0
// Entry zone: the checks that the linear layers share. `op` begins each message.
#pragma once

#include <string_view>

#include "switchback/linear.hpp"

namespace switchback::linear {

void check_options(std::string_view op, const Context& context, const LinearOptions& options);
/// An operand of the layer's own type.
void check_dtype(std::string_view op, std::string_view argument, DType dtype, DType layer);
/// An output: the layer's type, or f32.
void check_output_dtype(std::string_view op, std::string_view argument, DType dtype, DType layer);

}  // namespace switchback::linear
