// SPDX-License-Identifier: Apache-2.0
// Core: operations that are made of several and still change nothing when memory runs out.
//
// Each single operation takes all its memory before it writes. That is not true of a sequence: the
// second operation may find no memory when the first has written. So a sequence runs twice. The
// first run, the rehearsal, does everything but compute: it picks engines, looks up configurations,
// has libraries make their plans, and takes scratch memory. The second run finds all of that there
// and allocates nothing.
//
// An operation that can be part of a sequence keeps these rules. On the CPU it writes only inside
// Threads::for_each, which does nothing in a rehearsal. On a device it queues nothing where
// DeviceRuntime::rehearsing() says so. What it gets from the heap it keeps for the next call.
#pragma once

#include "core/context_state.hpp"

namespace switchback::core {

/// The stage of a sequence for the life of the object.
class StageScope {
 public:
  StageScope(ContextState& state, Stage stage) noexcept : state_(state) { enter(stage); }
  ~StageScope() { enter(Stage::single); }
  StageScope(const StageScope&) = delete;
  StageScope& operator=(const StageScope&) = delete;

 private:
  void enter(Stage stage) noexcept {
    state_.stage = stage;
    state_.threads.rehearse(stage == Stage::rehearsal);
    if (state_.runtime != nullptr) state_.runtime->rehearse(stage == Stage::rehearsal);
  }
  ContextState& state_;
};

/// Runs a sequence of operations so that it throws Error(out_of_memory) before anything is written,
/// or not at all. Inside another sequence it is a part of that one.
template <class Sequence>
void all_or_nothing(ContextState& state, const Sequence& sequence) {
  if (state.stage != Stage::single) return sequence();
  // Holds what the rehearsal takes until the second run has taken it again.
  const Workspace::Frame frame(state.workspace);
  state.rehearsed_lookups.clear();
  {
    const StageScope scope(state, Stage::rehearsal);
    sequence();
  }
  const StageScope scope(state, Stage::performance);
  sequence();
}

}  // namespace switchback::core
