// SPDX-License-Identifier: Apache-2.0
// Test support: tensors of seeded values, and their comparison with values in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "studies/models/memory.hpp"
#include "studies/models/philox.hpp"
#include "studies/models/reference.hpp"
#include "support/contexts.hpp"

namespace switchback::test {

using reference::Values;

/// Memory of the Context's device that the test can read and write too.
inline std::shared_ptr<core::MemorySource> visible_memory(Context& context) {
  const auto& runtime = context.state().runtime;
  return runtime == nullptr ? nullptr : runtime->visible_memory();
}

/// Tokens in memory that operations of the tested device can read.
using DeviceTokens = Vector<std::int32_t>;

/// Fills a tensor with random numbers between -1 and 1, times `scale`.
inline void fill(const models::Tensor& t, std::uint64_t seed, double scale = 1) {
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const double unit = models::philox::element_bits(seed, 7, i) / 4294967296.0;
    core::store_float(t.any().data, t.dtype(), i, static_cast<float>(scale * (2 * unit - 1)));
  }
}
inline Values values_of(const models::Tensor& t) {
  Values v(static_cast<std::size_t>(t.size()));
  for (std::int64_t i = 0; i < t.size(); ++i)
    v[static_cast<std::size_t>(i)] = core::load_float(t.any().data, t.dtype(), i);
  return v;
}
inline models::Tensor filled(models::Memory& memory, DType dtype, std::int64_t rows,
                             std::int64_t cols, std::uint64_t seed, double scale = 1) {
  models::Tensor t = memory.take(models::MemoryClass::workspace, dtype, rows, cols);
  fill(t, seed, scale);
  return t;
}
inline models::Tensor tensor(models::Memory& memory, DType dtype, std::int64_t rows,
                             std::int64_t cols) {
  return filled(memory, dtype, rows, cols, 99, 1000);  // values that operations must overwrite
}

/// A Context, the dtype of activations, and a name for messages.
struct Setting {
  Context& context;
  DType dtype;
  std::string name;
};

/// Calls f(setting) for every instruction set, with one thread and several, or for the tested
/// device.
template <class F>
void for_all_settings(F&& f) {
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const DType dtype : {DType::f32, DType::bf16})
      f(Setting{context, dtype, describe(options) + " " + std::string(dtype_name(dtype))});
  }
}

/// Each element must be near the wanted one: within `tolerance` of the largest wanted magnitude.
inline void expect_near(const Values& got, const Values& want, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double w : want)
    largest = std::max(largest, std::fabs(w));
  for (std::size_t i = 0; i < want.size(); ++i)
    if (!(std::fabs(got[i] - want[i]) <= tolerance * largest)) {
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", not " << want[i];
      return;
    }
}

/// The tolerance for expect_near(). f32: sums of some hundred terms, each step rounded to 2^-24,
/// and the exponential. bf16: a result is rounded to 2^-8 of itself; values computed from rounded
/// results have several such errors.
inline double tolerance_of(DType dtype) {
  return dtype == DType::f32 ? 1e-5 : 0.02;
}

}  // namespace switchback::test
