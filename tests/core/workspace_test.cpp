// SPDX-License-Identifier: Apache-2.0
#include "core/workspace.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

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

// A source of little memory: counts the bytes in use, and does not give more than it has.
class Scarce final : public MemorySource {
 public:
  explicit Scarce(std::size_t bytes) : most_(bytes) {}
  void* allocate(std::size_t bytes) override {
    if (bytes > most_ - live_) throw Error(Status::out_of_memory, "there is no more");
    live_ += bytes;
    return std::malloc(bytes);
  }
  void release(void* data, std::size_t bytes) noexcept override {
    live_ -= bytes;
    std::free(data);
  }
  [[nodiscard]] bool pins() const override { return captures; }
  [[nodiscard]] std::size_t live() const noexcept { return live_; }
  bool captures = false;

 private:
  std::size_t most_;
  std::size_t live_ = 0;
};

TEST(Workspace, WhatIsTooSmallIsGivenBackBeforeMoreIsAskedFor) {
  constexpr std::size_t mebi = std::size_t{1} << 20;
  const auto source = std::make_shared<Scarce>(10 * mebi);
  Workspace workspace(source);
  for (const std::int64_t mebis : {4, 8, 10}) {
    {
      Workspace::Frame frame(workspace);
      EXPECT_NE(frame.take<std::byte>(mebis << 20), nullptr);
    }
    EXPECT_EQ(source->live(), static_cast<std::size_t>(mebis) * mebi);
  }
  // A request for more memory than exists fails. It does not take memory from later requests.
  {
    Workspace::Frame frame(workspace);
    EXPECT_THROW((void)frame.take<std::byte>(11 << 20), Error);
    EXPECT_NE(frame.take<std::byte>(9 << 20), nullptr);
  }
  // Memory that an outer frame uses stays valid when a request of an inner frame fails.
  Workspace::Frame outer(workspace);
  auto* const kept = outer.take<std::byte>(1 << 20);
  *kept = std::byte{7};
  {
    Workspace::Frame inner(workspace);
    EXPECT_THROW((void)inner.take<std::byte>(10 << 20), Error);
  }
  EXPECT_EQ(*kept, std::byte{7});
}

// A graph has the addresses of the memory that was taken while it was captured.
TEST(Workspace, WhatWasTakenInACaptureIsNeverGivenBack) {
  constexpr std::size_t mebi = std::size_t{1} << 20;
  const auto source = std::make_shared<Scarce>(100 * mebi);
  Workspace workspace(source);
  std::size_t total = 0;
  source->captures = true;
  for (const std::int64_t mebis : {1, 4, 8}) {
    Workspace::Frame frame(workspace);
    EXPECT_NE(frame.take<std::byte>(mebis << 20), nullptr);
    total += static_cast<std::size_t>(mebis) * mebi;
    EXPECT_EQ(source->live(), total);
    source->captures = false;
  }
}

TEST(AlignedBuffer, GrowsInTheRoomItHad) {
  const auto source = std::make_shared<Scarce>(1000);
  AlignedBuffer buffer(source);
  buffer.reserve(600);
  buffer.reserve(900);
  EXPECT_EQ(buffer.capacity_bytes(), 900u);
  EXPECT_EQ(source->live(), 900u);
  EXPECT_THROW(buffer.reserve(1001), Error);
  EXPECT_EQ(buffer.capacity_bytes(), 0u) << "memory that is gone must not be found";
  EXPECT_EQ(buffer.as<void>(), nullptr);
  buffer.reserve(10);
  EXPECT_NE(buffer.as<void>(), nullptr);
  // reserve() with a memory source must keep the old memory, and its content, if it fails.
  void* const before = buffer.as<void>();
  EXPECT_THROW(buffer.reserve(995, source), Error);
  EXPECT_EQ(buffer.as<void>(), before);
  EXPECT_EQ(buffer.capacity_bytes(), 10u);
  buffer.reserve(900, source);
  EXPECT_EQ(source->live(), 900u);
}

}  // namespace
}  // namespace switchback::core
