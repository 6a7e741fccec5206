// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/isa.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <thread>

#include "core/check.hpp"

#if defined(__x86_64__) || defined(__i386__)
#define SWITCHBACK_X86 1
#include <cpuid.h>
#elif defined(__aarch64__)
#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

namespace switchback::core {

namespace {

enum class Architecture { any, x86, arm };

struct Level {
  Isa isa;
  std::string_view name;
  Architecture architecture;
  // The flag of the level; null: every CPU has it.
  bool CpuFeatures::*feature;
};

// All instruction set levels. Those of one architecture are in ascending order.
constexpr std::array<Level, isa_count> levels = {{
    {Isa::scalar, "scalar", Architecture::any, nullptr},
    {Isa::sse4, "sse4", Architecture::x86, &CpuFeatures::sse4},
    {Isa::avx2, "avx2", Architecture::x86, &CpuFeatures::avx2},
    {Isa::avx_vnni, "avx_vnni", Architecture::x86, &CpuFeatures::avx_vnni},
    {Isa::avx512, "avx512", Architecture::x86, &CpuFeatures::avx512},
    {Isa::avx512_vnni, "avx512_vnni", Architecture::x86, &CpuFeatures::avx512_vnni},
    {Isa::amx, "amx", Architecture::x86, &CpuFeatures::amx_int8},
    {Isa::neon, "neon", Architecture::arm, &CpuFeatures::neon},
    {Isa::neon_dotprod, "neon_dotprod", Architecture::arm, &CpuFeatures::neon_dotprod},
    {Isa::neon_i8mm, "neon_i8mm", Architecture::arm, &CpuFeatures::neon_i8mm},
}};

// The index of an instruction set level in the table; levels.size() if the value is not a level.
constexpr std::size_t rank_of(Isa isa) {
  std::size_t rank = 0;
  while (rank < levels.size() && levels[rank].isa != isa)
    ++rank;
  return rank;
}

constexpr bool every_value_has_a_level() {
  for (int value = 0; value < isa_count; ++value)
    if (rank_of(static_cast<Isa>(value)) == levels.size()) return false;
  return true;
}
static_assert(every_value_has_a_level());

}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  const std::size_t rank = rank_of(isa);
  return rank < levels.size() ? levels[rank].name : "unknown";
}

const std::vector<Isa>& all_isas() {
  static const std::vector<Isa> isas = [] {
    std::vector<Isa> all;
    for (const Level& level : levels)
      all.push_back(level.isa);
    return all;
  }();
  return isas;
}

Isa parse_isa(std::string_view name) {
  std::string names;
  for (const Level& level : levels) {
    if (name == level.name) return level.isa;
    names.append(names.empty() ? "" : ", ").append(level.name);
  }
  fail(Status::invalid_argument, "isa '{}' is not one of {}", name, names);
}

bool covers(Isa cap, Isa isa) noexcept {
  const std::size_t limit = rank_of(cap);
  const std::size_t rank = rank_of(isa);
  if (limit == levels.size() || rank == levels.size()) return false;
  const Architecture architecture = levels[rank].architecture;
  return rank <= limit &&
         (architecture == Architecture::any || architecture == levels[limit].architecture);
}

bool CpuFeatures::has(Isa isa) const noexcept {
  const std::size_t rank = rank_of(isa);
  return rank < levels.size() && (levels[rank].feature == nullptr || this->*levels[rank].feature);
}

Isa CpuFeatures::level() const noexcept {
  for (auto level = levels.rbegin(); level != levels.rend(); ++level)
    if (level->feature != nullptr && this->*level->feature) return level->isa;
  return Isa::scalar;
}

CpuFeatures CpuFeatures::capped(Isa cap) const noexcept {
  CpuFeatures f = *this;
  for (const Level& level : levels)
    if (level.feature != nullptr && !covers(cap, level.isa)) f.*level.feature = false;
  f.avx512_bf16 = f.avx512_bf16 && covers(cap, Isa::avx512_vnni);
  f.amx_bf16 = f.amx_bf16 && covers(cap, Isa::amx);
  return f;
}

namespace {

#ifdef SWITCHBACK_X86

struct Registers {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

bool bit(std::uint32_t value, int index) {
  return ((value >> index) & 1u) != 0;
}

std::uint64_t xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

// Linux lets a process use AMX tiles only after the process has asked for permission.
bool request_amx_permission() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr int arch_req_xcomp_perm = 0x1023;
  constexpr int xfeature_xtiledata = 18;
  return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
#else
  return false;
#endif
}

CpuFeatures probe() {
  CpuFeatures f;
  const Registers one = cpuid(1, 0);
  const Registers seven = cpuid(7, 0);
  const Registers seven_one = cpuid(7, 1);
  f.sse4 = bit(one.c, 9) && bit(one.c, 19) && bit(one.c, 20);
  if (!bit(one.c, 27)) return f;  // the OSXSAVE bit: without it the system does not save AVX state
  const std::uint64_t state = xcr0();
  const bool ymm = (state & 0x6) == 0x6;
  const bool zmm = (state & 0xE6) == 0xE6;
  const bool tiles = (state & 0x60000) == 0x60000;
  f.avx2 = f.sse4 && ymm && bit(one.c, 28) && bit(one.c, 12) && bit(one.c, 29) && bit(seven.b, 5);
  f.avx_vnni = f.avx2 && bit(seven_one.a, 4);
  f.avx512 = f.avx2 && zmm && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 28) &&
             bit(seven.b, 30) && bit(seven.b, 31);
  f.avx512_vnni = f.avx512 && bit(seven.c, 11);
  f.avx512_bf16 = f.avx512 && bit(seven_one.a, 5);
  f.amx_int8 = f.avx512_vnni && f.avx512_bf16 && tiles && bit(seven.d, 24) && bit(seven.d, 25) &&
               request_amx_permission();
  f.amx_bf16 = f.amx_int8 && bit(seven.d, 22);
  return f;
}

