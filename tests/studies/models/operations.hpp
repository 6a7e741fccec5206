// SPDX-License-Identifier: Apache-2.0
// Test support: every operation of a training step on random operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "studies/models/kernels.hpp"
#include "studies/models/support.hpp"

namespace switchback::test {

/// One of each operation, with its results in tensors.
class Operations {
 public:
  using Bits = std::vector<std::vector<std::byte>>;

  Operations(ContextState& state, models::Memory& memory, DType dtype,
             const models::AttentionShape& shape)
      : state_(state),
        attention_(memory, dtype, shape),
        norms_{{memory, NormKind::rms_norm, dtype, shape.rows(), shape.width()},
               {memory, NormKind::layer_norm, dtype, shape.rows(), shape.width()}},
        table_(filled(memory, DType::f32, vocabulary, shape.width(), 11)),
        positions_(filled(memory, DType::f32, shape.length, shape.width(), 12)),
        dtable_(filled(memory, DType::f32, vocabulary, shape.width(), 13)),
        dpositions_(filled(memory, DType::f32, shape.length, shape.width(), 14)),
        embedded_(tensor(memory, dtype, shape.rows(), shape.width())),
        cosines_(filled(memory, DType::f32, shape.length, shape.head_dim / 2, 15)),
        sines_(filled(memory, DType::f32, shape.length, shape.head_dim / 2, 16)),
        rotated_(filled(memory, dtype, shape.rows(), 3 * shape.width(), 17)),
        gate_up_(filled(memory, dtype, shape.rows(), 2 * shape.width(), 18, 100)),
        h_(tensor(memory, dtype, shape.rows(), shape.width())),
        dgate_up_(tensor(memory, dtype, shape.rows(), 2 * shape.width())),
        dropped_(filled(memory, dtype, shape.rows(), shape.width(), 19)),
        logits_(filled(memory, dtype, shape.rows(), shape.width(), 20)),
        loss_(tensor(memory, DType::f32, 1, 2)),  // one f64
        summed_(filled(memory, dtype, shape.rows(), shape.width(), 21)),
        zeros_(tensor(memory, dtype, shape.rows(), shape.width())) {
    for (std::int64_t r = 0; r < shape.rows(); ++r)
      tokens_.push_back(static_cast<std::int32_t>(r * r % vocabulary));
    // More parameters than one launch can handle, among them an empty one and one of several
    // pieces.
    for (std::int64_t i = 0; i < 40; ++i) {
      const std::int64_t size = i == 3 ? 0 : i == 7 ? 9000 : 5 + i;
      const auto taken = [&](std::uint64_t seed) {
        trained_.push_back(filled(memory, DType::f32, 1, size, seed));
        return trained_.back().floats().data();
      };
      models::Update u{
          .value = taken(1), .gradient = taken(2), .first = taken(3), .second = taken(4)};
      for (float& v : trained_.back().floats())
        v *= v;
      trained_.push_back(tensor(memory, DType::bf16, 1, size));
      if (i % 2 == 0) u.copy = trained_.back().values<bfloat16>().data();
      u.size = size;
      u.weight_decay = 0.01f * static_cast<float>(i);
      updates_.push_back(u);
    }
  }

  void run() const {
    const models::AttentionShape& shape = attention_.shape;
    for (const Norm& norm : norms_)
      for (const bool accumulate : {false, true})
        norm.backward(state_, accumulate);
    const std::int64_t width = shape.width();
    embed(state_, tokens_, {table_.floats().data(), vocabulary, width},
          {positions_.floats().data(), shape.length, width}, embedded_.any());
    for (const bool accumulate : {false, true})
      embed_backward(state_, tokens_, embedded_.any(), {dtable_.floats().data(), vocabulary, width},
                     {dpositions_.floats().data(), shape.length, width}, accumulate);
    for (const bool inverse : {false, true})
      rope(state_, {shape.heads, shape.head_dim, shape.length, cosines_.floats(), sines_.floats()},
           rotated_.any(), inverse);
    swiglu(state_, gate_up_.any(), h_.any());
    swiglu_backward(state_, gate_up_.any(), dropped_.any(), dgate_up_.any());
    dropout(state_, {.p = 0.3f, .key = 5, .stream = std::uint64_t{7} << 40, .first = 128},
            dropped_.any());
    add(state_, dropped_.any(), summed_.any());
    zero(state_, zeros_.any());
    adamw(state_,
          {.learning_rate = 0.01f,
           .beta1 = 0.9f,
           .beta2 = 0.99f,
           .epsilon = 1e-8f,
           .correction1 = 10.0f,
           .correction2 = 100.0f},
          updates_);
    for (const bool nesterov : {false, true})
      sgd(state_,
          {.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = nesterov, .first_step = !nesterov},
          updates_);
    for (const Norm& norm : norms_)
      norm.forward(state_);
    attention_.forward(state_);
    attention_.backward(state_);
    queue_cross_entropy(state_, logits_.any(), tokens_, shape.rows(), true,
                        loss_.values<double>().data());
  }

