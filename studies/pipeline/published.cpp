// SPDX-License-Identifier: Apache-2.0
#include "studies/pipeline/published.hpp"

#include <fmt/format.h>

#include <vector>

#include "bench/cli/table.hpp"
#include "studies/published/published.hpp"

namespace switchback::bench::pipeline {

namespace {

using models::Checkpoint;

constexpr double mib = 1024.0 * 1024.0;

const PublishedRun* run_of(std::int64_t stages, std::int64_t microbatches, Checkpoint checkpoint,
                           bool torchgpipe) {
  for (const PublishedRun& run : published_runs())
    if (run.stages == stages && run.microbatches == microbatches && run.checkpoint == checkpoint &&
        run.torchgpipe == torchgpipe)
      return &run;
  return nullptr;
}

const Json* record_of(std::span<const Json> records, const PublishedRun& run) {
  const Json* found = nullptr;
  for (const Json& record : records)
    if (record["stages"] == run.stages && record["microbatches"] == run.microbatches &&
        record["checkpoint"] == models::checkpoint_name(run.checkpoint) &&
        record["mode"] == mode_name(Mode::standard) && record["keep"] == "values" &&
        !record["forward"].is_null())
      found = &record;
  return found;
}

}  // namespace

std::span<const PublishedRun> published_runs() {
  static const std::vector<PublishedRun> all = [] {
    const PublishedTable table("gpipe_gpt2_memory");
    std::vector<PublishedRun> runs;
    for (std::size_t row = 0; row < table.rows(); ++row) {
      const auto value = [&](std::string_view column) { return table.number(row, column).value(); };
      PublishedRun run{.stages = static_cast<std::int64_t>(value("partitions")),
                       .microbatches = static_cast<std::int64_t>(value("microbatches")),
                       .torchgpipe = table.text(row, "implementation") == "torchgpipe",
                       .activation_bytes = value("peak_activation_bytes"),
                       .total_bytes = value("total_bytes"),
                       .samples_per_s = value("samples_per_s")};
      if (value("checkpoint") > 0)
        run.checkpoint = run.torchgpipe ? Checkpoint::except_last : Checkpoint::always;
      runs.push_back(run);
    }
    return runs;
  }();
  return all;
}

std::int64_t published_parameters() {
  return static_cast<std::int64_t>(
      PublishedTable("gpipe_gpt2_memory").number(0, "parameters").value());
}

void add_published(std::int64_t stages, std::int64_t microbatches, Checkpoint checkpoint,
                   Json& values) {
  const bool torchgpipe = checkpoint == Checkpoint::except_last;
  const PublishedRun* const run = run_of(stages, microbatches, checkpoint, torchgpipe);
  const PublishedRun* const never = run_of(stages, microbatches, Checkpoint::never, torchgpipe);
  if (run == nullptr || never == nullptr) return;
  values["published"] = run->activation_bytes / never->activation_bytes;
  values["published_slowdown"] = never->samples_per_s / run->samples_per_s;
  values["published_activations"] = run->activation_bytes / mib;
  values["published_samples_per_s"] = run->samples_per_s;
}

std::string table_of_published(std::span<const Json> records) {
  Table table({"K", "M", "checkpoint", "implementation", "published activations [MiB]", "of never",
               "total [MiB]", "samples/s", "slowdown", "ours: size", "activations [MiB]",
               "of never", "slowdown"},
              {"checkpoint", "implementation", "ours: size"});
  for (const PublishedRun& run : published_runs()) {
    const PublishedRun* const never =
        run_of(run.stages, run.microbatches, Checkpoint::never, run.torchgpipe);
    std::vector<std::string> cells = {std::to_string(run.stages),
                                      std::to_string(run.microbatches),
                                      std::string(models::checkpoint_name(run.checkpoint)),
                                      run.torchgpipe ? "torchgpipe" : "the study's",
                                      fmt::format("{:.0f}", run.activation_bytes / mib),
                                      number(run.activation_bytes / never->activation_bytes),
                                      fmt::format("{:.0f}", run.total_bytes / mib),
                                      number(run.samples_per_s),
                                      number(never->samples_per_s / run.samples_per_s)};
    if (const Json* const record = record_of(records, run); record != nullptr) {
      cells.push_back(cell_of((*record)["size"]));
      for (const char* key : {"activations", "memory_ratio", "slowdown"})
        cells.push_back(cell_of((*record)[key]));
    }
    table.add(std::move(cells));
  }
  return "Published runs (data/reference/gpipe_gpt2_memory.csv; GPUs, 12 blocks of width 768, "
         "batch 64, sequence 128)\n"
         "and ours in mode standard. Ratios are against the same run without checkpointing:\n" +
         table.text();
}

}  // namespace switchback::bench::pipeline
