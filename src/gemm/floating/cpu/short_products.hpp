// SPDX-License-Identifier: Apache-2.0
// Engine zone: the weight gradients of many groups of few rows, f32. A library's product of so few
// rows waits for the lines of d, which it stores once; and it is called, and its threads meet, for
// every group.
#pragma once

#include <cstdint>
#include <span>

#include "core/context_state.hpp"

namespace switchback::floating {

/// d[n,k] = aᵀ · b of a[rows,n] and b[rows,k]; of no rows, zeros.
struct ShortProduct {
  const float* a;
  const float* b;
  float* d;
  std::int64_t rows;
};

/// What the products have in common.
struct ShortShape {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldd = 0;
};

/// The most rows of a product.
inline constexpr std::int64_t short_product_rows = 128;

/// Whether this Context's CPU can run them.
bool has_short_products(const ContextState& state) noexcept;

/// Sums add the rows in order, each with one rounding, and begin at +0: up to short_product_rows
/// these are the bits of dnnl_sgemm. If the second-level caches do not hold all of d, it is stored
/// past them.
void run_short_products(ContextState& state, const ShortShape& shape,
                        std::span<const ShortProduct> products);

}  // namespace switchback::floating
