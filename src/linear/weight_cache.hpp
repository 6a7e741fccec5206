// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the quantized, packed weight of a layer, in the two layouts its int8 products
// read, made when first asked for and kept until the weight changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/aligned_buffer.hpp"
#include "core/workspace.hpp"
#include "switchback/gemm.hpp"

namespace switchback::linear {

/// How the weight of a layer is quantized.
enum class WeightScales {
  per_row_and_column,  ///< forward: one scale a row of W; dX: one a column
  global,              ///< one scale for W, the same in both
};

/// Those of an int8 mode.
constexpr WeightScales scales_of(Mode mode) noexcept {
  return mode == Mode::rowwise ? WeightScales::per_row_and_column : WeightScales::global;
}

/// A packed int8 matrix and the scales of its rows (or the one scale it has).
class QuantizedWeight {
 public:
  [[nodiscard]] bool valid() const noexcept { return valid_; }
  [[nodiscard]] bool valid(WeightScales scales) const noexcept {
    return valid_ && scales_ == scales;
  }
  [[nodiscard]] WeightScales scales() const noexcept { return scales_; }
  [[nodiscard]] const PackedWeight& packed() const noexcept { return packed_; }
  [[nodiscard]] std::span<const float> absmax() const noexcept {
    return {absmax_.as<const float>(), count_};
  }
  /// Memory held, valid or not.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return packed_.bytes() + absmax_.capacity_bytes();
  }

  void invalidate() noexcept { valid_ = false; }
  /// Gives the memory back.
  void release() noexcept;
  /// Room for `count` scales, to be filled before pack(). Invalid until then.
  std::span<float> begin(const ContextState& state, std::int64_t count);
  /// Where the codes of B[rows,cols] are to be written: in their packed place if that is rows as
  /// they are, else in the frame.
  MatrixView<std::int8_t> begin_codes(Context& context, core::Workspace::Frame& frame,
                                      std::int64_t rows, std::int64_t cols,
                                      std::string_view engine);
  /// Takes over codes and scales that somebody else made. If it fails, this is as it was.
  void set(Context& context, MatrixView<const std::int8_t> codes, std::span<const float> absmax,
           WeightScales scales, std::string_view engine);
  /// The codes are written: packs them if they are not; valid from here on.
  void finish(Context& context, MatrixView<const std::int8_t> codes, WeightScales scales,
              std::string_view engine);

 private:
  PackedWeight packed_;
  core::AlignedBuffer absmax_;
  std::size_t count_ = 0;
  WeightScales scales_ = WeightScales::global;
  bool in_place_ = false;
  bool valid_ = false;
};

class WeightCache {
 public:
  /// W[N,K], for X · Wᵀ. With `and_backward` the layout of dX is made from the same read of w if it
  /// is missing too.
  const QuantizedWeight& forward(Context& context, ConstAnyMatrix w, WeightScales scales,
                                 std::string_view engine, bool and_backward);
  /// Wᵀ[K,N], for G · W.
  const QuantizedWeight& backward(Context& context, ConstAnyMatrix w, WeightScales scales,
                                  std::string_view engine);

  [[nodiscard]] const QuantizedWeight& forward_codes() const noexcept { return forward_; }
  [[nodiscard]] const QuantizedWeight& backward_codes() const noexcept { return backward_; }

  /// Codes of a weight that is not at hand, for forwards alone.
  void set_forward(Context& context, MatrixView<const std::int8_t> codes,
                   std::span<const float> absmax, WeightScales scales, std::string_view engine) {
    forward_.set(context, codes, absmax, scales, engine);
    backward_.release();
  }

  /// The weight changed. The memory stays for the next one.
  void invalidate() noexcept;
  void release_backward() noexcept { backward_.release(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return forward_.bytes() + backward_.bytes(); }

 private:
  QuantizedWeight forward_;
  QuantizedWeight backward_;
};

}  // namespace switchback::linear
