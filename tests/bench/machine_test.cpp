// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/machine.hpp"

#include <gtest/gtest.h>

#include <string>

namespace switchback::bench {
namespace {

nlohmann::ordered_json machine(const std::string& isa, int threads) {
  ContextOptions options;
  options.device = "cpu";
  options.threads = threads;
  options.isa = isa;
  const Context context(options);
  return machine_json(context);
}

TEST(Machine, SaysWhatANumberWasMeasuredOn) {
  const auto json = machine("", 2);
  for (const char* key : {"device", "cpu", "isa", "threads_backend", "os", "kernel", "compiler",
                          "build_type", "sanitizer", "tool_version", "tool_commit"}) {
    ASSERT_TRUE(json.contains(key)) << key;
    EXPECT_TRUE(json[key].is_string()) << key;
    EXPECT_FALSE(json[key].get<std::string>().empty()) << key;
  }
  for (const char* key :
       {"cores", "threads", "l1d_bytes", "l2_bytes", "l3_bytes", "memory_bytes"}) {
    ASSERT_TRUE(json.contains(key)) << key;
    EXPECT_TRUE(json[key].is_number_unsigned() || json[key].is_number_integer()) << key;
  }
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
