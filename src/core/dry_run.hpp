// SPDX-License-Identifier: Apache-2.0
// Core: sequences of operations that change nothing if memory runs out.
//
// A single operation allocates all its memory before it writes. A sequence cannot do that by
// itself: its second operation may run out of memory after the first has written. So a sequence
// runs twice. The first run, the dry run, does everything except computing: it picks engines,
// looks up configurations, lets libraries create their plans, and allocates scratch memory. The
// second run finds all of that ready and allocates nothing.
//
// An operation that can be part of a sequence follows these rules. On the CPU it writes only inside
// Threads::for_each, which does nothing in a dry run. On a device it queues nothing while
// DeviceRuntime::is_dry_run() is true. It keeps its heap allocations for the next call.
#pragma once

#include "core/context_state.hpp"

namespace switchback::core {

/// Sets the stage of a Context (single, dry run or run) while the object lives.
class StageScope {
 public:
  StageScope(ContextState& state, Stage stage) noexcept : state_(state) { enter(stage); }
  ~StageScope() { enter(Stage::single); }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  void enter(Stage stage) noexcept {
    state_.stage = stage;
    state_.threads.set_dry_run(stage == Stage::dry_run);
    if (state_.runtime != nullptr) state_.runtime->set_dry_run(stage == Stage::dry_run);
  }
  ContextState& state_;
};

/// Runs a sequence of operations so that it throws Error(out_of_memory) only before anything is
/// written. A sequence inside another sequence becomes a part of the outer one.
template <class Sequence>
void all_or_nothing(ContextState& state, const Sequence& sequence) {
  if (state.stage != Stage::single) return sequence();
  // Keeps the memory of the dry run reserved until the second run has taken it.
  const Workspace::Frame frame(state.workspace);
  state.dry_run_lookups.clear();
  {
    const StageScope scope(state, Stage::dry_run);
    sequence();
  }
  const StageScope scope(state, Stage::run);
  sequence();
}

}  // namespace switchback::core
