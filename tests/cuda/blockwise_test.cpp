// SPDX-License-Identifier: Apache-2.0
// How a device computes dW in int8: with which kernel, with tiles of which size, and with how much
// memory. Another suite, of the operation, checks the bits of the results.
#include <string>
#include <vector>

#include "cuda/blockwise_support.hpp"
#include "support/device_memory.hpp"

namespace switchback::test {
namespace {

class CudaBlockwise : public Cuda {
 protected:
  void TearDown() override {
    break_blockwise_products(Fault::none, {});
    Cuda::TearDown();
  }

  struct Launched {
    std::vector<std::string> names;
    unsigned blocks = 0, threads = 0;  // of the first
    std::size_t scratch_bytes = 0;
  };
  static Launched product(Context& context, std::int64_t m, std::int64_t n, std::int64_t k,
                          std::int64_t offset = 0, std::string_view engine = {},
                          std::int64_t block_rows = 256) {
    const std::size_t before = context.workspace_bytes();
    const auto launches =
        blockwise_launches(context, blockwise_problem(m, n, k, block_rows), offset, engine);
    return {names_of(launches), launches.at(0).grid.x, launches.at(0).block.x,
            context.workspace_bytes() - before};
  }
  using Names = std::vector<std::string>;
};

TEST_F(CudaBlockwise, TensorCoresAreTheDefault) {
  mark_blockwise_products(true);
  for (const int capability : {75, 80, 89, 90, 120}) {
    switchback_cuda_emu::reset({.compute_capability = capability});
    Context context(emulated());
    const char* const by_default = capability == 90 ? "blockwise_wgmma" : "blockwise_mma";
    EXPECT_EQ(product(context, 300, 40, 64).names, Names{by_default}) << capability;
    EXPECT_EQ(product(context, 300, 40, 64, 0, "mma").names, Names{"blockwise_mma"}) << capability;
    EXPECT_EQ(product(context, 300, 40, 64, 0, "dp4a").names, Names{"blockwise"}) << capability;
  }
}

// The wgmma kernel exists for 9.0 only. On four multiprocessors, four square tiles in one wave take
// less time than two wide ones, but four wide ones in one wave take less than eight square ones in
// two. Blocks of 128 rows have only wide tiles, blocks of 512 rows only square ones.
TEST_F(CudaBlockwise, ProductsOfWarpgroupsAreOf90) {
  for (const int capability : {75, 80, 90, 100, 120}) {
    switchback_cuda_emu::reset({.compute_capability = capability});
    Context context(emulated());
    if (capability != 90) {
      EXPECT_THROW(product(context, 300, 40, 64, 0, "wgmma"), Error) << capability;
      continue;
    }
    const Launched small = product(context, 300, 40, 64, 0, "wgmma");
    EXPECT_EQ(small.names, Names{"blockwise_wgmma"});
    EXPECT_EQ(small.threads, 384u);
    EXPECT_EQ(product(context, 256, 256, 256, 0, "wgmma").blocks, 4u) << "one wave of square tiles";
    EXPECT_EQ(product(context, 256, 512, 256, 0, "wgmma").blocks, 4u) << "one wave of wide tiles";
    EXPECT_EQ(product(context, 256, 129, 129, 0, "wgmma", 128).blocks, 2u);
    EXPECT_EQ(product(context, 512, 129, 129, 0, "wgmma", 512).blocks, 4u);
    EXPECT_EQ(product(context, 300, 40, 64, 8, "wgmma").names, Names{"blockwise"});
    EXPECT_EQ(product(context, 3 * 8192, 64, 64, 0, "wgmma").names,
              (Names{"blockwise_wgmma", "blockwise_wgmma_parts"}));
  }
}

// The tensor-core kernels copy 16 bytes at a time, so they need aligned operands. Misaligned
// operands use the dp4a kernel, whether the engine is named or not.
TEST_F(CudaBlockwise, MisalignedOperandsGoToTheOtherKernel) {
  mark_blockwise_products(true);
  Context context(emulated());
  EXPECT_EQ(product(context, 300, 40, 64, 16).names, Names{"blockwise_wgmma"});
  EXPECT_EQ(product(context, 300, 40, 64, 16, "mma").names, Names{"blockwise_mma"});
  EXPECT_EQ(product(context, 300, 40, 64, 8).names, Names{"blockwise"});
  EXPECT_EQ(product(context, 300, 40, 64, 8, "mma").names, Names{"blockwise"});
}

// On four multiprocessors, 4 large tiles run in one wave and take 4 units of time; the 16 small
// tiles that replace them would take 1.25 · 16 / 4. But 9 small tiles take less than the 4 large
// ones that contain them. A multiprocessor runs three small tiles at a time.
TEST_F(CudaBlockwise, TilesFitTheMultiprocessors) {
  Context context(emulated());
  const Launched large = product(context, 256, 256, 256, 0, "mma");
  EXPECT_EQ(large.threads, 256u);
  EXPECT_EQ(large.blocks, 4u);
  const Launched small = product(context, 256, 129, 129, 0, "mma");
  EXPECT_EQ(small.threads, 128u);
  EXPECT_EQ(small.blocks, 9u);
  EXPECT_EQ(product(context, 256, 64, 64 * 13, 0, "mma").blocks, 12u);
  EXPECT_EQ(product(context, 256, 64, 64, 0, "mma").blocks, 1u);
  // The large tile needs 67 KiB of shared memory, more than a block has on 7.5.
  switchback_cuda_emu::reset({.compute_capability = 75});
  Context turing(emulated());
  EXPECT_EQ(product(turing, 256, 256, 256, 0, "mma").threads, 128u);
}

// Thread blocks that compute several superblocks one after another keep one f32 tile each between
// them. With few tiles, each superblock has its own thread blocks, which each keep a tile.
TEST_F(CudaBlockwise, SuperblocksTakeLittleMemory) {
  // a limit for the f32 tiles that are kept: twelve of 16 KiB, or three
  constexpr std::size_t most = std::size_t{1} << 20;
  Context context(emulated());
  EXPECT_EQ(product(context, 8192, 64, 64 * 13, 0, "mma").scratch_bytes, 0u);
  const Launched in_turn = product(context, 8192 + 256, 64, 64 * 13, 0, "mma");
  EXPECT_EQ(in_turn.names, Names{"blockwise_mma"});
  EXPECT_GT(in_turn.scratch_bytes, 0u);
  EXPECT_LE(in_turn.scratch_bytes, most);
  Context other(emulated());
  const Launched parts = product(other, 3 * 8192, 64, 64, 0, "mma");
  EXPECT_EQ(parts.names, (Names{"blockwise_mma", "blockwise_parts"}));
  EXPECT_EQ(parts.blocks, 3u);
  EXPECT_GT(parts.scratch_bytes, 0u);
  EXPECT_LE(parts.scratch_bytes, most);
}

}  // namespace
}  // namespace switchback::test
