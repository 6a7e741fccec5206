// SPDX-License-Identifier: Apache-2.0
#include "studies/models/memory.hpp"

#include <gtest/gtest.h>

namespace switchback::test {
namespace {

using namespace models;

TEST(ModelsMemory, CountsByClassAndRemembersThePeak) {
  Memory memory;
  Tensor a = memory.take(MemoryClass::param, DType::f32, 3, 5);
  Tensor b = memory.take(MemoryClass::saved, DType::bf16, 10, 10);
  EXPECT_EQ(memory.now()[MemoryClass::param], 60u);
  EXPECT_EQ(memory.now()[MemoryClass::saved], 200u);
  b.set_class(MemoryClass::workspace);
  EXPECT_EQ(memory.now()[MemoryClass::saved], 0u);
  EXPECT_EQ(memory.now()[MemoryClass::workspace], 200u);
  b.reset();
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(memory.now().total(), 60u);
  EXPECT_EQ(memory.peak().total(), 260u);
  EXPECT_EQ(memory.peak()[MemoryClass::saved], 200u);
  memory.set_held_elsewhere(MemoryClass::int8_weights, 1000);
  memory.set_held_elsewhere(MemoryClass::int8_weights, 900);
  EXPECT_EQ(memory.now()[MemoryClass::int8_weights], 900u);
  EXPECT_EQ(memory.peak().total(), 1060u);
  memory.reset_peak();
  EXPECT_EQ(memory.peak().total(), 960u);
  Tensor moved = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT: moved from
  moved = Tensor();
  EXPECT_EQ(memory.now().total(), 900u);
}

TEST(ModelsMemory, KeepsFreedMemoryForTheNextTensorOfItsSize) {
  Memory memory;
  Tensor a = memory.take(MemoryClass::saved, DType::f32, 100, 1000);
  const void* const data = a.any().data;
  a.reset();
  const Tensor small = memory.take(MemoryClass::saved, DType::f32, 10, 10);
  EXPECT_NE(small.any().data, data);
  const Tensor again = memory.take(MemoryClass::workspace, DType::f32, 1000, 100);
  EXPECT_EQ(again.any().data, data);
}

// Blocks of every size are used again, although the system gives large ones in whole huge pages.
TEST(ModelsMemory, KeepsBlocksOfEverySize) {
  Memory memory;
  for (std::int64_t rows = 1; rows < 6000; rows += rows / 3 + 1) {
    memory.take(MemoryClass::saved, DType::f32, rows, 768).reset();
    const std::size_t taken = memory.taken_from_system();
    memory.take(MemoryClass::saved, DType::f32, rows, 768).reset();
    EXPECT_EQ(memory.taken_from_system(), taken) << rows;
  }
}

}  // namespace
}  // namespace switchback::test
