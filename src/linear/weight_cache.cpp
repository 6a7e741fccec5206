// SPDX-License-Identifier: Apache-2.0
#include "linear/weight_cache.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/assert.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/matrix_rows.hpp"
#include "gemm/int8/dispatch.hpp"
#include "gemm/int8/packed_weight.hpp"
#include "linear/copy.hpp"
#include "linear/scratch.hpp"
#include "quant/blocks.hpp"
#include "quant/dispatch.hpp"

namespace switchback::linear {

namespace {
constexpr std::string_view pack_op = "pack_weight";
}

void QuantizedWeight::release() noexcept {
  // Moves the contents into a temporary object, which frees them. Assigning a new empty object
  // would allocate.
  const PackedWeight gone(std::move(packed_));
  absmax_.release();
  count_ = 0;
  invalidate();
}

void QuantizedWeight::release_shared() noexcept {
  if (!packed_.empty()) packed_.state().buffer.release_shared();
  absmax_.release_shared();
  release();
}

std::span<float> QuantizedWeight::begin(const ContextState& state, std::int64_t count) {
  valid_ = false;
  count_ = static_cast<std::size_t>(count);
  absmax_.reserve(count_ * sizeof(float), state.runtime);
  return {absmax_.as<float>(), count_};
}

quant::CodesOut QuantizedWeight::begin_codes(ContextState& state, core::Workspace::Frame& frame,
                                             quant::Scales scales, std::int64_t groups,
                                             std::int64_t rows, std::int64_t cols,
                                             std::string_view engine) {
  // B is W, or Wᵀ for dX. So its rows, each with a scale, are rows of W or columns of W.
  const std::int64_t each = scales == quant::Scales::global ? 1 : rows;
  gemm_int8::PackedRows packed =
      gemm_int8::begin_packed_rows(state, groups, rows, cols, packed_, engine, !keeps_);
  in_place_ = packed.first.data != nullptr;
  if (!in_place_)
    packed = {{frame.take<std::int8_t>(groups * rows * cols), rows, cols}, rows * cols};
  return {scales, packed.first, begin(state, groups * each), 0, packed.step};
}

void QuantizedWeight::finish(ContextState& state, const quant::CodesOut& out, std::int64_t groups,
                             WeightForm form, std::string_view engine) {
  if (!in_place_)
    gemm_int8::pack(
        state, pack_op,
        MatrixView<const std::int8_t>(out.codes.data, groups * out.codes.rows, out.codes.cols),
        groups, packed_, engine);
  form_ = form;
  valid_ = true;
}

void QuantizedWeight::set(ContextState& state, MatrixView<const std::int8_t> codes,
                          std::span<const float> absmax, std::int64_t groups, WeightForm form,
                          std::string_view engine) {
  QuantizedWeight made;
  const std::span<float> own = made.begin(state, static_cast<std::int64_t>(absmax.size()));
  copy_dense(state, core::operand("absmax", absmax).matrix, own.data());
  gemm_int8::pack(state, pack_op, codes, groups, made.packed_, engine);
  made.form_ = form;
  made.valid_ = true;
  *this = std::move(made);
}

void QuantizedWeight::read(ContextState& state, MatrixView<std::int8_t> codes,
                           std::span<float> absmax_out) const {
  gemm_int8::unpack(state, packed_, codes);
  copy_dense(state, core::operand("absmax", absmax()).matrix, absmax_out.data());
}

namespace {

// Fills the array with 1.0f. A device can here only be told to fill bytes and to copy. So one float
// is written byte by byte, and then copied.
void store_ones(ContextState& state, std::span<float> to) {
  if (state.on_cpu()) {
    std::fill(to.begin(), to.end(), 1.0f);
    return;
  }
  if (to.empty()) return;
  auto* const bytes = reinterpret_cast<std::byte*>(to.data());
  static_assert(std::bit_cast<std::uint32_t>(1.0f) == 0x3F800000u);
  state.runtime->fill(bytes, 0, 2);
  state.runtime->fill(bytes + 2, 0x80, 1);
  state.runtime->fill(bytes + 3, 0x3F, 1);
  for (std::size_t done = 1; done < to.size(); done *= 2) {
    const std::span<const float> known = to.first(std::min(done, to.size() - done));
    copy_dense(state, core::operand("absmax", known).matrix, to.data() + done);
  }
}

}  // namespace

void QuantizedWeight::set_transposed(ContextState& state, const QuantizedWeight& from) {
  const std::span<float> absmax = begin(state, from.packed_.groups());
  gemm_int8::pack_transposed(state, from.packed_, packed_);
  if (from.form_.of_rows())
    store_ones(state, absmax);
  else
    copy_dense(state, core::operand("absmax", from.absmax()).matrix, absmax.data());
  form_ = {from.form_.scales, true};
  valid_ = true;
}

namespace {

// Passes each block of codes on to two sinks.
class BothSinks final : public core::CodeSink {
 public:
  BothSinks(const core::CodeSink& first, const core::CodeSink& second)
      : first_(first), second_(second) {}
  void take(const core::CodeBlock& block) const noexcept override {
    first_.take(block);
    second_.take(block);
  }

