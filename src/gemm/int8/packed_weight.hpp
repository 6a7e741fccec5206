// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the state of a PackedWeight, which is bytes in the layout of one engine, and how
// it is made block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/aligned_buffer.hpp"
#include "core/code_blocks.hpp"
#include "core/context_state.hpp"
#include "gemm/int8/engine.hpp"
#include "gemm/int8/problem.hpp"
#include "switchback/gemm.hpp"

namespace switchback {

struct PackedWeightState {
  const gemm_int8::Engine* engine = nullptr;  ///< null: nothing packed yet
  Device device;                              ///< the device whose memory holds the bytes
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t groups = 1;      ///< number of matrices [rows,cols], one after the other
  std::int64_t step_bytes = 0;  ///< distance between the matrices
  core::AlignedBuffer buffer;
};

}  // namespace switchback

namespace switchback::gemm_int8 {

/// Packs int8 codes that arrive block by block, so that no unpacked matrix of codes is written.
class BlockPacker final : public core::CodeSink {
 public:
  /// Whether the blocks that arrive are parts of B[n,k] or of B transposed.
  enum class Blocks { of_b, of_b_transposed };
  /// Without `stores`, the size of the packed matrices decides how they are stored.
  explicit BlockPacker(Blocks blocks, std::optional<Stores> stores = {}) noexcept
      : blocks_(blocks), wanted_(stores) {}

  /// Makes `out` hold `groups` packed matrices B[n,k], whose codes will arrive in blocks. Returns
  /// false and does nothing if the engine packs only whole matrices.
  bool begin(ContextState& state, std::int64_t groups, std::int64_t n, std::int64_t k,
             PackedWeight& out, std::string_view engine);

  void take(const core::CodeBlock& block) const noexcept override;

 private:
  Blocks blocks_;
  const Engine* engine_ = nullptr;
  std::int64_t k_ = 0;
  std::byte* data_ = nullptr;
  std::int64_t step_bytes_ = 0;
  std::optional<Stores> wanted_;
  Stores stores_ = Stores::cached;
};

}  // namespace switchback::gemm_int8
