// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the quantized, packed weight of a layer, in the two layouts that its int8 products
// read. It is made on first use and kept until the weight changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "core/modes.hpp"
#include "core/workspace.hpp"
#include "gemm/int8/block_packer.hpp"
#include "quant/proof.hpp"
#include "quant/request.hpp"
#include "switchback/gemm.hpp"
#include "switchback/rotation.hpp"

namespace switchback::linear {

/// A packed int8 matrix and its scales: one per row, or one.
class QuantizedWeight {
 public:
  [[nodiscard]] bool valid() const noexcept { return valid_; }
  /// Whether it has the codes that dX reads in this form.
  [[nodiscard]] bool valid(WeightForm form) const noexcept {
    return valid_ && have_same_codes(form_, form);
  }
  [[nodiscard]] WeightForm form() const noexcept { return form_; }
  [[nodiscard]] const PackedWeight& packed() const noexcept { return packed_; }
  [[nodiscard]] std::span<const float> absmax() const noexcept {
    return {absmax_.as<const float>(), count_};
  }
  /// Bytes of memory held, whether valid or not.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return packed_.bytes() + absmax_.capacity_bytes();
  }

  void invalidate() noexcept { valid_ = doubted_ = false; }
  /// The codes may be those of an older weight.
  void doubt() noexcept {
    doubted_ = doubted_ || valid_;
    valid_ = false;
  }
  /// Whether codes of this form were there when they were doubted. They are doubted no more: the
  /// question that is asked next, if `asks`, decides whether the kernels write to them.
  bool begin_proof(WeightForm form, bool asks) noexcept {
    keeps_ = asks && doubted_ && have_same_codes(form_, form);
    doubted_ = false;
    return keeps_;
  }
  /// Frees the memory.
  void release() noexcept;
  /// The same, from any thread, of memory that several streams have used.
  void release_shared() noexcept;
  /// Room for `count` scales, to be filled before finish(). Invalid until then.
  std::span<float> begin(const ContextState& state, std::int64_t count);
  /// Makes `packer` put the codes of `groups` matrices B[rows,cols] where this keeps them; then
  /// they need no finish(), but finish_blocks(). False: the engine packs only whole matrices.
  bool begin_blocks(ContextState& state, gemm_int8::BlockPacker& packer, std::int64_t groups,
                    std::int64_t rows, std::int64_t cols, std::string_view engine) {
    return packer.begin(state, groups, rows, cols, packed_, engine);
  }
  void finish_blocks(WeightForm form) noexcept {
    form_ = form;
    valid_ = true;
  }
  /// Where to write the codes of `groups` matrices B[rows,cols] and their scales: directly to the
  /// packed form if that has the same layout, else to the frame.
  quant::CodesOut begin_codes(ContextState& state, core::Workspace::Frame& frame,
                              quant::Scales scales, std::int64_t groups, std::int64_t rows,
                              std::int64_t cols, std::string_view engine);
  /// Copies codes and scales that the caller made. If it fails, the object is unchanged.
  void set(ContextState& state, MatrixView<const std::int8_t> codes, std::span<const float> absmax,
           WeightForm form, std::string_view engine);
  /// The reverse of set: writes codes and scales to memory of the caller.
  void read(ContextState& state, MatrixView<std::int8_t> codes, std::span<float> absmax_out) const;
  /// The codes of another one, transposed, with its scale if that is one for the matrix; else with
  /// a scale of 1, since a scale per row belongs to what the transposed codes are multiplied with.
  void set_transposed(ContextState& state, const QuantizedWeight& from);
  /// Call it when the codes of so many groups are written: packs them if necessary; the object is
  /// then valid.
  void finish(ContextState& state, const quant::CodesOut& out, std::int64_t groups, WeightForm form,
              std::string_view engine);

 private:
  PackedWeight packed_;
  core::AlignedBuffer absmax_;
  std::size_t count_ = 0;
  WeightForm form_;
  bool in_place_ = false;
  bool valid_ = false;
  bool doubted_ = false;
  bool keeps_ = false;  ///< what is there may stay
};