 private:
  const core::CodeSink& first_;
  const core::CodeSink& second_;
};

}  // namespace

// Quantizes w straight into the packed layouts of an engine that accepts codes block by block.
bool WeightCache::make_in_blocks(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                 std::string_view engine, const Parts& parts) {
  if (!quant::has_blocks(state)) return false;
  const std::int64_t n = w.rows / groups_;
  const std::int64_t k = w.cols;
  const bool rowwise = form.of_rows();
  using Blocks = gemm_int8::BlockPacker::Blocks;
  gemm_int8::BlockPacker rows(Blocks::of_b);
  gemm_int8::BlockPacker columns(Blocks::of_b_transposed);
  quant::BlocksRequest request{.x = w, .matrices = groups_};
  if (parts.of_rows != nullptr) {
    const std::span<float> absmax =
        parts.of_rows->begin(state, rowwise && !parts.rows_share ? groups_ * n : groups_);
    if (!parts.of_rows->begin_blocks(state, rows, groups_, n, k, engine)) return false;
    request.q = {rowwise ? quant::Scales::per_row : quant::Scales::global, absmax, &rows};
  }
  if (parts.of_columns != nullptr) {
    const std::span<float> absmax =
        parts.of_columns->begin(state, rowwise && !parts.columns_share ? groups_ * k : groups_);
    if (!parts.of_columns->begin_blocks(state, columns, groups_, k, n, engine)) return false;
    request.q_t = {rowwise ? quant::Scales::per_column : quant::Scales::global, absmax, &columns};
  }
  // One pass over w makes the codes for both layouts. If one layout has the other's codes, only
  // these are made, and both packers receive them.
  const BothSinks both(rows, columns);
  if (rowwise && (parts.rows_share || parts.columns_share)) {
    SWITCHBACK_ASSERT(parts.of_rows != nullptr && parts.of_columns != nullptr);
    quant::BlocksOut& without = parts.rows_share ? request.q : request.q_t;
    store_ones(state, without.absmax);
    without = {};
    (parts.rows_share ? request.q_t : request.q).sink = &both;
  }
  quant::quantize_blocks(state, request);
  if (parts.of_rows != nullptr) parts.of_rows->finish_blocks(form);
  if (parts.of_columns != nullptr) parts.of_columns->finish_blocks(form);
  return true;
}

// Says which codes are made from the rows of the given matrix, and which from its columns. The
// given matrix may be Wᵀ, whose columns are the rows of W.
WeightCache::Parts WeightCache::parts_of(WeightForm form, bool forward, bool backward) {
  Parts parts;
  (transposed_ ? parts.of_columns : parts.of_rows) = forward ? &forward_ : nullptr;
  (transposed_ ? parts.of_rows : parts.of_columns) = backward ? &backward_ : nullptr;
  (transposed_ ? parts.rows_share : parts.columns_share) = backward && form.shared;
  return parts;
}

// Whether it pays to ask the device if W has changed. Asking reads W and needs a launch; making new
// codes reads W and writes the codes. For bf16, making only codes of rows moves 3 bytes per
// element, and all other cases 5 or 6. Asking moves 2. On an H200, which moves 4 TB/s, the
// additional launch and the launches that end at once take 4 to 5 us. So the saving of one byte for
// codes of rows alone pays from 2^25 elements on (8 us), and that of 3 or 4 bytes from 2^22. If W
// has changed after all, asking costs 2 bytes per element.
bool WeightCache::asking_pays(std::int64_t elements, bool rows_alone) const noexcept {
  return elements >= least_asked_.value_or(std::int64_t{1} << (rows_alone ? 25 : 22));
}

// Queues a kernel that compares W's fingerprint with that of the existing codes. Returns where the
// kernel will write whether they differ. Null means that nothing was queued, and new codes are made
// in any case.
const unsigned* WeightCache::ask(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                 bool forward, bool backward) {
  const bool rows_alone =
      !backward && form.of_rows() && !transposed_ && rotation_ == Rotation::none;
  const bool asks = asks_ && w.rows * w.cols > 0 && asking_pays(w.rows * w.cols, rows_alone);
  const bool knows_forward = forward && forward_.begin_proof(form, asks);
  const bool knows_backward = backward && backward_.begin_proof(form, asks);
  if (asks && proof_.capacity_bytes() == 0) {
    proof_.reserve(sizeof(quant::WeightProof), state.runtime);
    state.runtime->fill(proof_.as<void>(), 0, sizeof(quant::WeightProof));
  }
  if (forward && !knows_forward) forget(state, 0);
  if (backward && !knows_backward) forget(state, 1);
  if (!asks) return nullptr;
  auto* const proof = proof_.as<quant::WeightProof>();
  quant::ask_whether_changed(state, w, proof, (forward ? 1u : 0u) | (backward ? 2u : 0u));
  return &proof->changed;
}

// Erases the stored fingerprint of codes that are made without comparing it, so that no later
// comparison takes them for codes of an older weight. That comparison may be in a graph that was
// captured before.
void WeightCache::forget(ContextState& state, int codes) {
  if (proof_.capacity_bytes() == 0) return;
  quant::CodesProof& of = proof_.as<quant::WeightProof>()->of[codes];
  state.runtime->fill(&of, 0, sizeof of);
}

void WeightCache::make(ContextState& state, ConstAnyMatrix w, WeightForm form,
                       std::string_view engine, bool forward, bool backward) {
  // The codes for dX may be the forward's codes, transposed. They become invalid together with
  // these.
  if (forward && backward_.valid() && backward_.form().scales_gradient()) backward_.invalidate();
  const unsigned* const changed = ask(state, w, form, forward, backward);
  if (rotation_ == Rotation::none)
    return make_of(state, w, form, engine, forward, backward, changed);
  core::Workspace::Frame frame(state.workspace);
  const AnyMatrix rotated = take_matrix(frame, DType::f32, w.rows, w.cols);
  quant::run(state, {.x = w, .rotation = rotation_, .rotated = rotated, .changed = changed});
  make_of(state, rotated, form, engine, forward, backward, changed);
}

void WeightCache::make_of(ContextState& state, ConstAnyMatrix w, WeightForm form,
                          std::string_view engine, bool forward, bool backward,
                          const unsigned* changed) {
  const Parts parts = parts_of(form, forward, backward);
  if (make_in_blocks(state, w, form, engine, parts)) return;
  if (parts.rows_share || parts.columns_share) {
    make_of(state, w, form, engine, forward, false, changed);
    return backward_.set_transposed(state, forward_);
  }
  const std::int64_t n = w.rows / groups_;
  quantize(state, core::rows_of(w, 0, n), n * w.stride, form, engine, parts, changed);
}

// Quantizes the weights W[n,k] of all groups, which begin `step` elements apart.
void WeightCache::quantize(ContextState& state, ConstAnyMatrix w, std::int64_t step,
                           WeightForm form, std::string_view engine, const Parts& parts,
                           const unsigned* changed) {
  using enum quant::Scales;
  const bool rowwise = form.of_rows();
  core::Workspace::Frame frame(state.workspace);
  quant::Request request{.x = w, .matrices = {groups_, step}, .changed = changed};
  if (parts.of_rows != nullptr)
    request.q = parts.of_rows->begin_codes(state, frame, rowwise ? per_row : global, groups_,
                                           w.rows, w.cols, engine);
  if (parts.of_columns != nullptr)
    request.q_t = parts.of_columns->begin_codes(state, frame, rowwise ? per_column : global,
                                                groups_, w.cols, w.rows, engine);
  // If there is one scale for the whole matrix, the codes for the forward and those for dX share
  // it.
  const bool shared = parts.of_rows != nullptr && parts.of_columns != nullptr && !rowwise;
  const std::span<float> absmax_t = request.q_t.absmax;
  if (shared) request.q_t.absmax = request.q.absmax;
  quant::run(state, request);
  if (shared) copy_dense(state, core::operand("absmax", request.q.absmax).matrix, absmax_t.data());
  if (parts.of_rows != nullptr) parts.of_rows->finish(state, request.q, groups_, form, engine);
  if (parts.of_columns != nullptr)
    parts.of_columns->finish(state, request.q_t, groups_, form, engine);
}

const QuantizedWeight& WeightCache::forward(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                            std::string_view engine, bool and_backward) {
  if (!has_forward(form))
    make(state, w, form, engine, true, and_backward && !backward_.valid(form));
  return forward_;
}

const QuantizedWeight& WeightCache::forward_of_columns(ContextState& state, ConstAnyMatrix w,
                                                       WeightForm form, std::string_view engine) {
  if (has_forward(form)) return forward_;
  ConstAnyMatrix first = w;
  first.cols = w.cols / groups_;
  quantize(state, first, first.cols, form, engine, {.of_rows = &forward_}, nullptr);
  return forward_;
}

const QuantizedWeight& WeightCache::backward(ContextState& state, ConstAnyMatrix w, WeightForm form,
                                             std::string_view engine) {
  if (backward_.valid(form)) return backward_;
  if (form.shared) {
    if (!has_forward(form)) make(state, w, form, engine, true, true);
    return backward_of_forward(state, forward_);
  }
  make(state, w, form, engine, false, true);
  return backward_;
}

const QuantizedWeight& WeightCache::backward_of_forward(ContextState& state,
                                                        const QuantizedWeight& forward) {
  if (backward_.valid(WeightForm{forward.form().scales, true})) return backward_;
  forget(state, 1);
  backward_.set_transposed(state, forward);
  return backward_;
}

QuantizedWeight WeightCache::take_forward() noexcept {
  QuantizedWeight taken = std::move(forward_);
  forward_.release();
  return taken;
}

void WeightCache::invalidate() noexcept {
  forward_.invalidate();
  backward_.invalidate();
  asks_ = false;
}

void WeightCache::doubt(const ContextState& state) noexcept {
  if (state.runtime == nullptr) return invalidate();
  forward_.doubt();
  backward_.doubt();
  asks_ = true;
}

}  // namespace switchback::linear
