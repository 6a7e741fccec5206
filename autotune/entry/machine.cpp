// SPDX-License-Identifier: Apache-2.0
#include "autotune/entry/machine.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>

#include "core/cpu/isa.hpp"
#include "core/cpu/resources.hpp"
#include "core/device.hpp"
#include "gemm/library_versions.hpp"

#if !defined(SWITCHBACK_VERSION)
#error "the build names the version"
#endif

namespace switchback::autotune {

namespace {

struct Backend {
  DeviceKind kind;
  std::string_view name;
};
constexpr std::array backends = {Backend{DeviceKind::cpu, "cpu"}, Backend{DeviceKind::cuda, "cuda"},
                                 Backend{DeviceKind::emulated, "emulated"}};

std::string_view backend_name(DeviceKind kind) {
  for (const Backend& backend : backends)
    if (backend.kind == kind) return backend.name;
  return "cpu";
}

// Rounds a device's memory to a class. An H100 has 80 GB, and its driver reports 79.6: both must
// fall into one class.
std::int64_t memory_class_gib(std::size_t bytes) {
  const double gib = static_cast<double>(bytes) / static_cast<double>(std::size_t{1} << 30);
  std::int64_t best = 1;
  for (std::int64_t power = 1; power <= (std::int64_t{1} << 20); power *= 2)
    for (const std::int64_t size : {power, power * 3 / 2, power * 5 / 4})
      if (std::abs(static_cast<double>(size) - gib) < std::abs(static_cast<double>(best) - gib))
        best = size;
  return best;
}

}  // namespace

DeviceKind device_kind_of(const Machine& machine) noexcept {
  for (const Backend& backend : backends)
    if (backend.name == machine.backend) return backend.kind;
  return DeviceKind::cpu;
}

Machine machine_of(const ContextState& state) {
  Machine m;
  m.backend = backend_name(state.device.kind);
  if (state.runtime == nullptr) {
    m.design = core::cpu_design();
    m.isa = core::isa_name(core::cpu_features().level());
    m.cores = core::available_cores();
    return m;
  }
  const core::DeviceInfo& info = state.runtime->info();
  m.compute_capability = info.compute_capability();
  m.multiprocessors = info.multiprocessors;
  m.memory_gib = memory_class_gib(info.memory_bytes);
  // The driver names a MIG part of a device "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
  constexpr std::string_view mark = " MIG ";
  const std::size_t at = info.name.find(mark);
  if (at != std::string::npos) m.mig = info.name.substr(at + mark.size());
  return m;
}

std::string machine_name(const Machine& machine) {
  std::string name;
  for (const char c : describe(machine)) {
    const bool stays = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_';
    if (stays)
      name += c;
    else if (!name.ends_with('-'))
      name += '-';
  }
  return name;
}

std::string describe(const Machine& m) {
  if (m.backend == "cpu") return fmt::format("cpu {}, {}, {} cores", m.design, m.isa, m.cores);
  return fmt::format("{} sm_{}, {} multiprocessors, {} GiB{}", m.backend, m.compute_capability,
                     m.multiprocessors, m.memory_gib, m.mig.empty() ? "" : ", MIG " + m.mig);
}

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
