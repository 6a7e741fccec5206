// SPDX-License-Identifier: Apache-2.0
// Studies: the published runs of a pipelined stack, and a table of them beside our own.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "bench/workload/workload.hpp"
#include "studies/models/pipeline.hpp"

namespace switchback::bench::pipeline {

/// A row of data/reference/gpipe_gpt2_memory.csv. The study's own implementation and torchgpipe run
/// without checkpointing (never), and with: its own in each microbatch (always), torchgpipe in all
/// but the last (except_last).
struct PublishedRun {
  std::int64_t stages = 0, microbatches = 0;
  models::Checkpoint checkpoint = models::Checkpoint::never;
  bool torchgpipe = false;
  double activation_bytes = 0, total_bytes = 0, samples_per_s = 0;
};
std::span<const PublishedRun> published_runs();
/// Of the stack.
std::int64_t published_parameters();

/// Adds what is published for a row, if it is: its ratios are against the same implementation
/// without checkpointing.
void add_published(std::int64_t stages, std::int64_t microbatches, models::Checkpoint checkpoint,
                   Json& values);

/// All published runs, each beside ours from `records` of mode standard that kept values.
std::string table_of_published(std::span<const Json> records);

}  // namespace switchback::bench::pipeline
