// SPDX-License-Identifier: Apache-2.0
// Bench: measures the upper limits of this machine. Rates are reported as shares of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "switchback/context.hpp"

namespace switchback::bench {

/// Nanoseconds from a store on the core of the Context's first thread until another thread has seen
/// it, for the nearest and for the farthest thread. 0: there is only one thread, or the threads did
/// not run at the same time. Cores of one die, of two dies and of two sockets differ by a factor of
/// five or more, and the host of a virtual machine moves its cores.
struct CoreLatency {
  double least_ns = 0;
  double most_ns = 0;
};
/// Takes about a millisecond per thread.
CoreLatency measure_core_latency(Context& context);

/// [least, most], or null if it is not known.
nlohmann::ordered_json to_json(const CoreLatency& latency);

/// The ceilings of the Context's threads and instruction set. Rates are those of the fastest round.
/// A ceiling is the speed of the machine when no other program runs, and a round of a millisecond
/// cannot be faster than that.
struct Ceilings {
  double copy_gb_s = 0;     ///< bytes read plus written per second past the caches, in 1e9
  double copy_l3_gb_s = 0;  ///< the same within L3; 0 if its size is not known
  double s8_tops = 0;       ///< int8 multiply-adds in registers, two operations each, in 1e12
  double f32_tflops = 0;    ///< the same for f32
  double bf16_tflops = 0;   ///< of a device other than the CPU; 0 on the CPU
  CoreLatency core_to_core;
  std::string s8_instruction;
  std::string f32_instruction;
};
/// Takes about budget_s seconds (a quarter for each rate) after its buffers are allocated. Both
/// copies use the better one of plain and streaming stores. On a device other than the CPU: a copy
/// by the device, beyond its caches, and products of its library, because its units cannot be
/// measured in another way.
Ceilings measure_ceilings(Context& context, double budget_s);
Ceilings measure_device_ceilings(Context& context, double budget_s);

/// A loop of independent multiply-adds in registers, which fills every pipe that the instruction
/// can use.
struct RegisterLoop {
  const char* instruction;
  double operations_per_step;  ///< a multiply-add counts as two
  void (*run)(long steps);
};
/// The best exact int8 dot product instruction and the best f32 multiply-add that the Context may
/// use.
RegisterLoop int8_loop(const Context& context);
RegisterLoop f32_loop(const Context& context);
/// Vector instructions that any unit executes. Their rate is the maximum for all vector
/// instructions.
RegisterLoop integer_loop(const Context& context);

/// Runs `steps` steps of the loop on each of the Context's threads; returns the number of
/// operations of all threads.
double run_on_all_threads(Context& context, const RegisterLoop& loop, long steps);

/// Buffer sizes in bytes for copies, reads and writes together: beyond every cache, and within L3
/// but beyond L2 (0: no such size is known).
std::int64_t past_caches_bytes();
std::int64_t inside_l3_bytes(int threads);

}  // namespace switchback::bench
