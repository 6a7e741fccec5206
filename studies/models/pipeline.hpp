// SPDX-License-Identifier: Apache-2.0
// Models: a stack whose stages are threads. Each stage has its own Context, memory and parameters,
// as separate devices would have (GPipe, Huang et al. 2019, arXiv 1811.06965). On a device each
// stage has a stream; its output is copied into the memory of the next stage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "studies/models/encoder.hpp"

namespace switchback::models {

/// For which microbatches a stage keeps only its input and computes the forward again in backward.
/// Unless it is never, the last stage processes each microbatch forward and backward together.
enum class Checkpoint { never, except_last, always };
/// "never", "except_last", "always".
std::string_view checkpoint_name(Checkpoint checkpoint) noexcept;

/// The number of parts of each of `stages` stages that makes the costliest stage as cheap as
/// possible, by StackOptions::cost. Throws Error(invalid_argument) if there are fewer parts than
/// stages.
std::vector<std::int64_t> balanced_parts(const StackOptions& stack, std::int64_t stages,
                                         Checkpoint checkpoint);

struct PipelineOptions {
  StackOptions stack;
  std::string device = "cpu";       ///< of all stages; each has its own stream
  std::vector<std::int64_t> parts;  ///< of each stage; their sum is stack.parts()
  std::int64_t microbatches = 1;
  Checkpoint checkpoint = Checkpoint::never;
  int stage_threads = 1;  ///< threads of each stage's Context, on CPUs
  std::uint64_t seed = 1;
  float learning_rate = 0.01f, momentum = 0.9f, weight_decay = 1e-4f;
};

/// Losses and gradients depend on `microbatches`. They depend neither on the stages nor on
/// `checkpoint`: the bits are the same.
class Pipeline {
 public:
  /// Throws Error(invalid_argument).
  explicit Pipeline(const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  struct Step {
    double loss = 0;
    /// Until all stages have finished their last forward. A last stage that runs forward and
    /// backward together is not included.
    double forward_ms = 0;
    double backward_ms = 0;  ///< from then until all gradients are complete
    double optimizer_ms = 0;
  };
  /// One step of SGD with Nesterov's momentum on [sequences · length] tokens. `sequences` is a
  /// multiple of the microbatches. Throws the error of a stage that failed.
  Step step(Tokens tokens, Tokens targets, std::int64_t sequences);

  /// The peaks of the stages, in order, since the last call of reset_peaks().
  [[nodiscard]] std::vector<MemoryUse> peaks() const;
  void reset_peaks();
  [[nodiscard]] std::int64_t parameters() const;
  /// A hash of the bits of all gradients, by name.
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
