// SPDX-License-Identifier: Apache-2.0
// Entry zone: the block-diagonal Hadamard rotation, alone and fused with int8 quantization.
//
// A rotation multiplies each group of g neighbouring elements of a row by H_g = H4 ⊗ … ⊗ H4, with
//   H4 = [[1,1,1,-1],[1,1,-1,1],[1,-1,1,1],[-1,1,1,1]] / 2.
// H_g is symmetric and orthogonal, so H_g · H_g = I: rotating twice gives the matrix back except
// for roundings, and (X·H) · (W·H)ᵀ = X·Wᵀ. Outliers are spread over their group, which makes int8
// codes of the rotated matrix more accurate.
//
// Elements are widened to f32 and go through radix-4 stages with strides 1, 4, 16, … g/4:
//   h = 0.5 · ((a + b) + (c + d)); y0 = h - d; y1 = h - c; y2 = h - b; y3 = h - a
// in this order, each operation rounded once. So results are the same on every device, instruction
// set and thread count. A group that holds a NaN or Inf has a NaN or Inf after each stage and ends
// with one; a sum that overflows becomes Inf or NaN too.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "switchback/context.hpp"
#include "switchback/export.h"
#include "switchback/matrix.hpp"
#include "switchback/types.hpp"

namespace switchback {

/// A block-diagonal Hadamard rotation. Its value is g, the number of neighbouring columns that it
/// multiplies by H_g, and never changes. The number of columns must be a multiple of g.
enum class Rotation : std::int32_t {
  none = 0,              ///< no rotation
  hadamard_4 = 4,        ///< groups of 4 columns
  hadamard_16 = 16,      ///< groups of 16 columns
  hadamard_64 = 64,      ///< groups of 64 columns
  hadamard_256 = 256,    ///< groups of 256 columns
  hadamard_1024 = 1024,  ///< groups of 1024 columns
};

/// The name of a rotation: "none", "hadamard_4", "hadamard_16", "hadamard_64", "hadamard_256",
/// "hadamard_1024"; "unknown" for any other value.
SWITCHBACK_API std::string_view rotation_name(Rotation rotation) noexcept;

/// Computes y[M,K] = rotate(x[M,K]), rounded once to the type of y. That is the type of x or f32;
/// if x is f32, any of f32, f16 and bf16. y may be x itself (the same data, type and stride);
/// otherwise they must not overlap. The rotation is its own inverse. Throws Error(invalid_argument)
/// for Rotation::none, for an unknown value and for a K that is not a multiple of the group.
SWITCHBACK_API void rotate(Context& context, ConstAnyMatrix x, Rotation rotation, AnyMatrix y);

/// Quantizes rotate(x[M,K]) to codes q[M,K] with one scale per row, absmax[M], in one pass over
/// memory. The bits are those of rotate() into f32 followed by quantize_rowwise. With an activation
/// it quantizes rotate(activation(x)), where activation(x) is rounded to the type of x first.
SWITCHBACK_API void rotate_quantize(Context& context, ConstAnyMatrix x, Rotation rotation,
                                    MatrixView<std::int8_t> q, std::span<float> absmax,
                                    Activation activation = Activation::none);

}  // namespace switchback
