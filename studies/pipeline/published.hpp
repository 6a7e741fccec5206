// SPDX-License-Identifier: Apache-2.0
// Studies: the published runs of a pipelined stack, and a table that compares them with our own.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "bench/workload/workload.hpp"
#include "studies/models/pipeline.hpp"

namespace switchback::bench::pipeline {

/// A row of data/reference/gpipe_gpt2_memory.csv. The study's own implementation and torchgpipe ran
/// without checkpointing (never) and with checkpointing: the own one in each microbatch (always),
/// torchgpipe in all except the last (except_last).
struct PublishedRun {
  std::int64_t stages = 0, microbatches = 0;
  models::Checkpoint checkpoint = models::Checkpoint::never;
  bool torchgpipe = false;
  double activation_bytes = 0, total_bytes = 0, samples_per_s = 0;
};
std::span<const PublishedRun> published_runs();
/// The number of parameters of the published stack.
std::int64_t published_parameters();

/// Adds the published values for a row, if there are any. Its ratios are relative to the same
/// implementation without checkpointing.
void add_published(std::int64_t stages, std::int64_t microbatches, models::Checkpoint checkpoint,
                   Json& values);

/// All published runs, each next to our run from the `records` of mode standard that kept values.
std::string table_of_published(std::span<const Json> records);

}  // namespace switchback::bench::pipeline
