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
#include "gemm/int8/packed_weight.hpp"
#include "quant/proof.hpp"
#include "quant/request.hpp"
#include "switchback/gemm.hpp"
#include "switchback/rotation.hpp"

namespace switchback::linear {

/// A packed int8 matrix and its scales: one per row, or one in total. Or the matrices of several
/// groups, each with such scales.
class QuantizedWeight {
 public:
  [[nodiscard]] bool valid() const noexcept { return valid_; }
  /// Whether the codes are valid, and dX can read them if it expects codes of this form.
  [[nodiscard]] bool valid(WeightForm form) const noexcept {
    return valid_ && have_same_codes(form_, form);
  }
  [[nodiscard]] WeightForm form() const noexcept { return form_; }
  [[nodiscard]] const PackedWeight& packed() const noexcept { return packed_; }
  [[nodiscard]] std::span<const float> absmax() const noexcept {
    return {absmax_.as<const float>(), count_};
  }
  /// Bytes of memory held, whether the codes are valid or not.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return packed_.bytes() + absmax_.capacity_bytes();
  }

  void invalidate() noexcept { valid_ = doubted_ = false; }
  /// Call it when the codes may belong to an older weight. They are then doubtful, and not valid.
  void doubt() noexcept {
    doubted_ = doubted_ || valid_;
    valid_ = false;
  }
  /// Returns whether doubtful codes of this form exist and may stay. After the call codes are no
  /// longer doubtful. If `asks`, a kernel that compares fingerprints decides whether the next
  /// kernels overwrite them.
  bool begin_proof(WeightForm form, bool asks) noexcept {
    keeps_ = asks && doubted_ && have_same_codes(form_, form);
    doubted_ = false;
    return keeps_;
  }
  /// Frees the memory.
  void release() noexcept;
  /// Frees the memory, from any thread, if several streams have used it.
  void release_shared() noexcept;
  /// Returns room for `count` scales, to be filled before finish(). The object is invalid until
  /// then.
  std::span<float> begin(const ContextState& state, std::int64_t count);
  /// Makes `packer` write the codes of `groups` matrices B[rows,cols] directly to this object. Call
  /// finish_blocks() then instead of finish(). Returns false if the engine packs only whole
  /// matrices.
  bool begin_blocks(ContextState& state, gemm_int8::BlockPacker& packer, std::int64_t groups,
                    std::int64_t rows, std::int64_t cols, std::string_view engine) {
    return packer.begin(state, groups, rows, cols, packed_, engine);
  }
  void finish_blocks(WeightForm form) noexcept {
    form_ = form;
    valid_ = true;
  }
  /// Returns where to write the codes of `groups` matrices B[rows,cols] and their scales: directly
  /// to the packed form if that has the same layout, otherwise to scratch memory.
  quant::CodesOut begin_codes(ContextState& state, core::Workspace::Frame& frame,
                              quant::Scales scales, std::int64_t groups, std::int64_t rows,
                              std::int64_t cols, std::string_view engine);
  /// Copies codes and scales that the caller made, of `groups` matrices below each other. If it
  /// fails, the object is unchanged.
  void set(ContextState& state, MatrixView<const std::int8_t> codes, std::span<const float> absmax,
           std::int64_t groups, WeightForm form, std::string_view engine);
  /// The reverse of set(): writes codes and scales to the caller's memory.
  void read(ContextState& state, MatrixView<std::int8_t> codes, std::span<float> absmax_out) const;
  /// Takes the transposed codes of another object, matrix by matrix. If that object has one scale
  /// for each matrix, the scales are copied. Otherwise they are 1, since scales per row belong to
  /// the operand that the transposed codes are multiplied with.
  void set_transposed(ContextState& state, const QuantizedWeight& from);
  /// Call it when the codes of `groups` groups are written. It packs them if necessary; then the
  /// object is valid.
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
  bool keeps_ = false;  ///< kernels may leave the existing codes as they are
};

/// The weight of a layer, or the weights of `groups` layers below each other. In the second case W
/// is [G·N,K], and each group is quantized separately.
class WeightCache {
 public:
  /// With a rotation, the codes are those of rotate(W). If `transposed`, the member functions are
  /// given Wᵀ[K,N] as the weight; not with a rotation or groups.
  explicit WeightCache(std::int64_t groups = 1, Rotation rotation = Rotation::none,
                       bool transposed = false)
      : groups_(groups), rotation_(rotation), transposed_(transposed) {}

  /// The codes of W[N,K] for the forward product X · Wᵀ. With `and_backward`, the same pass over w
  /// also makes the codes for dX, if they are missing.
  const QuantizedWeight& forward(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                 std::string_view engine, bool and_backward);
  /// The codes for X · Wᵀ of matrices W_g[N,K] that lie side by side in w[N,G·K]. Each is quantized
  /// separately.
  const QuantizedWeight& forward_of_columns(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                            std::string_view engine);
  /// The codes of Wᵀ[K,N] for dX = G · W.
  const QuantizedWeight& backward(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                  std::string_view engine);

  /// The codes for dX = G · W, made by transposing the codes for the forward product X · Wᵀ.
  const QuantizedWeight& backward_of_forward(ContextState& state, const QuantizedWeight& forward);

  [[nodiscard]] const QuantizedWeight& forward_codes() const noexcept { return forward_; }
  [[nodiscard]] const QuantizedWeight& backward_codes() const noexcept { return backward_; }

  /// Moves the codes for X · Wᵀ out of the cache, or into it. Their memory is reused.
  QuantizedWeight take_forward() noexcept;
  void put_forward(QuantizedWeight&& codes) noexcept { forward_ = std::move(codes); }

  /// Call it when the weight has changed. The memory is kept.
  void invalidate() noexcept;
  /// Call it when the weight may have changed. A device can compare the weight with the fingerprint
  /// of the weight that the codes were made from. Its kernels then make no new codes if it is the
  /// same; the host does not know the outcome. The comparison is made where it costs less than new
  /// codes. Elsewhere this function is the same as invalidate().
  void doubt(const ContextState& state) noexcept;
  /// For tests: after doubt(), the fingerprint is compared for weights of at least this many
  /// elements, instead of where the comparison is known to pay.
  void ask_from(std::int64_t elements) noexcept { least_asked_ = elements; }
  void release_forward() noexcept { forward_.release(); }
  void release_backward() noexcept { backward_.release(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return forward_.bytes() + backward_.bytes(); }

 private:
  [[nodiscard]] bool has_forward(WeightForm form) const noexcept {
    return forward_.valid() && forward_.form().scales == form.scales;
  }
  // Makes the missing codes for the forward and for dX, after rotating w if there is a rotation.
  void make(ContextState& state, ConstAnyMatrix w, WeightForm form, std::string_view engine,
            bool forward, bool backward);
  void make_of(ContextState& state, ConstAnyMatrix w, WeightForm form, std::string_view engine,
               bool forward, bool backward, const unsigned* changed);
  /// Which codes are made from the rows of the given matrix, and which from its columns; null means
  /// none. If one layout shares the other's codes, it has them transposed, with the same single
  /// scale, or with a scale of 1.
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
  bool asks_ = false;  ///< whether doubt() was called: fingerprints are compared
  std::optional<std::int64_t> least_asked_;
  core::AlignedBuffer proof_;  ///< a quant::WeightProof on the device; empty until one is needed
};

}  // namespace switchback::linear
