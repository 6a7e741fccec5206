// SPDX-License-Identifier: Apache-2.0
// Bench: measures the upper limits (ceilings) of this machine: memory bandwidth and arithmetic
// rates. Measured rates are reported as shares of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "switchback/context.hpp"

namespace switchback::bench {

/// The latency between cores: nanoseconds from a store on the core of the Context's first thread
/// until another thread has seen it, for the nearest and for the farthest thread. 0: there is only
/// one thread, or the threads did not run at the same time. Cores of one die, of two dies and of
/// two sockets differ by a factor of five or more, and the host of a virtual machine moves its
/// cores.
struct CoreLatency {
  double least_ns = 0;
  double most_ns = 0;
};
/// Measures the latency between cores. Takes about a millisecond per thread.
CoreLatency measure_core_latency(Context& context);

/// The latency between cores as [least, most] in nanoseconds, or null if it is not known.
nlohmann::ordered_json to_json(const CoreLatency& latency);

/// The upper limits of the Context's threads and instruction set. Each rate is that of the fastest
/// round, because a limit is the speed of the machine when no other program runs, and a round of a
/// millisecond cannot be faster than that.
struct Ceilings {
  /// Rate of a copy beyond the caches: bytes read plus written per second, in 1e9.
  double copy_gb_s = 0;
  /// Rate of a copy within L3, in 1e9 bytes per second; 0 if the size of L3 is not known.
  double copy_l3_gb_s = 0;
  /// Rate of int8 multiply-adds in registers: two operations each, in 1e12 per second.
  double s8_tops = 0;
  /// Rate of f32 multiply-adds in registers: two operations each, in 1e12 per second.
  double f32_tflops = 0;
  double bf16_tflops = 0;  ///< rate of bf16 products on a device other than the CPU; 0 on the CPU
  CoreLatency core_to_core;
  std::string s8_instruction;
  std::string f32_instruction;
};
/// Measures the ceilings in about budget_s seconds (a quarter for each rate), after its buffers are
/// allocated. Both copies use the better one of plain and streaming stores. On a device other than
/// the CPU, a copy by the device beyond its caches and products of its library are timed, because
/// its units cannot be measured in another way.
Ceilings measure_ceilings(Context& context, double budget_s);
Ceilings measure_device_ceilings(Context& context, double budget_s);

/// A loop of independent multiply-adds in registers, enough of them to fill every execution pipe
/// that the instruction can use.
struct RegisterLoop {
  const char* instruction;
  double operations_per_step;  ///< arithmetic operations; a multiply-add counts as two
  void (*run)(long steps);
};
/// Loops of the best exact int8 dot product instruction and of the best f32 multiply-add that the
/// Context may use.
RegisterLoop int8_loop(const Context& context);
RegisterLoop f32_loop(const Context& context);
/// A loop of vector integer additions, which any execution unit can run. Their rate is the maximum
/// for all vector instructions.
RegisterLoop integer_loop(const Context& context);

/// Runs `steps` steps of a register loop on each of the Context's threads. Returns the number of
/// arithmetic operations of all threads.
double run_on_all_threads(Context& context, const RegisterLoop& loop, long steps);

/// Total sizes in bytes of the buffers for a copy (source plus destination): a size beyond every
/// cache, and a size within L3 but beyond L2 (0: no such size is known).
std::int64_t past_caches_bytes();
std::int64_t inside_l3_bytes(int threads);

}  // namespace switchback::bench