std::string probe_model() {
  std::array<char, 49> brand{};
  for (std::uint32_t leaf = 0; leaf < 3; ++leaf) {
    const Registers r = cpuid(0x80000002u + leaf, 0);
    std::memcpy(brand.data() + 16 * leaf, &r, 16);
  }
  std::string model(brand.data());
  const auto first = model.find_first_not_of(' ');
  const auto last = model.find_last_not_of(' ');
  return first == std::string::npos ? "unknown" : model.substr(first, last - first + 1);
}

std::string probe_vendor() {
  const Registers r = cpuid(0, 0);
  const std::array<std::uint32_t, 3> words = {r.b, r.d, r.c};
  std::array<char, sizeof(words) + 1> name{};
  std::memcpy(name.data(), words.data(), sizeof(words));
  return name.data();
}

std::string probe_design() {
  return cpu_design(cpu_vendor(), cpuid(1, 0).a);
}

#else

std::string probe_design() {
  return cpu_model();
}
std::string probe_vendor() {
  return {};
}

#if defined(__aarch64__) && defined(__APPLE__)

bool has_feature(const char* name) {
  int value = 0;
  std::size_t size = sizeof(value);
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

CpuFeatures probe() {
  CpuFeatures f;
  f.neon = true;
  f.neon_dotprod = has_feature("hw.optional.arm.FEAT_DotProd");
  f.neon_i8mm = f.neon_dotprod && has_feature("hw.optional.arm.FEAT_I8MM");
  return f;
}

std::string probe_model() {
  std::array<char, 128> brand{};
  std::size_t size = brand.size() - 1;
  if (sysctlbyname("machdep.cpu.brand_string", brand.data(), &size, nullptr, 0) != 0)
    return "unknown";
  return brand.data();
}

#elif defined(__aarch64__) && defined(__linux__)

// Numbers of feature bits in the words of getauxval(). Older system headers do not name them.
constexpr int hwcap_cpuid = 11;
constexpr int hwcap_asimddp = 20;
constexpr int hwcap2_i8mm = 13;

bool has_feature(unsigned long words, int bit) {
  return (getauxval(words) >> bit & 1) != 0;
}

CpuFeatures probe() {
  CpuFeatures f;
  f.neon = true;
  f.neon_dotprod = has_feature(AT_HWCAP, hwcap_asimddp);
  f.neon_i8mm = f.neon_dotprod && has_feature(AT_HWCAP2, hwcap2_i8mm);
  return f;
}

// Arm CPUs have numbers for implementer and part instead of a name. Linux lets programs read them.
std::string probe_model() {
  if (!has_feature(AT_HWCAP, hwcap_cpuid)) return "unknown";
  std::uint64_t id = 0;
  __asm__("mrs %0, midr_el1" : "=r"(id));
  return fmt::format("Arm implementer {:#x} part {:#x}", id >> 24 & 0xFF, id >> 4 & 0xFFF);
}

#else

CpuFeatures probe() {
  CpuFeatures f;
#if defined(__aarch64__)
  f.neon = true;
#endif
  return f;
}
std::string probe_model() {
  return "unknown";
}

#endif

#endif

// The size of a cache from the system's table in /sys, else from sysconf(): glibc computes that
// from CPUID, which in a virtual machine may count the caches of the whole socket.
std::size_t cache_bytes(int level, int sysconf_name) {
#if defined(__linux__)
  for (int index = 0; index < 8; ++index) {
    const std::string directory =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int this_level = 0;
    std::string type;
    std::size_t size = 0;
    char unit = 0;
    if (!(std::ifstream(directory + "level") >> this_level)) break;
    if (this_level != level) continue;
    if (!(std::ifstream(directory + "type") >> type) || type == "Instruction") continue;
    if (std::ifstream(directory + "size") >> size >> unit)
      return size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0);
  }
#endif
  const long bytes = sysconf(sysconf_name);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = probe();
  return features;
}

const CpuCaches& cpu_caches() {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  static const CpuCaches caches = {cache_bytes(1, _SC_LEVEL1_DCACHE_SIZE),
                                   cache_bytes(2, _SC_LEVEL2_CACHE_SIZE),
                                   cache_bytes(3, _SC_LEVEL3_CACHE_SIZE)};
#else
  static const CpuCaches caches;
#endif
  return caches;
}

std::string cpu_model() {
  static const std::string model = probe_model();
  return model;
}

std::string_view cpu_vendor() {
  static const std::string vendor = probe_vendor();
  return vendor;
}

std::string cpu_design(std::string_view vendor, std::uint32_t signature) {
  const auto bits = [&](int from, int count) { return signature >> from & ((1U << count) - 1); };
  std::uint32_t family = bits(8, 4);
  std::uint32_t model = bits(4, 4);
  // CPUID's extended model field belongs to the model number only for families 6 and 15.
  if (family == 0x6 || family == 0xF) model += bits(16, 4) << 4;
  if (family == 0xF) family += bits(20, 8);
  if (vendor == "AuthenticAMD") vendor = "AMD";
  if (vendor == "GenuineIntel") vendor = "Intel";
  return fmt::format("{} family {} model {}", vendor, family, model);
}

const std::string& cpu_design() {
  static const std::string design = probe_design();
  return design;
}

int available_cores() {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
  const unsigned cores = std::thread::hardware_concurrency();
  return cores > 0 ? static_cast<int>(cores) : 1;
}

}  // namespace switchback::core
