// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "core/cpu/isa.hpp"
#include "core/cpu/resources.hpp"
#include "core/device_table.hpp"
#include "support/device_memory.hpp"
#include "support/forked.hpp"
#include "support/refusal.hpp"
#include "switchback/context.hpp"
#include "switchback/error.hpp"
#include "switchback/quant.hpp"

namespace switchback {
namespace {

std::string message_of(const ContextOptions& options, Status status) {
  return test::refusal([&] { const Context context(options); }, status);
}

TEST(Context, DefaultsTakeTheWholeMachine) {
  const Context context;
  EXPECT_EQ(context.device(), "cpu");
  EXPECT_EQ(context.threads(), core::default_threads());
  EXPECT_EQ(context.isa(), core::isa_name(core::cpu_features().level()));
}

// To run the tests on a known CPU, such as an emulated one, set SWITCHBACK_TEST_ISA to the
// instruction set that it must reach.
TEST(Context, ReachesTheInstructionSetOfTheCpu) {
  const char* const expected = std::getenv("SWITCHBACK_TEST_ISA");
  if (expected == nullptr) GTEST_SKIP() << "SWITCHBACK_TEST_ISA is not set";
  EXPECT_EQ(Context({.device = "cpu", .threads = 1}).isa(), expected);
}

// The numbers are the CPUID signatures of these CPUs.
TEST(Cpu, ADesignHasItsFamilyAndModel) {
  using core::cpu_design;
  EXPECT_EQ(cpu_design("AuthenticAMD", 0x00A10F11), "AMD family 25 model 17");    // Zen 4
  EXPECT_EQ(cpu_design("AuthenticAMD", 0x00B00F21), "AMD family 26 model 2");     // Zen 5
  EXPECT_EQ(cpu_design("GenuineIntel", 0x000606A6), "Intel family 6 model 106");  // Ice Lake
  EXPECT_EQ(cpu_design("GenuineIntel", 0x000806F8), "Intel family 6 model 143");  // Sapphire Rapids
  EXPECT_EQ(cpu_design("Other", 0x00000543), "Other family 5 model 4");
  EXPECT_NE(core::cpu_design(), "");
}

TEST(AfterFork, AContextOfADeviceIsRefused) {
  if (test::default_device() != "emulated:0") GTEST_SKIP() << "this build has no emulated device";
  Context device({.device = "emulated:0"});
  const auto refused = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.status() == Status::invalid_state &&
             std::string(error.what()).find("cannot be used after fork()") != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(test::in_child([&] {
    return refused([&] { device.synchronize(); }) && refused([&] { device.set_stream(&device); }) &&
           refused([&] { column_sums(device, {}, {}); });
  }));
  device.synchronize();
}

TEST(Context, BadOptionsAreNamed) {
  EXPECT_EQ(message_of({.device = "tpu", .threads = 0, .isa = ""}, Status::invalid_argument),
            "device 'tpu' is not one of cpu, cuda, cuda:N");
  EXPECT_EQ(message_of({.device = "cuda:x", .threads = 0, .isa = ""}, Status::invalid_argument),
            "device 'cuda:x' is not one of cpu, cuda, cuda:N");
  // A machine never has 4001 devices. The rest of the message depends on the build and the machine.
  EXPECT_TRUE(message_of({.device = "cuda:4000", .threads = 0, .isa = ""}, Status::device_error)
                  .starts_with("device 'cuda:4000': this "));
  EXPECT_EQ(message_of({.device = "cpu", .threads = -2, .isa = ""}, Status::invalid_argument),
            "context: threads = -2; it must be 0 (all cores) to 4096");
  EXPECT_NE(message_of({.device = "cpu", .threads = 1, .isa = "avx9"}, Status::invalid_argument)
                .find("isa 'avx9' is not one of scalar, sse4, avx2"),
            std::string::npos);
}

TEST(Context, CapsTheInstructionSet) {
  for (const core::Isa cap : core::all_isas()) {
    const Context context({.device = "cpu", .threads = 1, .isa = std::string(core::isa_name(cap))});
    EXPECT_LE(static_cast<int>(core::parse_isa(context.isa())), static_cast<int>(cap));
  }
}

TEST(Context, ACapCoversWhatIsNotAboveIt) {
  using core::Isa;
  const std::vector<Isa>& all = core::all_isas();
  EXPECT_EQ(static_cast<int>(all.size()), core::isa_count);
  for (const Isa cap : all) {
    EXPECT_TRUE(core::covers(cap, cap));
    EXPECT_TRUE(core::covers(cap, Isa::scalar));
    EXPECT_EQ(core::covers(Isa::scalar, cap), cap == Isa::scalar);
    // If a CPU with all features is capped, it has exactly the features of the cap.
    const core::CpuFeatures everything{.sse4 = true,
                                       .avx2 = true,
                                       .avx_vnni = true,
                                       .avx512 = true,
                                       .avx512_vnni = true,
                                       .amx_int8 = true,
                                       .neon = true,
                                       .neon_dotprod = true,
                                       .neon_i8mm = true};
    const core::CpuFeatures capped = everything.capped(cap);
    for (const Isa isa : all)
      EXPECT_EQ(capped.has(isa), core::covers(cap, isa));
  }
  EXPECT_FALSE(core::covers(Isa::avx_vnni, Isa::avx512));
  EXPECT_FALSE(core::covers(Isa::neon_i8mm, Isa::sse4));
  EXPECT_FALSE(core::covers(Isa::amx, Isa::neon));
  EXPECT_FALSE(core::covers(static_cast<Isa>(core::isa_count), Isa::scalar));
  EXPECT_TRUE(core::CpuFeatures{}.has(Isa::scalar));
  EXPECT_FALSE(core::CpuFeatures{}.has(Isa::sse4));
}

TEST(Context, Moves) {
  Context a({.device = "cpu", .threads = 2, .isa = ""});
  Context b = std::move(a);
  EXPECT_EQ(b.threads(), 2);
}

enum class Id { none, slow, fast };
struct Engine {
  Id id;
  std::string_view name;
};

constexpr Engine slow = {Id::slow, "slow"};
constexpr Engine fast = {Id::fast, "fast"};
constexpr std::array on_cpu = {&fast, &slow};
constexpr std::array on_device = {&slow};

TEST(DeviceTable, EnginesAreFoundByKindAndNumberOrName) {
  core::EngineTable<Engine> table = {{{on_cpu}}};
  EXPECT_EQ(table.find(DeviceKind::cpu, Id::slow), &slow);
  EXPECT_EQ(table.find(DeviceKind::cpu, "fast"), &fast);
  EXPECT_EQ(table.find(DeviceKind::cpu, Id::none), nullptr);
  EXPECT_EQ(table.find(DeviceKind::cpu, ""), nullptr);
  EXPECT_EQ(table.names(DeviceKind::cpu), "fast, slow");
  EXPECT_EQ(table.find(DeviceKind::emulated, "slow"), nullptr);
  EXPECT_EQ(table.names(DeviceKind::emulated), "");
  table.install(DeviceKind::emulated, on_device);
  EXPECT_EQ(table.find(DeviceKind::cpu, "fast"), &fast);
  EXPECT_EQ(table.find(DeviceKind::emulated, "slow"), &slow);
  EXPECT_EQ(table.find(DeviceKind::emulated, "fast"), nullptr);
}

}  // namespace
}  // namespace switchback
