// SPDX-License-Identifier: Apache-2.0
// Models: a stack of encoder blocks like those of GPT-2, whose parts can be divided among pipeline
// stages: learned positions, causal attention, LayerNorm after attention and after the MLP, GELU,
// biases, and an output head without a bias whose weight is not that of the embedding.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "studies/models/layers.hpp"

namespace switchback::models {

/// What backward computes again for a checkpointed microbatch. `full`: everything; only the stage's
/// input is kept. `selective`: each block also keeps the input of its last norm, about a twelfth of
/// what it keeps without checkpointing. So the product with the longest rows is not computed again,
/// and only one block at a time holds the rest of its data.
enum class Recompute { full, selective };
/// Returns "full" or "selective".
std::string_view recompute_name(Recompute recompute) noexcept;

struct StackOptions {
  std::int64_t vocabulary = 0;
  std::int64_t width = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t length = 0;  ///< number of tokens in every sequence
  float dropout = 0;        ///< probability; after the embedding, after attention and after the MLP
  std::uint64_t key = 0;    ///< random key of dropout
  Mode mode = Mode::standard;
  /// Whether the inputs of linear layers are kept for backward as int8 codes, which need a quarter
  /// of the bytes. For the second linear layer of an MLP, the codes are those of GELU's input.
  bool keeps_codes = false;
  Recompute recompute = Recompute::selective;

  [[nodiscard]] std::int64_t parameters() const;
  /// The number of parts that can be divided among stages: the embedding, its dropout, the blocks,
  /// the last norm, and the head with the loss.
  [[nodiscard]] std::int64_t parts() const { return layers + 4; }

  /// The estimated cost of a part: multiply-adds per token in its matrix products, of which int8
  /// products count a third. `again`: the part of the forward that a checkpointed backward repeats.
  struct Cost {
    double forward = 0, backward = 0, again = 0;
  };
  [[nodiscard]] Cost cost(std::int64_t part) const;
};

/// A microbatch: the sequences that go through the stages together.
struct Microbatch {
  /// The microbatch's number. Others may run between its forward and its backward.
  std::int64_t index = 0;
  std::int64_t first = 0;          ///< number of its first sequence in the whole batch
  std::int64_t count = 0;          ///< number of sequences
  Tokens tokens = {};              ///< [count · length]
  Tokens targets = {};             ///< [count · length]
  std::int64_t rows_of_batch = 0;  ///< tokens in all microbatches; the loss is a mean over them
  std::int64_t step = 0;  ///< number of the training step, so that each has another dropout
};

/// A pipeline stage: several consecutive parts of the stack. Everything is f32.
class Stage {
 public:
  Stage(const Surroundings& around, Parameters& parameters, const StackOptions& options,
        std::int64_t first_part, std::int64_t parts, std::int64_t microbatches);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// Returns the output for the next stage; empty for the last stage. x is the output of the
  /// previous stage; empty for the first stage. With `checkpoint`, only x and the data that
  /// StackOptions::recompute names are kept, and backward computes the rest again. The last stage's
  /// output is not used, so with `checkpoint` that stage keeps only x and runs its forward in
  /// backward.
  Tensor forward(const Microbatch& m, Tensor x, bool checkpoint);
  /// Returns the gradient of the stage's input x; empty for the first stage. dy is the gradient of
  /// the stage's output; empty for the last stage.
  Tensor backward(const Microbatch& m, Tensor dy, bool accumulate);
  /// The mean cross entropy of the microbatches whose backward has run since the last call.
  double take_loss();

  /// Discards what is kept of forwards whose backwards have not run.
  void drop();

  void weights_updated();
  [[nodiscard]] std::size_t int8_weight_bytes() const;

 private:
  struct Block;
  struct Ends;
  enum class Keeps { nothing, sums, everything };
  // Runs the stage's embedding and dropout, if it has them, and returns the input of its first
  // block.
  Tensor entry(const Microbatch& m, Tensor x, MemoryClass c);
  Tensor blocks(const Microbatch& m, Tensor x, Keeps keeps);
  // Runs the parts after the blocks, if the stage has them: the last norm, and the head with the
  // loss.
  Tensor end(const Microbatch& m, Tensor x, bool keeps);
  [[nodiscard]] bool keeps_sums() const;
  // Returns the input of block `i`, or of the parts after the last block, from the data that a
  // forward with selective recomputation kept.
  Tensor input_of_block(const Microbatch& m, std::size_t i);
  [[nodiscard]] Dropout dropout_at(const Microbatch& m, std::int64_t site) const;

  Surroundings around_;
  StackOptions options_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Ends> ends_;
  std::vector<Tensor> inputs_;  ///< stage inputs of checkpointed microbatches
  std::vector<char> checkpointed_;
  Tensor losses_;  ///< losses of the microbatches as f64; empty if the head is in another stage
  std::vector<char> has_loss_;
};

}  // namespace switchback::models
