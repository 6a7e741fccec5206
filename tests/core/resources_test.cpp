// SPDX-License-Identifier: Apache-2.0
// The CPU quota of a container, read from the files of control groups, versions 1 and 2.
#include "core/cpu/resources.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/cpu/isa.hpp"
#include "support/temporary_directory.hpp"

namespace switchback::test {
namespace {

class Quota : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const auto file = root_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  [[nodiscard]] std::optional<double> quota() const { return core::cpu_quota(root_.path()); }

  const TemporaryDirectory root_;
};

TEST_F(Quota, NoControlGroupsIsNoLimit) {
  EXPECT_EQ(quota(), std::nullopt);
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(Quota, Version2) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(Quota, TheLeastOfAllLevelsCounts) {
  write("proc/self/cgroup", "0::/system.slice/a.service\n");
  write("sys/fs/cgroup/system.slice/cpu.max", "200000 100000\n");
  write("sys/fs/cgroup/system.slice/a.service/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 2.0);
  write("sys/fs/cgroup/system.slice/a.service/cpu.max", "20000 100000\n");
  EXPECT_EQ(quota(), 0.2);
}

TEST_F(Quota, Version1) {
  write("proc/self/cgroup",
        "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\nno line\n");
  write("sys/fs/cgroup/memory/docker/x/cpu.cfs_quota_us", "1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  // In a container, the mount's root is the container's own group, but /proc/self/cgroup has the
  // group's path on the host.
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(quota(), 1.0);
  write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(Quota, BrokenFilesAreNoLimit) {
  write("proc/self/cgroup", "0::/../other\n");
  write("sys/fs/cgroup/cpu.max", "many\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/cpu.max", "100000 0\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST(DefaultThreads, AreWithinTheCores) {
  EXPECT_GE(core::default_threads(), 1);
  EXPECT_LE(core::default_threads(), core::available_cores());
}

}  // namespace
}  // namespace switchback::test
