// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/machine.hpp"

#include <gtest/gtest.h>

#include <string>

namespace switchback::bench {
namespace {

nlohmann::ordered_json machine(const std::string& isa, int threads) {
  return machine_json(Context({"cpu", threads, isa}));
}

TEST(Machine, SaysWhatANumberWasMeasuredOn) {
  const auto json = machine("", 2);
  for (const char* key : {"device", "cpu", "isa", "threads_backend", "os", "kernel", "compiler",
                          "build_type", "sanitizer", "tool_version", "tool_commit"})
    EXPECT_NE(json.at(key).get<std::string>(), "") << key;
  for (const char* key : {"cores", "threads", "l1d_bytes", "l2_bytes", "l3_bytes", "memory_bytes"})
    EXPECT_TRUE(json.at(key).is_number_integer()) << key;
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["threads"], 2);
  EXPECT_GE(json["cores"], 1);
  EXPECT_GT(json["memory_bytes"], 64u << 20);
  EXPECT_TRUE(json["features"].is_array());
  EXPECT_TRUE(json["libraries"].is_object());
  EXPECT_TRUE(json["assertions"].is_boolean());
  EXPECT_TRUE(json["hypervisor"].is_null() || json["hypervisor"].is_string());
}

TEST(Machine, AnIsaCapShows) {
  const auto json = machine("scalar", 1);
  EXPECT_EQ(json["isa"], "scalar");
  EXPECT_TRUE(json["features"].empty());
}

TEST(Machine, ToolNameHoldsVersionAndCommit) {
  EXPECT_NE(tool_name().find(tool_version()), std::string::npos);
  EXPECT_NE(tool_name().find(tool_commit()), std::string::npos);
  EXPECT_FALSE(tool_commit().empty());
}

TEST(Machine, AvailableMemoryIsPartOfMemory) {
  EXPECT_GT(available_memory_bytes(), 0u);
  EXPECT_LE(available_memory_bytes(), memory_bytes());
}

}  // namespace
}  // namespace switchback::bench
