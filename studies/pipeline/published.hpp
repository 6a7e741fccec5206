// SPDX-License-Identifier: Apache-2.0
// Studies: published runs of a pipelined decoder, and a table that compares them with our own runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "bench/workload/workload.hpp"
#include "studies/models/pipeline.hpp"

namespace switchback::bench::pipeline {

/// A row of data/reference/gpipe_gpt2_memory.csv: a run of the study's own implementation, or of
/// torchgpipe. Both ran without checkpointing (`never`) and with it: the study's own implementation
/// in every microbatch (`always`), torchgpipe in all except the last one (`except_last`).
struct PublishedRun {
  std::int64_t stages = 0, microbatches = 0;
  models::Checkpoint checkpoint = models::Checkpoint::never;
  bool torchgpipe = false;
  double activation_bytes = 0, total_bytes = 0, samples_per_s = 0;
};
std::span<const PublishedRun> published_runs();
/// The number of parameters of the model in the published runs.
std::int64_t published_parameters();

/// Adds the published figures for this setting to `values`, the fields of a result row, if there
/// are any. Published ratios are relative to the same implementation without checkpointing.
void add_published(std::int64_t stages, std::int64_t microbatches, models::Checkpoint checkpoint,
                   Json& values);

/// A table of all published runs, each next to our own run with the same setting. Our runs are
/// those of `records` in mode standard that keep the inputs of linear layers as values.
std::string table_of_published(std::span<const Json> records);

}  // namespace switchback::bench::pipeline
