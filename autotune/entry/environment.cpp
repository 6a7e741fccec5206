// SPDX-License-Identifier: Apache-2.0
#include "autotune/entry/environment.hpp"

#include <fmt/format.h>

#include "autotune/operations.hpp"
#include "core/cpu/isa.hpp"
#include "core/device.hpp"
#include "core/tunable.hpp"
#include "gemm/library_versions.hpp"

#if !defined(SWITCHBACK_VERSION)
#error "the build names the version"
#endif

namespace switchback::autotune {

namespace {

// Counted up whenever the meaning of a configuration or the speed of kernels changes so much that
// what was measured before says nothing any more.
constexpr std::string_view kernels_of_cpu = "quantize 3, int8 2";
constexpr std::string_view kernels_of_cuda = "quantize 2, int8 2";

}  // namespace

Environment environment_of(const ContextState& state) {
  Environment env;
  const bool cpu = state.runtime == nullptr;
  env.kernels = cpu ? kernels_of_cpu : kernels_of_cuda;
  for (const auto& [name, version] : library_versions(state.device.kind)) {
    if (name == "oneDNN") env.onednn = version;
    if (name == "OpenBLAS") env.openblas = version;
    if (name == "cuBLASLt") env.cublaslt = version;
  }
  if (cpu) {
    env.product = core::cpu_model();
  } else {
    const core::DeviceInfo& info = state.runtime->info();
    env.product = info.name;
    env.driver = fmt::format("{}.{}", info.driver_version / 1000, info.driver_version % 1000 / 10);
  }
  env.tool = SWITCHBACK_VERSION;
  return env;
}

std::string mismatch(ConfigOp op, std::string_view engine, const Environment& then,
                     const Environment& now) {
  const auto differs = [](std::string_view what, std::string_view a, std::string_view b) {
    return fmt::format("measured with {} '{}', this is '{}'", what, a, b);
  };
  const core::Tunable& tunable = tunable_of(op);
  const bool everything = tunable.is_composed();
  const auto uses = [&](std::string_view library) {
    return everything || engine.starts_with(library);
  };
  const bool library_only =
      uses("onednn") || uses("openblas") || (tunable.cublaslt_alone && uses("cublaslt"));
  if ((everything || !library_only) && then.kernels != now.kernels)
    return differs("kernels", then.kernels, now.kernels);
  if (uses("onednn") && then.onednn != now.onednn)
    return differs("oneDNN", then.onednn, now.onednn);
  if (uses("openblas") && then.openblas != now.openblas)
    return differs("OpenBLAS", then.openblas, now.openblas);
  if (uses("cublaslt") && then.cublaslt != now.cublaslt)
    return differs("cuBLASLt", then.cublaslt, now.cublaslt);
  return {};
}

}  // namespace switchback::autotune
