// SPDX-License-Identifier: Apache-2.0
#include "studies/models/pipeline.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "core/check.hpp"
#include "studies/models/memory.hpp"
#include "studies/models/optimizer.hpp"

namespace switchback::models {

namespace {

/// Thrown in a stage that waits for another stage which has failed.
struct OtherStageFailed {};

using StageClock = std::chrono::steady_clock;

double ms_between(StageClock::time_point begin, StageClock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

std::string_view checkpoint_name(Checkpoint checkpoint) noexcept {
  constexpr std::array<std::string_view, 3> names = {"never", "except_last", "always"};
  return names[static_cast<std::size_t>(checkpoint)];
}

std::vector<std::int64_t> balanced_parts(const StackOptions& stack, std::int64_t stages,
                                         Checkpoint checkpoint) {
  const std::int64_t parts = stack.parts();
  core::require(stages >= 1 && stages <= parts, "pipeline: stages {}; it must be from 1 to {}",
                stages, parts);
  const auto cost_of = [&](std::int64_t first, std::int64_t end) {
    double cost = 0;
    for (std::int64_t part = first; part < end; ++part) {
      const StackOptions::Cost c = stack.cost(part);
      cost += c.forward + c.backward;
      if (checkpoint != Checkpoint::never && end < parts) cost += c.again;
    }
    return cost;
  };
  // Dynamic programming. least[e]: the smallest possible cost of the costliest stage if the parts
  // before e are divided among `s` stages. starts[s][e]: the first part of the last of these
  // stages.
  std::vector<double> least;
  for (std::int64_t e = 0; e <= parts; ++e)
    least.push_back(cost_of(0, e));
  std::vector<std::vector<std::int64_t>> starts(1, std::vector<std::int64_t>(least.size(), 0));
  for (std::int64_t s = 2; s <= stages; ++s) {
    const std::vector<double> before = least;
    std::vector<std::int64_t>& start = starts.emplace_back(before.size(), s - 1);
    for (std::int64_t e = s; e <= parts; ++e) {
      const auto at = static_cast<std::size_t>(e);
      least[at] = std::numeric_limits<double>::infinity();
      for (std::int64_t b = s - 1; b < e; ++b) {
        const double most = std::max(before[static_cast<std::size_t>(b)], cost_of(b, e));
        if (most >= least[at]) continue;
        least[at] = most;
        start[at] = b;
      }
    }
  }
  std::vector<std::int64_t> split;
  for (std::int64_t e = parts; !starts.empty(); starts.pop_back()) {
    const std::int64_t b = starts.back()[static_cast<std::size_t>(e)];
    split.insert(split.begin(), e - b);
    e = b;
  }
  return split;
}

/// A stage of the pipeline with all objects that its thread uses.
struct Pipeline::Member {
  Member(const PipelineOptions& o, std::int64_t first_part, std::int64_t parts)
      : context({.device = o.device, .threads = o.stage_threads}),
        memory(context.state().runtime),
        parameters(context.state(), memory, o.seed),
        stage({context, memory}, parameters, o.stack, first_part, parts, o.microbatches),
        optimizer(make_sgd(parameters, memory,
                           {.learning_rate = o.learning_rate,
                            .momentum = o.momentum,
                            .weight_decay = o.weight_decay,
                            .nesterov = true})) {}
  void count_memory() {
    memory.set_held_elsewhere(MemoryClass::int8_weights, stage.int8_weight_bytes());
    memory.set_held_elsewhere(MemoryClass::workspace, context.workspace_bytes());
  }
  /// Takes over a complete tensor from the previous or next stage. On a device it is copied, so
  /// that a stage's memory is not returned while the stream of another stage still reads it.
  Tensor received(Tensor tensor) {
    if (context.state().on_cpu() || tensor.empty()) return tensor;
    Tensor own = memory.take(MemoryClass::workspace, tensor.dtype(), tensor.rows(), tensor.cols());
    write(context.state(), tensor.any().data, own);
    context.synchronize();
    return own;
  }
  /// Waits until the queued work is complete, before a tensor is handed to another stage.
  void complete() {
    if (!context.state().on_cpu()) context.synchronize();
  }

  Context context;
  Memory memory;
  Parameters parameters;
  Stage stage;
  std::unique_ptr<Optimizer> optimizer;
};

/// The connection of two neighbouring stages: hands on the activations of each microbatch in
/// forward, and their gradients in backward.
struct Pipeline::Link {
  explicit Link(std::int64_t microbatches)
      : onward(static_cast<std::size_t>(microbatches)),
        back(static_cast<std::size_t>(microbatches)) {}

  void put(std::vector<Tensor>& slots, std::int64_t i, Tensor tensor) {
    {
      const std::lock_guard lock(mutex);
      slots[static_cast<std::size_t>(i)] = std::move(tensor);
    }
    changed.notify_all();
  }
  Tensor take(std::vector<Tensor>& slots, std::int64_t i) {
    std::unique_lock lock(mutex);
    Tensor& slot = slots[static_cast<std::size_t>(i)];
    changed.wait(lock, [&] { return failed || !slot.empty(); });
    if (slot.empty()) throw OtherStageFailed{};
    return std::move(slot);
  }
  void fail() {
    {
      const std::lock_guard lock(mutex);
      failed = true;
    }
    changed.notify_all();
  }
  void reset() {
    failed = false;
    for (std::vector<Tensor>* slots : {&onward, &back})
      for (Tensor& t : *slots)
        t.reset();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor> onward, back;
  bool failed = false;
};

Pipeline::Pipeline(const PipelineOptions& options) : options_(options) {
  std::int64_t parts = 0;
  for (const std::int64_t p : options.parts) {
    core::require(p >= 1, "pipeline: a stage of {} parts; it must have at least 1", p);
    parts += p;
  }
  core::require(parts == options.stack.parts(), "pipeline: stages of {} parts; the stack has {}",
                parts, options.stack.parts());
  core::require(options.microbatches >= 1, "pipeline: microbatches {}; it must be at least 1",
                options.microbatches);
  std::int64_t first = 0;
  for (const std::int64_t p : options.parts) {
    members_.push_back(std::make_unique<Member>(options, first, p));
    first += p;
    if (members_.size() > 1) links_.push_back(std::make_unique<Link>(options.microbatches));
  }
}

Pipeline::~Pipeline() {
  // Links and stages may hold tensors whose memory belongs to another stage, so all tensors are
  // returned before a stage is destroyed.
  links_.clear();
  for (const auto& member : members_)
    member->stage.drop();
}

Pipeline::Step Pipeline::step(Tokens tokens, Tokens targets, std::int64_t sequences) {
  const std::int64_t count = options_.microbatches;
  core::require(sequences >= 1 && sequences % count == 0,
                "pipeline: {} sequences in {} microbatches; it must be a multiple", sequences,
                count);
  const std::int64_t rows = sequences * options_.stack.length;
  check_tokens("tokens", tokens, rows, options_.stack.vocabulary);
  check_tokens("targets", targets, rows, options_.stack.vocabulary);
  const std::int64_t sequences_each = sequences / count;
  const auto microbatch = [&](std::int64_t i) {
    const auto begin = static_cast<std::size_t>(i * sequences_each * options_.stack.length);
    const auto size = static_cast<std::size_t>(sequences_each * options_.stack.length);
    return Microbatch{.index = i,
                      .first = i * sequences_each,
                      .count = sequences_each,
                      .tokens = tokens.subspan(begin, size),
                      .targets = targets.subspan(begin, size),
                      .rows_of_batch = rows,
                      .step = steps_};
  };
  const std::size_t stages = members_.size();
  std::vector<StageClock::time_point> forward_done(stages), backward_done(stages), done(stages);
  std::vector<std::exception_ptr> errors(stages);
  const auto begin = StageClock::now();
  const auto run_stage = [&](std::size_t s) {
    Member& member = *members_[s];
    Link* const before = s > 0 ? links_[s - 1].get() : nullptr;
    Link* const after = s + 1 < stages ? links_[s].get() : nullptr;
    // The last stage's output is not used. So with checkpointing it runs forward and backward of
    // one microbatch at a time: it keeps no activations of other microbatches, computes nothing
    // twice, and works while earlier stages are still in their forwards.
    const bool at_once = after == nullptr && options_.checkpoint != Checkpoint::never;
    const auto backward = [&](std::int64_t i) {
      Tensor dy = after != nullptr ? member.received(after->take(after->back, i)) : Tensor();
      Tensor dx = member.stage.backward(microbatch(i), std::move(dy), i + 1 < count);
      if (before != nullptr) {
        member.complete();
        before->put(before->back, i, std::move(dx));
      }
      member.count_memory();
    };
    try {
      // Forwards run from the last microbatch to the first, like backwards, because the last stage
      // may run both together.
      for (std::int64_t i = count - 1; i >= 0; --i) {
        const bool checkpoint =
            !at_once && (options_.checkpoint == Checkpoint::always ||
                         (options_.checkpoint == Checkpoint::except_last && i + 1 < count));
        Tensor x = before != nullptr ? member.received(before->take(before->onward, i)) : Tensor();
        Tensor y = member.stage.forward(microbatch(i), std::move(x), checkpoint);
        if (after != nullptr) {
          member.complete();
          after->put(after->onward, i, std::move(y));
        }
        member.count_memory();
        if (at_once) backward(i);
      }
      member.complete();
      forward_done[s] = at_once ? begin : StageClock::now();
      if (!at_once)
        for (std::int64_t i = count - 1; i >= 0; --i)
          backward(i);
      member.complete();
      backward_done[s] = StageClock::now();
      member.optimizer->step(member.context.state());
      member.stage.weights_updated();
      member.complete();
      done[s] = StageClock::now();
    } catch (const OtherStageFailed&) {
    } catch (...) {
      errors[s] = std::current_exception();
      for (Link* link : {before, after})
        if (link != nullptr) link->fail();
    }
    // A stage that stopped because another one failed tells its neighbours, so that they stop too.
    if (done[s] == StageClock::time_point())
      for (Link* link : {before, after})
        if (link != nullptr) link->fail();
  };
  {
    std::vector<std::thread> threads;
    for (std::size_t s = 1; s < stages; ++s)
      threads.emplace_back(run_stage, s);
    run_stage(0);
    for (std::thread& thread : threads)
      thread.join();
  }
  for (const std::exception_ptr& error : errors)
    if (error != nullptr) {
      for (const auto& link : links_)
        link->reset();
      for (const auto& member : members_)
        member->stage.drop();
      std::rethrow_exception(error);
    }
  ++steps_;
  Step result;
  result.loss = members_.back()->stage.take_loss();
  const auto all_forward = *std::max_element(forward_done.begin(), forward_done.end());
  const auto all_backward = *std::max_element(backward_done.begin(), backward_done.end());
  const auto all_done = *std::max_element(done.begin(), done.end());
  result.forward_ms = ms_between(begin, all_forward);
  result.backward_ms = ms_between(all_forward, all_backward);
  result.optimizer_ms = ms_between(all_backward, all_done);
  return result;
}

std::vector<MemoryUse> Pipeline::peaks() const {
  std::vector<MemoryUse> all;
  for (const auto& member : members_)
    all.push_back(member->memory.peak());
  return all;
}

void Pipeline::reset_peaks() {
  for (const auto& member : members_)
    member->memory.reset_peak();
}

std::int64_t Pipeline::parameters() const {
  std::int64_t count = 0;
  for (const auto& member : members_)
    count += member->parameters.count();
  return count;
}

std::uint64_t Pipeline::gradient_hash() const {
  std::uint64_t sum = 0;  // sum of the parameters' hashes, so that their order does not matter
  for (const auto& member : members_)
    for (const Parameter& p : member->parameters.all()) {
      std::uint64_t hash = 0xcbf29ce484222325u;
      const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
      for (const char c : p.name)
        mix(static_cast<unsigned char>(c));
      for (const float g : floats_of(member->context.state(), p.gradient)) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &g, sizeof bits);
        mix(bits);
      }
      sum += hash;
    }
  return sum;
}

}  // namespace switchback::models
