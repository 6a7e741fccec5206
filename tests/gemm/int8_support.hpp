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

/// The engine of that name, which must exist.
inline const gemm_int8::Engine& engine_named(const Context& context, std::string_view name) {
  return *gemm_int8::find_engine(context.state().device.kind, name);
}

/// The engines that run in this Context.
inline std::vector<std::string> available_engines(const Context& context) {
  std::vector<std::string> names;
  for (const EngineInfo& engine : gemm_engines(context))
    // It supports only aligned problems with scales: int8_fused_test.cpp tests it.
    if (engine.available && engine.name != "fused") names.push_back(engine.name);
  return names;
}

/// The form in which B is given to the product.
enum class Give { plain, packed };

/// The int32 product by one engine; empty engine = chosen.
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

/// The first place where two matrices differ, and the difference.
template <class T>
::testing::AssertionResult same(const Matrix<T>& got, const Matrix<T>& want) {
  if (got == want) return ::testing::AssertionSuccess();
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c) {
      const T x = got.get(r, c);
      const T y = want.get(r, c);
      // A CUDA device stores one NaN; a CPU's NaN has the sign that its instructions give it.
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

/// A source that answers every query with one configuration and counts the queries.
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
