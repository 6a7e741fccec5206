// SPDX-License-Identifier: Apache-2.0
// Models: a stack of encoder blocks like those of GPT-2, whose parts can be divided among stages:
// learned positions, causal attention, LayerNorm after each half of a block, GELU, biases, an
// untied head without a bias.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "studies/models/layers.hpp"

namespace switchback::models {

/// What backward computes again for a checkpointed microbatch. `full`: everything; only the stage's
/// input is kept. `selective`: the sum that the last norm of each block is applied to is also kept.
/// That is about a twelfth of what a block keeps without checkpointing. So the product with the
/// longest rows is not computed again, and only one block at a time holds the rest.
enum class Recompute { full, selective };
/// "full", "selective".
std::string_view recompute_name(Recompute recompute) noexcept;

struct StackOptions {
  std::int64_t vocabulary = 0;
  std::int64_t width = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t length = 0;  ///< of every sequence
  float dropout = 0;        ///< after the embedding and at the end of each half of a block
  std::uint64_t key = 0;    ///< of dropout
  Mode mode = Mode::standard;
  /// Whether the inputs of linears are kept for backward as int8 codes, which need a quarter of the
  /// bytes. For the second linear of a block, the codes are those of GELU's input.
  bool keeps_codes = false;
  Recompute recompute = Recompute::selective;

  [[nodiscard]] std::int64_t parameters() const;
  /// Embedding, dropout, the blocks, the last norm, and the head with the loss.
  [[nodiscard]] std::int64_t parts() const { return layers + 4; }

  /// The estimated cost of a part: multiply-adds per token of its products; products in int8 count
  /// as a third. `again` is the forward that backward repeats if it is checkpointed.
  struct Cost {
    double forward = 0, backward = 0, again = 0;
  };
  [[nodiscard]] Cost cost(std::int64_t part) const;
};

/// The sequences that go through the stack together.
struct Microbatch {
  std::int64_t index = 0;  ///< other microbatches may run between its forward and its backward
  std::int64_t first = 0;  ///< its first sequence in the whole batch
  std::int64_t count = 0;  ///< sequences
  Tokens tokens = {};      ///< [count · length]
  Tokens targets = {};     ///< the same
  std::int64_t rows_of_batch = 0;  ///< rows of all microbatches, over which the loss is a mean
  std::int64_t step = 0;           ///< counts up, so that dropout differs in each
};

/// Several consecutive parts of the stack. f32.
class Stage {
 public:
  Stage(const Surroundings& around, Parameters& parameters, const StackOptions& options,
        std::int64_t first_part, std::int64_t parts, std::int64_t microbatches);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// Returns the output for the next stage; empty for the last stage. x is the output of the
  /// previous stage; empty for the first stage. With `checkpoint`, only x and the data that
  /// StackOptions::recompute names are kept, and backward computes the rest again. The output of
  /// the last stage is not used. So with `checkpoint` the last stage keeps only x, and computes its
  /// forward only in backward.
  Tensor forward(const Microbatch& m, Tensor x, bool checkpoint);
  /// Returns the gradient of x; empty for the first stage. dy is the gradient of the output; empty
  /// for the last stage.
  Tensor backward(const Microbatch& m, Tensor dy, bool accumulate);
  /// The mean cross entropy of the microbatches whose backward has run, since the last call.
  double take_loss();

  /// Discards forwards whose backwards have not run.
  void drop();

  void weights_updated();
  [[nodiscard]] std::size_t int8_weight_bytes() const;

 private:
  struct Block;
  struct Ends;
  enum class Keeps { nothing, sums, everything };
  // The input of the first block, or of the part that takes its place.
  Tensor entry(const Microbatch& m, Tensor x, MemoryClass c);
  Tensor blocks(const Microbatch& m, Tensor x, Keeps keeps);
  // The parts after the blocks.
  Tensor end(const Microbatch& m, Tensor x, bool keeps);
  [[nodiscard]] bool keeps_sums() const;
  // The input of block `i`, or of the parts after the last block, in a forward that kept the sums.
  Tensor input_of_block(const Microbatch& m, std::size_t i);
  [[nodiscard]] Dropout dropout_at(const Microbatch& m, std::int64_t site) const;

  Surroundings around_;
  StackOptions options_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Ends> ends_;
  std::vector<Tensor> inputs_;  ///< of checkpointed microbatches
  std::vector<char> checkpointed_;
  Tensor losses_;  ///< f64, of microbatches; empty without the head
  std::vector<char> has_loss_;
};

}  // namespace switchback::models
