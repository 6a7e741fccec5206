// SPDX-License-Identifier: Apache-2.0
// Core: codes that are passed on block by block, while they are in a cache. This is the contract
// between quantization, which produces the codes, and the code that packs them for a product.
#pragma once

#include <cstdint>

#include "switchback/matrix.hpp"

namespace switchback::core {

/// A part of one of several matrices of codes.
struct CodeBlock {
  /// A block begins at a multiple of its step. It ends at a multiple of the step or at the end of
  /// the matrix.
  static constexpr std::int64_t row_step = 16;
  static constexpr std::int64_t col_step = 64;

  std::int64_t matrix = 0;
  std::int64_t row = 0;  ///< of the first code
  std::int64_t col = 0;
  MatrixView<const std::int8_t> codes;
};

/// Receives the blocks of matrices, in any order.
class CodeSink {
 public:
  /// Called by several threads at the same time, once for each block.
  virtual void take(const CodeBlock& block) const noexcept = 0;

 protected:
  CodeSink() = default;
  CodeSink(const CodeSink&) = default;
  CodeSink& operator=(const CodeSink&) = default;
  ~CodeSink() = default;
};

}  // namespace switchback::core
