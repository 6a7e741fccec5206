// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/memory.hpp"

#include <unistd.h>

#include <fstream>
#include <string>

namespace switchback::core {

namespace {

std::size_t pages(int name) {
  const long count = sysconf(name);
  const long size = sysconf(_SC_PAGESIZE);
  return count > 0 && size > 0 ? static_cast<std::size_t>(count) * static_cast<std::size_t>(size)
                               : 0;
}

}  // namespace

std::size_t memory_bytes() {
  return pages(_SC_PHYS_PAGES);
}

std::size_t available_memory_bytes() {
  // MemAvailable includes page cache that the kernel can drop; MemFree does not.
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::string rest;
  std::size_t kib = 0;
  while (file >> key) {
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
    std::getline(file, rest);
  }
#if defined(_SC_AVPHYS_PAGES)
  return pages(_SC_AVPHYS_PAGES);
#else
  return 0;
#endif
}

}  // namespace switchback::core
