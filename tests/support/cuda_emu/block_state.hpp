// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the state of the running block, for the scheduler and for the
// barriers and collectives of its threads. Never compiled with ThreadSanitizer, and free of library
// containers: all fibers of a block use this state, and ThreadSanitizer must see only the races of
// the kernel's threads.
#pragma once

#include "block.hpp"
#include "fiber.hpp"

namespace switchback_cuda_emu::scheduler {

inline constexpr int max_threads = 1024;
inline constexpr int lanes_per_warp = 32;

inline constexpr int threads_per_warpgroup = 128;
inline constexpr int named_barriers = 16;
inline constexpr int max_copies = 64;

enum class State {
  fresh,
  ready,
  block_wait,
  warp_wait,
  grid_wait,
  mbarrier_wait,
  named_wait,
  finished
};

struct Thread {
  uint3 index;
  State state;
  Fiber* fiber;
  Site site;
  unsigned mask;
  std::uint64_t value;  // its operand of a collective, then the result
  int source;           // the lane whose value a shuffle reads
  const void* barrier;  // at which it waits
};

// A collective that is under way, stored at the lowest lane of its mask.
struct Group {
  unsigned mask, arrived;
  WarpVote vote;
  Site site;
  unsigned generation;
};

struct Warp {
  Group groups[lanes_per_warp];
  // Addresses that represent collectives to ThreadSanitizer. There are two of each, used
  // alternately: a fast lane's arrival at the next collective must not look as if a slow lane,
  // still leaving this one, had seen it.
  char sync[lanes_per_warp][2];
};

// A barrier with a number, or the barrier of a warpgroup.
struct NamedBarrier {
  int arrived, threads;
};

// A copy that is under way.
struct Copy {
  void* to;
  Box box;
  std::uint64_t* barrier;
};

// The counters and barriers of a block.
struct BlockCounts {
  int count;
  int finished;
  // Threads that can continue, and threads that have not begun.
  int ready_count;
  int fresh_count;
  // The barrier of the block.
  int waiting;
  int votes;
  BlockVote vote;
  Site site;
  int result;
  unsigned generation;
  char sync[2];
  char start, end;  // order of launch, blocks and host for ThreadSanitizer
  int idle_calls;   // of __nanosleep
  int in_grid_barrier;
  int copy_count;
  NamedBarrier named[named_barriers + max_threads / threads_per_warpgroup];
};

struct Block : BlockCounts {
  Thread threads[max_threads];
  Warp warps[max_threads / lanes_per_warp];
  int ready[max_threads];
  int fresh[max_threads];
  Copy copies[max_copies];
};

// A block of a cooperative launch that is suspended while another block runs.
struct Aside {
  bool begun, ended;
  uint3 index;
  void* shared_memory;
  Block block;
};

extern Block block;

/// Report a release and an acquire to ThreadSanitizer.
void release(void* address);
void acquire(void* address);

/// The index of the running thread.
int get_current();
/// Whether two sites are the same place.
bool same(const Site& a, const Site& b);
/// Ends the launch with a fault of the running thread, and of thread `other` if that is not -1.
[[noreturn]] void fail(const char* what, int other = -1);
void make_ready(int thread);
/// Makes the threads that wait at a barrier ready.
void make_waiting_ready(State state, const void* barrier);
/// A number in [0, n) from the launch's random sequence.
int random_below(int n);
/// The running thread waits until it is made ready.
void wait_in(State state);

}  // namespace switchback_cuda_emu::scheduler