/// The weight of a layer, or the weights of `groups` layers below each other: W is then [G·N,K],
/// and each group is quantized by itself.
class WeightCache {
 public:
  /// With a rotation, codes are those of rotate(W). transposed: the calls below are given Wᵀ[K,N].
  /// Not both, and not for groups.
  explicit WeightCache(std::int64_t groups = 1, Rotation rotation = Rotation::none,
                       bool transposed = false)
      : groups_(groups), rotation_(rotation), transposed_(transposed) {}

  /// W[N,K], for X · Wᵀ. With `and_backward`, the layout for dX is made in the same pass over w, if
  /// it is missing too.
  const QuantizedWeight& forward(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                 std::string_view engine, bool and_backward);
  /// The same for matrices W_g[N,K] side by side in w[N,G·K], each quantized by itself.
  const QuantizedWeight& forward_of_columns(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                            std::string_view engine);
  /// Wᵀ[K,N], for G · W.
  const QuantizedWeight& backward(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                  std::string_view engine);

  /// For G · W from codes for X · Wᵀ, transposed.
  const QuantizedWeight& backward_of_forward(ContextState& state, const QuantizedWeight& forward);

  [[nodiscard]] const QuantizedWeight& forward_codes() const noexcept { return forward_; }
  [[nodiscard]] const QuantizedWeight& backward_codes() const noexcept { return backward_; }

  /// Moves the codes for X · Wᵀ out of the cache, or into it: their memory is used again.
  QuantizedWeight take_forward() noexcept;
  void put_forward(QuantizedWeight&& codes) noexcept { forward_ = std::move(codes); }

  /// Call it when the weight has changed. The memory is kept.
  void invalidate() noexcept;
  /// Call it when the weight may have changed. Where the question costs less than new codes, a
  /// device compares the weight with the fingerprint of the one that the codes were made of, and
  /// its kernels make no codes if it is the same; the host does not know. Elsewhere it is
  /// invalidate().
  void doubt(const ContextState& state) noexcept;
  /// The question is asked of weights of this many elements and more, not where it is known to pay.
  /// For tests.
  void ask_from(std::int64_t elements) noexcept { least_asked_ = elements; }
  void release_forward() noexcept { forward_.release(); }
  void release_backward() noexcept { backward_.release(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return forward_.bytes() + backward_.bytes(); }

 private:
  [[nodiscard]] bool has_forward(WeightForm form) const noexcept {
    return forward_.valid() && forward_.form().scales == form.scales;
  }
  // For groups W is quantized a second time: only a single packed matrix can be transposed.
  [[nodiscard]] bool shares(WeightForm form) const noexcept { return form.shared && groups_ == 1; }
  // Makes the missing ones of both layouts, after the rotation of w.
  void make(ContextState& state, ConstAnyMatrix w, WeightForm form, std::string_view engine,
            bool forward, bool backward);
  void make_of(ContextState& state, ConstAnyMatrix w, WeightForm form, std::string_view engine,
               bool forward, bool backward, const unsigned* changed);
  /// What is made of the rows of the matrix that is given, and of its columns; null: nothing. The
  /// one that shares has the codes of the other one, transposed, and its one scale, or a scale
  /// of 1.
  struct Parts {
    QuantizedWeight* of_rows = nullptr;
    QuantizedWeight* of_columns = nullptr;
    bool rows_share = false;
    bool columns_share = false;
  };
  Parts parts_of(WeightForm form, bool forward, bool backward);
  void quantize(ContextState& state, ConstAnyMatrix w, std::int64_t step, WeightForm form,
                std::string_view engine, const Parts& parts, const unsigned* changed);
  [[nodiscard]] bool asking_pays(std::int64_t elements, bool rows_alone) const noexcept;
  const unsigned* ask(ContextState& state, ConstAnyMatrix w, WeightForm form, bool forward,
                      bool backward);
  void forget(ContextState& state, int codes);
  bool make_in_blocks(ContextState& state, ConstAnyMatrix w, WeightForm form,
                      std::string_view engine, const Parts& parts);

  std::int64_t groups_;
  Rotation rotation_;
  bool transposed_;
  QuantizedWeight forward_;
  QuantizedWeight backward_;
  bool asks_ = false;  ///< since doubt()
  std::optional<std::int64_t> least_asked_;
  core::AlignedBuffer proof_;  ///< a quant::WeightProof on the device; empty until one is needed
};

}  // namespace switchback::linear
