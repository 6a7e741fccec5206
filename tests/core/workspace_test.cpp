// SPDX-License-Identifier: Apache-2.0
#include "core/workspace.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "switchback/error.hpp"

namespace switchback::core {
namespace {

TEST(Workspace, PiecesAreAlignedAndApart) {
  Workspace workspace;
  Workspace::Frame frame(workspace);
  auto* a = frame.take<char>(3);
  auto* b = frame.take<float>(1000000);
  auto* c = frame.take<char>(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) % 64, 0u);
  std::memset(a, 1, 3);
  std::memset(b, 2, 4000000);
  *c = 3;
  EXPECT_EQ(a[2], 1);
  EXPECT_EQ(reinterpret_cast<char*>(b)[3999999], 2);
}

TEST(Workspace, SteadyStateAllocatesNothing) {
  Workspace workspace;
  const auto use = [&] {
    Workspace::Frame outer(workspace);
    (void)outer.take<char>(100000);
    void* first = nullptr;
    {
      Workspace::Frame inner(workspace);
      first = inner.take<char>(3000000);
    }
    Workspace::Frame inner(workspace);
    EXPECT_EQ(static_cast<void*>(inner.take<char>(10)), first)
        << "an ended frame gives its memory back";
  };
  use();
  const std::size_t after_first = workspace.capacity_bytes();
  for (int i = 0; i < 10; ++i)
    use();
  EXPECT_EQ(workspace.capacity_bytes(), after_first);
}

TEST(Workspace, WhatIsHeldIsNotGivenOutAgain) {
  Workspace workspace;
  for (int i = 0; i < 3; ++i) {
    Workspace::Frame outer(workspace);
    char* const first = outer.take<char>(1000);
    char* held = nullptr;
    {
      const Workspace::Hold hold(workspace);
      {
        Workspace::Frame inner(workspace);
        held = inner.take<char>(5000);
      }
      Workspace::Frame inner(workspace);
      EXPECT_GE(inner.take<char>(5000), held + 5000);
    }
    char* after = nullptr;
    {
      Workspace::Frame inner(workspace);
      after = inner.take<char>(100);
      EXPECT_GE(after, held + 10000);
    }
    Workspace::Frame inner(workspace);
    EXPECT_EQ(inner.take<char>(100), after) << "only what was held is kept";
    EXPECT_LT(first, held);
  }
  Workspace::Frame frame(workspace);
  EXPECT_NE(frame.take<char>(60000), nullptr);
  EXPECT_LE(workspace.capacity_bytes(), std::size_t{1} << 16) << "all of it came back";
}

TEST(Workspace, ImpossibleSizesThrowAndLeaveItUsable) {
  Workspace workspace;
  Workspace::Frame frame(workspace);
  EXPECT_THROW((void)frame.take<float>(-1), Error);
  EXPECT_THROW((void)frame.take<float>(std::numeric_limits<std::int64_t>::max()), Error);
  EXPECT_NE(frame.take<float>(10), nullptr);
}

}  // namespace
}  // namespace switchback::core
