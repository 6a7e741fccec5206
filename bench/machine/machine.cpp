// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/machine.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "core/context_state.hpp"
#include "gemm/library_versions.hpp"
#include "measure/cpu_load.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace switchback::bench {

namespace {

// The functions of NVML (the NVIDIA driver's management library) that are used, with their
// documented signatures. They return 0 on success.
struct Nvml {
  int (*init)() = nullptr;
  int (*device_by_pci)(const char*, void**) = nullptr;
  int (*reasons)(void*, unsigned long long*) = nullptr;

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    device_by_pci = reinterpret_cast<int (*)(const char*, void**)>(
        dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2"));
    reasons = reinterpret_cast<int (*)(void*, unsigned long long*)>(
        dlsym(library, "nvmlDeviceGetCurrentClocksThrottleReasons"));
  }
};

// Bits of nvmlDeviceGetCurrentClocksThrottleReasons that mean that the GPU runs slower than it
// could. An idle GPU (bit 0) and clocks that were set (bit 1) are not throttled.
constexpr std::array<std::pair<std::uint64_t, const char*>, 6> bits = {{{0x4, "power cap"},
                                                                        {0x8, "hardware slowdown"},
                                                                        {0x10, "sync boost"},
                                                                        {0x20, "software thermal"},
                                                                        {0x40, "hardware thermal"},
                                                                        {0x80, "power brake"}}};

// Why the GPU at this PCI address currently runs below its clock rates, from the driver's
// management library: "none", reasons separated by commas, or "not known" if the library is missing
// or does not say.
std::string throttling(const std::string& pci_bus_id) {
  static const Nvml nvml;
  if (nvml.init == nullptr || nvml.device_by_pci == nullptr || nvml.reasons == nullptr)
    return "not known";
  void* device = nullptr;
  unsigned long long reasons = 0;
  if (nvml.init() != 0 || nvml.device_by_pci(pci_bus_id.c_str(), &device) != 0 ||
      nvml.reasons(device, &reasons) != 0)
    return "not known";
  std::string text;
  for (const auto& [bit, name] : bits)
    if ((reasons & bit) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  return text.empty() ? "none" : text;
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#else
  return "unknown";
#endif
}

// The name of the operating system: PRETTY_NAME="…" in /etc/os-release.
std::string os_name() {
  std::ifstream file("/etc/os-release");
  std::string line;
  const std::string key = "PRETTY_NAME=";
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    std::string name = line.substr(key.size());
    std::erase(name, '"');
    return name;
  }
  return "unknown";
}

std::string kernel() {
  utsname system{};
  if (uname(&system) != 0) return "unknown";
  return std::string(system.sysname) + " " + system.release + " " + system.machine;
}

nlohmann::ordered_json hypervisor() {
#if defined(__x86_64__) || defined(__i386__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned hypervisor_present = 1u << 31;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & hypervisor_present) == 0) return nullptr;
  __cpuid(0x40000000, a, b, c, d);
  std::array<char, 13> vendor{};
  std::memcpy(vendor.data(), &b, 4);
  std::memcpy(vendor.data() + 4, &c, 4);
  std::memcpy(vendor.data() + 8, &d, 4);
  return std::string(vendor.data());
#else
  return nullptr;
#endif
}

nlohmann::ordered_json feature_names(const core::CpuFeatures& f) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  const auto add = [&](bool has, const char* name) {
    if (has) names.push_back(name);
  };
  add(f.sse4, "sse4");
  add(f.avx2, "avx2");
  add(f.avx_vnni, "avx_vnni");
  add(f.avx512, "avx512");
  add(f.avx512_vnni, "avx512_vnni");
  add(f.avx512_bf16, "avx512_bf16");
  add(f.amx_int8, "amx_int8");
  add(f.neon, "neon");
  add(f.neon_dotprod, "neon_dotprod");
  add(f.neon_i8mm, "neon_i8mm");
  return names;
}

nlohmann::ordered_json libraries(DeviceKind device) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, version] : library_versions(device))
    json[name] = version;
  return json;
}

}  // namespace

std::string tool_version() {
  return build_info::version;
}
std::string tool_commit() {
  return build_info::commit;
}
std::string tool_name() {
  return "switchback-bench " + tool_version() + " (" + tool_commit() + ")";
}

std::string busy_warning() {
  measure::LoadMonitor monitor(core::available_cores());
  std::this_thread::sleep_for(std::chrono::milliseconds(220));
  const std::optional<double> others = monitor.others_cores();
  if (!monitor.disturbs(others)) return {};
  return fmt::format(
      "warning: {} just now; times measured meanwhile do not show what this machine can do",
      measure::load_text(*others, monitor.cores()));
}

namespace {

std::string cuda_version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

nlohmann::ordered_json device_json(const Context& context) {
  const core::DeviceInfo& info = context.state().runtime->info();
  nlohmann::ordered_json json;
  json["gpu_name"] = info.name;
  json["compute_capability"] = fmt::format("{}.{}", info.compute_major, info.compute_minor);
  json["multiprocessors"] = std::to_string(info.multiprocessors);
  json["gpu_memory"] = fmt::format("{:.1f} GiB", static_cast<double>(info.memory_bytes) / 0x1p30);
  json["gpu_l2"] = fmt::format("{:.1f} MiB", static_cast<double>(info.l2_bytes) / 0x1p20);
  json["gpu_clock"] = fmt::format("{} MHz", info.core_clock_khz / 1000);
  json["gpu_memory_clock"] = fmt::format("{} MHz", info.memory_clock_khz / 1000);
  json["driver"] = "supports CUDA " + cuda_version(info.driver_version);
  json["cuda_runtime"] = cuda_version(info.runtime_version);
  json["gpu_throttling"] = throttling(info.pci_bus_id);
  return json;
}

}  // namespace

nlohmann::ordered_json machine_json(const Context& context) {
  const core::CpuCaches& caches = core::cpu_caches();
  nlohmann::ordered_json json;
  json["device"] = context.device();
  json["cpu"] = core::cpu_model();
  json["isa"] = std::string(context.isa());
  json["features"] = feature_names(context.state().features);
  json["cores"] = core::available_cores();
  json["threads"] = context.threads();
  json["threads_backend"] = core::threads_backend();
  json["l1d_bytes"] = caches.l1d_bytes;
  json["l2_bytes"] = caches.l2_bytes;
  json["l3_bytes"] = caches.l3_bytes;
  json["memory_bytes"] = memory_bytes();
  if (context.state().runtime != nullptr) json["gpu"] = device_json(context);
  json["os"] = os_name();
  json["kernel"] = kernel();
  json["hypervisor"] = hypervisor();
  json["compiler"] = compiler();
  json["build_type"] = build_info::build_type;
  json["assertions"] = build_info::assertions;
  json["sanitizer"] = build_info::sanitizer;
  json["libraries"] = libraries(context.state().device.kind);
  json["tool_version"] = tool_version();
  json["tool_commit"] = tool_commit();
  return json;
}

}  // namespace switchback::bench
