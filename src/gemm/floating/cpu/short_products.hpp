// SPDX-License-Identifier: Apache-2.0
// Engine zone: f32 weight gradients of grouped layers with many groups of few rows. For so few rows
// a library's product mostly waits for the cache lines of d, each of which it stores once. A
// library also has to be called for every group, and its threads synchronise each time.
#pragma once

#include <cstdint>
#include <span>

#include "core/context_state.hpp"

namespace switchback::floating {

/// d[n,k] = aᵀ · b with a[rows,n] and b[rows,k]; zeros if there are no rows.
struct ShortProduct {
  const float* a;
  const float* b;
  float* d;
  std::int64_t rows;
};

/// The sizes and leading dimensions that all short products of a call share.
struct ShortShape {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldd = 0;
};

/// The most rows that a short product may have.
inline constexpr std::int64_t short_product_rows = 128;

/// Whether this Context's CPU can run short products: it needs AVX-512.
bool has_short_products(const ContextState& state) noexcept;

/// Computes all products. Sums start at +0 and add the rows in order, with one rounding each. Up to
/// short_product_rows rows the result has the same bits as dnnl_sgemm. If the second-level caches
/// cannot hold all of d, it is written with non-temporal stores.
void run_short_products(ContextState& state, const ShortShape& shape,
                        std::span<const ShortProduct> products);

}  // namespace switchback::floating
