// SPDX-License-Identifier: Apache-2.0
// Test support: tensors of seeded values, operations on them, and comparisons with values in f64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "studies/models/memory.hpp"
#include "studies/models/parameters.hpp"
#include "studies/models/philox.hpp"
#include "studies/models/reference.hpp"
#include "support/contexts.hpp"
#include "support/generators.hpp"
#include "switchback/error.hpp"

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
  Random random(seed);
  for (std::int64_t i = 0; i < t.size(); ++i)
    core::store_float(t.any().data, t.dtype(), i,
                      static_cast<float>(scale * (2 * random.uniform() - 1)));
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
/// A tensor of NaN, which operations must overwrite.
inline models::Tensor tensor(models::Memory& memory, DType dtype, std::int64_t rows,
                             std::int64_t cols) {
  models::Tensor t = memory.take(models::MemoryClass::workspace, dtype, rows, cols);
  std::fill_n(static_cast<std::byte*>(t.any().data), t.size_bytes(), std::byte{0xFF});
  return t;
}

/// A tensor whose element number i is f(i).
inline models::Tensor of_values(models::Memory& memory, DType dtype, std::int64_t rows,
                                std::int64_t cols, const std::function<double(std::int64_t)>& f) {
  models::Tensor t = memory.take(models::MemoryClass::workspace, dtype, rows, cols);
  for (std::int64_t i = 0; i < t.size(); ++i)
    core::store_float(t.any().data, dtype, i, static_cast<float>(f(i)));
  return t;
}
/// Tokens or targets from 0 to `vocabulary` - 1.
inline std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary,
                                               std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(models::philox::element_bits(seed, 1, i) %
                                               static_cast<std::uint64_t>(vocabulary)));
  return tokens;
}

enum class NormKind { rms_norm, layer_norm };
inline constexpr NormKind norm_kinds[] = {NormKind::rms_norm, NormKind::layer_norm};

/// A norm of x + add and its gradient, on random operands. Without `add` (reset it before) it is
/// the norm of x.
struct Norm {
  Norm(models::Memory& memory, NormKind norm, DType dtype, std::int64_t rows, std::int64_t cols)
      : kind(norm),
        x(filled(memory, dtype, rows, cols, 1, 2)),
        add(filled(memory, dtype, rows, cols, 2)),
        gain(filled(memory, DType::f32, 1, cols, 3)),
        bias(filled(memory, DType::f32, 1, cols, 4)),
        dy(filled(memory, dtype, rows, cols, 5)),
        sum(filled(memory, dtype, rows, cols, 11)),
        y(tensor(memory, dtype, rows, cols)),
        mean(filled(memory, DType::f32, 1, rows, 6, 0.01)),
        rstd(filled(memory, DType::f32, 1, rows, 7)),
        dx(filled(memory, dtype, rows, cols, 8)),
        dgain(filled(memory, DType::f32, 1, cols, 9)),
        dbias(filled(memory, DType::f32, 1, cols, 10)) {}
  [[nodiscard]] const models::Tensor& input() const { return add.empty() ? x : sum; }
  void forward(ContextState& state) const {
    if (kind == NormKind::rms_norm)
      models::rms_norm(state, {.x = x.any(),
                               .add = add.any(),
                               .sum = add.empty() ? AnyMatrix() : sum.any(),
                               .gain = gain.floats(),
                               .y = y.any(),
                               .rstd = rstd.floats()});
    else
      models::layer_norm(state, {.x = x.any(),
                                 .add = add.any(),
                                 .sum = add.empty() ? AnyMatrix() : sum.any(),
                                 .gain = gain.floats(),
                                 .bias = bias.floats(),
                                 .y = y.any(),
                                 .mean = mean.floats(),
                                 .rstd = rstd.floats()});
  }
  /// RMSNorm adds to dx, LayerNorm overwrites it.
  void backward(ContextState& state, bool accumulate = false) const {
    if (kind == NormKind::rms_norm)
      models::rms_norm_backward(state, {.s = input().any(),
                                        .gain = gain.floats(),
                                        .rstd = rstd.floats(),
                                        .dy = dy.any(),
                                        .dx = dx.any(),
                                        .dgain = dgain.floats(),
                                        .accumulate = accumulate});
    else
      models::layer_norm_backward(state, {.s = input().any(),
                                          .gain = gain.floats(),
                                          .mean = mean.floats(),
                                          .rstd = rstd.floats(),
                                          .dy = dy.any(),
                                          .dx = dx.any(),
                                          .dgain = dgain.floats(),
                                          .dbias = dbias.floats(),
                                          .accumulate = accumulate});
  }
  NormKind kind;
  models::Tensor x, add, gain, bias, dy, sum, y, mean, rstd, dx, dgain, dbias;
};

/// An attention and its gradient, on random operands.
struct AttentionRun {
  AttentionRun(models::Memory& memory, DType dtype, const models::AttentionShape& of,
               double scale = 2)
      : shape(of),
        qkv(filled(memory, dtype, of.rows(), 3 * of.width(), 1, scale)),
        out(tensor(memory, dtype, of.rows(), of.width())),
        lse(tensor(memory, DType::f32, 1, of.rows() * of.heads)),
        dout(filled(memory, dtype, of.rows(), of.width(), 2)),
        dqkv(tensor(memory, dtype, of.rows(), 3 * of.width())) {}
  void forward(ContextState& state) const {
    models::attention(state, shape, qkv.any(), out.any(), lse.floats());
  }
  void backward(ContextState& state) const {
    models::attention_backward(state, shape, qkv.any(), out.any(), lse.floats(), dout.any(),
                               dqkv.any());
  }
  models::AttentionShape shape;
  models::Tensor qkv, out, lse, dout, dqkv;
};

/// A Context with its options, the dtype of activations, and a name for messages.
struct Setting {
  Context& context;
  const ContextOptions& options;
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
      f(Setting{context, options, dtype, describe(options) + " " + std::string(dtype_name(dtype))});
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

/// The message of the Error that f() throws; "accepted" if it throws none.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

/// The values of a model's parameters, by name.
using Named = std::map<std::string, Values>;

inline Named fill_parameters(models::Parameters& parameters) {
  Named named;
  for (models::Parameter& p : parameters.all()) {
    fill(p.value, std::hash<std::string>()(p.name), 0.5);
    named[p.name] = values_of(p.value);
  }
  return named;
}

/// Compares the gradients of a model's parameters, which were accumulated `times` times, with
/// central differences of its loss. About twelve elements of each parameter are compared, spread
/// over it, because a whole model in f64 is slow.
inline void expect_gradients(const models::Parameters& parameters, Named named, double times,
                             const std::function<double(const Named&)>& loss) {
  for (const models::Parameter& p : parameters.all()) {
    Values& values = named[p.name];
    const std::size_t step = std::max<std::size_t>(1, values.size() / 12);
    for (std::size_t i = 0; i < values.size(); i += step) {
      const double want = reference::derivative([&] { return loss(named); }, values[i]);
      EXPECT_NEAR(p.gradient.floats()[i], times * want, 2e-5) << p.name << " element " << i;
    }
  }
}

}  // namespace switchback::test
