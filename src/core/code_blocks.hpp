// SPDX-License-Identifier: Apache-2.0
// Core: int8 codes that are passed on block by block, while they are in a cache. This is the
// contract between quantization, which makes the codes, and the code that packs them for a product.
#pragma once

#include <cstdint>

#include "switchback/matrix.hpp"

namespace switchback::core {

/// A rectangular block of one of several matrices of int8 codes.
struct CodeBlock {
  /// The first row and column of a block are multiples of these steps. A block ends at a multiple
  /// of the step or at the end of the matrix.
  static constexpr std::int64_t row_step = 16;
  static constexpr std::int64_t col_step = 64;

  std::int64_t matrix = 0;
  std::int64_t row = 0;  ///< row of the block's first code in its matrix
  std::int64_t col = 0;
  MatrixView<const std::int8_t> codes;
};

/// Receives matrices of int8 codes block by block, in any order.
class CodeSink {
 public:
  /// Called once for each block of codes, by several threads at the same time.
  virtual void take(const CodeBlock& block) const noexcept = 0;

 protected:
  CodeSink() = default;
  CodeSink(const CodeSink&) = default;
  CodeSink& operator=(const CodeSink&) = default;
  ~CodeSink() = default;
};

}  // namespace switchback::core
