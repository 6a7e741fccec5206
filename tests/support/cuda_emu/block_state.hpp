// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the state of the running block, for the scheduler and for the
// barriers and warp collectives of its threads. Never compiled with ThreadSanitizer, and free of
// standard library containers. All fibers of a block use this state, and ThreadSanitizer must see
// only the races of the kernel's threads.
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
  std::uint64_t value;  // the thread's operand of a warp collective, then the result
  int source;           // the lane whose value a shuffle reads
  const void* barrier;  // the barrier at which the thread waits
};

// A warp collective that some lanes have reached, stored at the lowest lane of its mask.
struct Group {
  unsigned mask, arrived;
  Site site;
  unsigned generation;
};

struct Warp {
  Group groups[lanes_per_warp];
  // Addresses that represent warp collectives to ThreadSanitizer. Each collective has two, used
  // alternately: a fast lane's arrival at the next collective must not look as if a slow lane,
  // still leaving this one, had seen it.
  char sync[lanes_per_warp][2];
};

// A named barrier (bar.sync with a number), or the barrier of a warpgroup.
struct NamedBarrier {
  int arrived, threads;
};

// An asynchronous copy to shared memory that has not completed.
struct Copy {
  void* to;
  Box box;
  std::uint64_t* barrier;
};

// The counters and barriers of a block: the part of its state that is always copied as a whole.
struct BlockCounts {
  int count;
  int finished;
  // The numbers of threads that can continue, and of threads that have not begun.
  int ready_count;
  int fresh_count;
  // The block's barrier (__syncthreads and __syncthreads_or).
  int waiting;
  int votes;  // the threads whose predicate is not zero
  Site site;
  bool result;
  unsigned generation;
  char sync[2];
  char start, end;  // addresses that order launch, blocks and host for ThreadSanitizer
  int idle_calls;   // calls of __nanosleep since a thread last made progress
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

/// Tell ThreadSanitizer of a release, and of an acquire, at this address.
void release(void* address);
void acquire(void* address);

/// The index of the running thread in its block.
int get_current();
/// Whether two calls are at the same place in the source.
bool same(const Site& a, const Site& b);
/// Ends the launch with a fault of the running thread, and of thread `other` if that is not -1.
[[noreturn]] void fail(const char* what, int other = -1);
void make_ready(int thread);
/// Makes the threads that wait at this barrier, in this state, ready to continue.
void make_waiting_ready(State state, const void* barrier);
/// A number in [0, n) from the launch's random sequence.
int random_below(int n);
/// The running thread waits until another thread makes it ready.
void wait_in(State state);

}  // namespace switchback_cuda_emu::scheduler
