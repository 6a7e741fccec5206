// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/nvml.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <utility>

namespace switchback::bench {

namespace {

// The functions of NVML that are used, by their documented signatures; success is 0.
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

// Bits of nvmlDeviceGetCurrentClocksThrottleReasons that mean "slower than it could be". An idle
// GPU (bit 0) and clocks set by somebody (bit 1) are not throttled.
constexpr std::array<std::pair<std::uint64_t, const char*>, 6> bits = {{{0x4, "power cap"},
                                                                        {0x8, "hardware slowdown"},
                                                                        {0x10, "sync boost"},
                                                                        {0x20, "software thermal"},
                                                                        {0x40, "hardware thermal"},
                                                                        {0x80, "power brake"}}};

}  // namespace

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

}  // namespace switchback::bench
