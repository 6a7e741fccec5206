// SPDX-License-Identifier: Apache-2.0
// Test support: one int8 product in every way it can be called, compared with the reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/config_source.hpp"
#include "core/context_state.hpp"
#include "gemm/int8/candidates.hpp"
#include "support/contexts.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/gemm.hpp"

namespace switchback::test {

/// The int8 engine with this name on the Context's device; it must exist.
inline const gemm_int8::Engine& engine_named(const Context& context, std::string_view name) {
  return *gemm_int8::find_engine(context.state().device.kind, name);
}

/// The names of the engines that run in this Context, except for `fused`.
inline std::vector<std::string> available_engines(const Context& context) {
  std::vector<std::string> names;
  for (const EngineInfo& engine : gemm_engines(context))
    // The fused engine supports only aligned problems with scales: int8_fused_test.cpp tests it.
    if (engine.available && engine.name != "fused") names.push_back(engine.name);
  return names;
}

/// The sizes of a product.
struct Shape {
  std::int64_t m, n, k;
};

/// A matrix of random codes.
inline Matrix<std::int8_t> random_codes(std::int64_t rows, std::int64_t cols, Random& random,
                                        Layout layout = {}) {
  Matrix<std::int8_t> codes(rows, cols, layout);
  fill_codes(codes, random);
  return codes;
}

/// Whether B is given to the product as plain codes or as a PackedWeight.
enum class Give { plain, packed };

/// Computes the int32 sums with the given engine. If its name is empty, the library chooses one.
inline void multiply(Context& context, const Matrix<std::int8_t>& a, const Matrix<std::int8_t>& b,
                     Matrix<std::int32_t>& d, const std::string& engine, Give give = Give::plain) {
  GemmS8S8S32Args args;
  args.a = a.view();
  args.d = d.view();
  args.engine = engine;
  PackedWeight packed;
  if (give == Give::packed) {
    pack_weight(context, b.view(), packed, engine);
    args.packed_b = &packed;
  } else {
    args.b = b.view();
  }
  gemm_s8s8s32(context, args);
}

/// Success if two matrices have the same bits; otherwise the first place where they differ.
template <class T>
::testing::AssertionResult same(const Matrix<T>& got, const Matrix<T>& want) {
  if (got == want) return ::testing::AssertionSuccess();
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c) {
      const T x = got.get(r, c);
      const T y = want.get(r, c);
      // A GPU always stores the same NaN; a CPU's NaN has the sign that its instructions give it.
      if (!on_cpu() && std::isnan(got.get_float(r, c)) && std::isnan(want.get_float(r, c)))
        continue;
      if (std::memcmp(&x, &y, sizeof(T)) != 0)
        return ::testing::AssertionFailure()
               << "[" << r << "," << c << "] is " << static_cast<double>(got.get_float(r, c))
               << ", want " << static_cast<double>(want.get_float(r, c)) << " of [" << want.rows()
               << "," << want.cols() << "]";
    }
  if (got.rows() == want.rows() && got.cols() == want.cols()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "shapes differ";
}

/// A configuration source that answers every query for an int8 product with one configuration and
/// counts these queries.
class FixedConfig final : public ConfigSource {
 public:
  explicit FixedConfig(const gemm_int8::GemmConfig& config)
      : choice_(gemm_int8::to_choice(config)) {}
  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
    if (query.op != ConfigOp::gemm_int8) return false;
    ++queries;
    choice = choice_;
    return true;
  }
  mutable int queries = 0;

 private:
  ConfigChoice choice_;
};

}  // namespace switchback::test