  /// Copies the operands of the first sequence to the others. Then each of row_results() is the
  /// same for every sequence.
  void repeat_first_sequence() const {
    const models::AttentionShape& shape = attention_.shape;
    std::vector<const models::Tensor*> operands = {&rotated_, &gate_up_, &dropped_, &attention_.qkv,
                                                   &attention_.dout};
    for (const Norm& norm : norms_)
      operands.insert(operands.end(),
                      {&norm.x, &norm.add, &norm.sum, &norm.mean, &norm.rstd, &norm.dy, &norm.dx});
    for (const models::Tensor* t : operands) {
      const auto all = bytes_of(*t);
      const std::size_t of_one = all.size() / static_cast<std::size_t>(shape.batch);
      for (std::size_t begin = of_one; begin < all.size(); begin += of_one)
        std::memcpy(&all[begin], all.data(), of_one);
    }
  }
  /// The bytes of results whose rows are those of the sequences, each computed from its own
  /// operands alone. Those of attention are the last two.
  [[nodiscard]] std::vector<std::span<std::byte>> row_results() const {
    std::vector<std::span<std::byte>> results = {bytes_of(rotated_), bytes_of(h_),
                                                 bytes_of(dgate_up_)};
    for (const Norm& norm : norms_)
      for (const models::Tensor* t : {&norm.sum, &norm.y, &norm.dx})
        results.push_back(bytes_of(*t));
    results.push_back(bytes_of(attention_.out));
    results.push_back(bytes_of(attention_.dqkv));
    return results;
  }

  /// The bits of results in which every element is computed in the same order on every device.
  [[nodiscard]] Bits exact_results() const {
    std::vector<const models::Tensor*> results = {&embedded_, &dtable_,   &dpositions_, &rotated_,
                                                  &h_,        &dgate_up_, &dropped_,    &zeros_};
    for (const Norm& norm : norms_)
      results.insert(results.end(), {&norm.dgain, &norm.dbias});
    for (const models::Tensor& t : trained_)
      results.push_back(&t);
    return bits_of(results);
  }
  /// The bits of all results.
  [[nodiscard]] Bits results() const {
    Bits bits = exact_results();
    std::vector<const models::Tensor*> others = {&attention_.out, &attention_.lse, &attention_.dqkv,
                                                 &logits_, &loss_};
    for (const Norm& norm : norms_)
      others.insert(others.end(), {&norm.sum, &norm.y, &norm.rstd, &norm.mean, &norm.dx});
    for (std::vector<std::byte>& more : bits_of(others))
      bits.push_back(std::move(more));
    return bits;
  }

 private:
  static constexpr std::int64_t vocabulary = 11;

  static Bits bits_of(const std::vector<const models::Tensor*>& tensors) {
    Bits bits;
    for (const models::Tensor* t : tensors)
      bits.emplace_back(bytes_of(*t).begin(), bytes_of(*t).end());
    return bits;
  }
  static std::span<std::byte> bytes_of(const models::Tensor& t) {
    return {static_cast<std::byte*>(t.any().data), t.size_bytes()};
  }

  ContextState& state_;
  AttentionRun attention_;
  Norm norms_[2];
  models::Tensor table_, positions_, dtable_, dpositions_, embedded_, cosines_, sines_, rotated_;
  models::Tensor gate_up_, h_, dgate_up_, dropped_, logits_, loss_, summed_, zeros_;
  std::vector<models::Tensor> trained_;
  std::vector<models::Update> updates_;
  DeviceTokens tokens_;
};

}  // namespace switchback::test
