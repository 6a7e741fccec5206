// SPDX-License-Identifier: Apache-2.0
#include "linear/checks.hpp"

#include <string>

#include "core/check.hpp"
#include "core/check_enum.hpp"
#include "linear/mode.hpp"
#include "switchback/gemm.hpp"

namespace switchback::linear {

namespace {

void check_engine(std::string_view op, const Context& context, const LinearOptions& options) {
  if (options.engine.empty()) return;
  const auto engines =
      options.mode == Mode::standard ? gemm_standard_engines(context) : gemm_engines(context);
  std::string names;
  for (const EngineInfo& engine : engines) {
    if (engine.name == options.engine) {
      if (!engine.available)
        core::fail(Status::unsupported, "{}: engine '{}' is not available: {}", op, options.engine,
                   engine.reason);
      return;
    }
    names += (names.empty() ? "" : ", ") + engine.name;
  }
  core::fail(Status::invalid_argument, "{}: engine '{}' is not one of {} (mode {})", op,
             options.engine, names, mode_name(options.mode));
}

// Checks the modes that mode auto may choose from: at least one must be possible.
void check_allowed(std::string_view op, const LinearOptions& options) {
  if (options.mode != Mode::automatic) {
    core::require(options.allow == 0, "{}: allow = {}; only mode auto chooses, not mode {}", op,
                  options.allow, mode_name(options.mode));
    return;
  }
  core::require((options.allow & ~all_choosable) == 0,
                "{}: allow = {}; mode auto chooses from standard (bit 0), rowwise (bit 1) and "
                "global (bit 2)",
                op, options.allow);
  core::require(options.engine.empty(),
                "{}: engine '{}' in mode auto; it chooses between products that have different "
                "engines",
                op, options.engine);
}

void check_features(std::string_view op, std::string_view name, std::int64_t features,
                    const LinearOptions& options, std::string_view product) {
  const Mode mode = options.mode;
  const bool may_be_standard =
      mode == Mode::standard ||
      (mode == Mode::automatic &&
       (options.allow == 0 || (options.allow & allow_mode(Mode::standard)) != 0));
  core::require(features >= 1, "{}: {} = {}; it must be at least 1", op, name, features);
  core::require(may_be_standard || features <= max_exact_k,
                "{}: {} = {}; in mode {} it must be at most {}, or the int32 sums of codes "
                "over it ({}) could overflow",
                op, name, features, mode_name(mode), max_exact_k, product);
}

}  // namespace

void check_options(std::string_view op, const Context& context, const LinearOptions& options) {
  core::check_enum<mode_name>(op, "mode", options.mode);
  check_allowed(op, options);
  check_features(op, "in_features", options.in_features, options, "the forward pass");
  check_features(op, "out_features", options.out_features, options, "dX");
  core::check_float(op, "dtype", options.dtype);
  core::check_enum<activation_name>(op, "activation", options.activation);
  check_engine(op, context, options);
}

void check_dtype(std::string_view op, std::string_view argument, DType dtype, DType layer) {
  core::require(dtype == layer, "{}: {} has dtype {}; it must be the layer's, {}", op, argument,
                dtype_name(dtype), dtype_name(layer));
}

void check_output_dtype(std::string_view op, std::string_view argument, DType dtype, DType layer) {
  core::require(dtype == layer || dtype == DType::f32,
                "{}: {} has dtype {}; it must be the layer's, {}, or f32", op, argument,
                dtype_name(dtype), dtype_name(layer));
}

}  // namespace switchback::linear
