// SPDX-License-Identifier: Apache-2.0
#include "core/device_table.hpp"

#include <gtest/gtest.h>

namespace switchback {
namespace {

enum class Id { none, slow, fast };
struct Engine {
  Id id;
  std::string_view name;
};

constexpr Engine slow = {Id::slow, "slow"};
constexpr Engine fast = {Id::fast, "fast"};
constexpr std::array on_cpu = {&fast, &slow};
constexpr std::array on_device = {&slow};

TEST(DeviceTable, KindsThatAreLeftOutAreEmptyUntilSomethingIsInstalled) {
  core::DeviceTable<const Engine*> table = {{&slow}};
  EXPECT_EQ(table.of(DeviceKind::cpu), &slow);
  EXPECT_EQ(table.of(DeviceKind::cuda), nullptr);
  EXPECT_EQ(table.of(DeviceKind::emulated), nullptr);
  table.install(DeviceKind::emulated, &fast);
  EXPECT_EQ(table.of(DeviceKind::emulated), &fast);
  EXPECT_EQ(table.of(DeviceKind::cpu), &slow);
}

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
  EXPECT_EQ(table.find(DeviceKind::emulated, "slow"), &slow);
  EXPECT_EQ(table.find(DeviceKind::emulated, "fast"), nullptr);
}

}  // namespace
}  // namespace switchback
