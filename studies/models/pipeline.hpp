// SPDX-License-Identifier: Apache-2.0
// Models: a model whose pipeline stages are threads. Each stage has its own Context, memory and
// parameters, as separate devices would have (GPipe, Huang et al. 2019, arXiv 1811.06965). On a GPU
// each stage has its own stream, and its output is copied into the memory of the next stage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "studies/models/encoder.hpp"

namespace switchback::models {

/// For which microbatches a stage keeps only its input, and computes the forward again in backward.
/// With except_last and always, the last stage runs forward and backward of each microbatch
/// together.
enum class Checkpoint { never, except_last, always };
/// Returns "never", "except_last" or "always".
std::string_view checkpoint_name(Checkpoint checkpoint) noexcept;

/// Divides the parts of a stack among `stages` stages so that the costliest stage is as cheap as
/// possible, by StackOptions::cost. Returns the number of parts of each stage. Throws
/// Error(invalid_argument) if there are fewer parts than stages.
std::vector<std::int64_t> balanced_parts(const StackOptions& stack, std::int64_t stages,
                                         Checkpoint checkpoint);

struct PipelineOptions {
  StackOptions stack;
  std::string device = "cpu";       ///< device of all stages; each stage has its own stream
  std::vector<std::int64_t> parts;  ///< number of parts of each stage; their sum is stack.parts()
  std::int64_t microbatches = 1;
  Checkpoint checkpoint = Checkpoint::never;
  int stage_threads = 1;  ///< on CPUs: threads of each stage's Context
  std::uint64_t seed = 1;
  float learning_rate = 0.01f, momentum = 0.9f, weight_decay = 1e-4f;
};

/// A model that is trained in pipeline stages. Losses and gradients depend on the number of
/// microbatches, but have the same bits for any number of stages and any `checkpoint`.
class Pipeline {
 public:
  /// Creates the stages. Throws Error(invalid_argument).
  explicit Pipeline(const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  struct Step {
    double loss = 0;
    /// Time until all stages have finished their last forward. A last stage that runs forward and
    /// backward together is not included.
    double forward_ms = 0;
    double backward_ms = 0;  ///< time from the end of the forwards until all gradients are complete
    double optimizer_ms = 0;
  };
  /// Runs one step of SGD with Nesterov momentum on [sequences · length] tokens. `sequences` must
  /// be a multiple of the number of microbatches. Throws the error of a stage that failed.
  Step step(Tokens tokens, Tokens targets, std::int64_t sequences);

  /// The peak memory use of each stage since the last call of reset_peaks().
  [[nodiscard]] std::vector<MemoryUse> peaks() const;
  void reset_peaks();
  [[nodiscard]] std::int64_t parameters() const;
  /// A hash of the bits of all gradients and of the parameters' names.
  [[nodiscard]] std::uint64_t gradient_hash() const;

 private:
  struct Member;
  struct Link;
  PipelineOptions options_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::unique_ptr<Link>> links_;
  std::int64_t steps_ = 0;
};

}  // namespace switchback::models
