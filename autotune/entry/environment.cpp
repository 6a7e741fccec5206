// SPDX-License-Identifier: Apache-2.0
#include "autotune/entry/environment.hpp"

#include <fmt/format.h>

#include "core/cpu/isa.hpp"
#include "core/device.hpp"
#include "gemm/library_versions.hpp"

#if !defined(SWITCHBACK_VERSION)
#error "the build names the version"
#endif

namespace switchback::autotune {

namespace {

// Increase this number when the meaning of a configuration or the speed of the kernels changes so
// much that older measurements are no longer useful.
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

}  // namespace switchback::autotune
