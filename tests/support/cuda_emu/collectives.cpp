// SPDX-License-Identifier: Apache-2.0
// Emulates the barriers of the threads of a block, and the collectives of the lanes of a warp.
#include "block_state.hpp"

namespace switchback_cuda_emu {

using namespace scheduler;

int lane_id() {
  return get_current() % lanes_per_warp;
}

namespace {

// A mask of the lanes that the running thread's warp has.
unsigned warp_lanes() {
  const int first = get_current() / lanes_per_warp * lanes_per_warp;
  const int lanes = block.count - first;
  return lanes >= lanes_per_warp ? 0xffffffffu : (1u << lanes) - 1u;
}

}  // namespace

bool block_barrier(int predicate, Site site) {
  const int self = get_current();
  Thread& thread = block.threads[self];
  thread.site = site;
  thread.mask = 0xffffffffu;
  if (block.waiting == 0) {
    block.site = site;
    block.votes = 0;
  } else if (!same(block.site, site)) {
    int other = 0;
    while (block.threads[other].state != State::block_wait)
      ++other;
    fail("divergent barrier", other);
  }
  void* const sync = &block.sync[block.generation % 2];
  release(sync);
  block.votes += predicate != 0 ? 1 : 0;
  if (++block.waiting < block.count) {
    wait_in(State::block_wait);
  } else {
    block.result = block.votes > 0;
    block.waiting = 0;
    block.idle_calls = 0;
    ++block.generation;
    for (int i = block.count - 1; i >= 0; --i)
      if (i != self) make_ready(i);
  }
  // The next barrier writes block.result only after every thread has read it here.
  const bool result = block.result;
  acquire(sync);
  return result;
}

std::uint64_t warp_collective(WarpVote vote, unsigned mask, std::uint64_t value, int source,
                              Site site) {
  const int self = get_current();
  Thread& thread = block.threads[self];
  const int lane = self % lanes_per_warp;
  const int first = self - lane;
  thread.site = site;
  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  if ((mask >> lane & 1u) == 0) fail("the mask does not name the thread that calls");
  if ((mask & ~warp_lanes()) != 0) fail("the mask names lanes that the block does not have");
  if (vote == WarpVote::shuffle && (mask >> source & 1u) == 0)
    fail("a shuffle reads a lane that is not in the mask", first + source);

  Warp& warp = block.warps[self / lanes_per_warp];
  const int leader = __builtin_ctz(mask);
  Group& group = warp.groups[leader];
  if (group.arrived == 0) {
    group.mask = mask;
    group.site = site;
  } else if (group.mask != mask || !same(group.site, site)) {
    fail("divergent warp collective", first + __builtin_ctz(group.arrived));
  }
  char* const sync = &warp.sync[leader][group.generation % 2];
  release(sync);
  group.arrived |= 1u << lane;
  if (group.arrived != mask) {
    wait_in(State::warp_wait);
    acquire(sync);
    return thread.value;
  }

  // The last lane to arrive stores the result of each lane, so no lane needs another lane's value
  // afterwards.
  std::uint64_t values[lanes_per_warp];
  std::uint64_t all = 0;
  for (int l = 0; l < lanes_per_warp; ++l) {
    if ((mask >> l & 1u) == 0) continue;
    values[l] = block.threads[first + l].value;
    if (vote == WarpVote::ballot) all |= values[l] << l;
    if (vote == WarpVote::max && values[l] > all) all = values[l];
  }
  group.arrived = 0;
  ++group.generation;
  block.idle_calls = 0;
  for (int l = lanes_per_warp - 1; l >= 0; --l) {
    if ((mask >> l & 1u) == 0) continue;
    Thread& other = block.threads[first + l];
    other.value = vote == WarpVote::shuffle ? values[other.source] : all;
    if (l != lane) make_ready(first + l);
  }
  acquire(sync);
  return thread.value;
}

}  // namespace switchback_cuda_emu
