// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: makes the problem and the operands of an int8 product, single or grouped, from the
// arguments of a call. The operands are those of the first group.
#pragma once

#include "core/assert.hpp"
#include "gemm/int8/packed_weight.hpp"
#include "gemm/int8/problem.hpp"

namespace switchback::gemm_int8 {

struct Product {
  GemmProblem problem;
  GemmOperands operands;
};

/// Converts validated arguments, which have a, d, and b or packed_b. b holds `groups` matrices.
template <class Args>
Product product_of(const Args& args, std::int64_t groups = 1) {
  SWITCHBACK_ASSERT(args.packed_b == nullptr || !args.packed_b->empty());
  Product product;
  auto& [p, o] = product;
  p.m = args.a.rows;
  p.k = args.a.cols;
  p.stride_a = args.a.stride;
  o.a = args.a.data;
  if (args.packed_b != nullptr) {
    const PackedWeightState& packed = args.packed_b->state();
    p.n = packed.rows;
    p.packed_for = packed.engine->id;
    o.packed_b = packed.buffer.template as<const void>();
  } else {
    p.n = groups > 0 ? args.b.rows / groups : 0;
    p.stride_b = args.b.stride;
    o.b = args.b.data;
  }
  const AnyMatrix d = args.d;
  p.stride_d = d.stride;
  p.output = d.dtype;
  o.d = d.data;
  return product;
}

/// Adds scales and bias to a product whose sums are dequantized.
template <class Args>
void add_scales(const Args& args, Product& product, std::int64_t groups = 1) {
  auto& [p, o] = product;
  p.scale = static_cast<std::int64_t>(args.absmax_b.size()) == groups * p.n ? ScaleMode::row_col
                                                                            : ScaleMode::row_scalar;
  o.absmax_a = args.absmax_a.data();
  o.absmax_b = args.absmax_b.data();
  if (args.bias.data == nullptr) return;
  p.has_bias = true;
  p.bias = args.bias.dtype;
  o.bias = args.bias.data;
}

}  // namespace switchback::gemm_int8
