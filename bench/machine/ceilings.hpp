// SPDX-License-Identifier: Apache-2.0
// Bench: what this machine could do at most, measured: the numbers that rates are shares of.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "switchback/context.hpp"

namespace switchback::bench {

/// Nanoseconds from a store on the core of the Context's first thread until another thread has seen
/// it: of the nearest and the farthest one. 0: there is one thread, or threads did not run at the
/// same time. Cores of one die, of two dies and of two sockets differ by a factor of five and more,
/// and the host of a virtual machine moves its cores about.
struct CoreLatency {
  double least_ns = 0;
  double most_ns = 0;
};
/// Takes about a millisecond a thread.
CoreLatency measure_core_latency(Context& context);

/// [least, most], or null if it is not known.
nlohmann::ordered_json to_json(const CoreLatency& latency);

/// On the Context's threads and instruction set. Rates are of the fastest round: a ceiling is what
/// the machine can do when nobody else runs, and rounds of a millisecond cannot be faster than it.
struct Ceilings {
  double copy_gb_s = 0;     ///< bytes read plus written per second past the caches, in 1e9
  double copy_l3_gb_s = 0;  ///< the same inside L3; 0 where its size is not known
  double s8_tops = 0;       ///< int8 multiply-adds in registers alone, two operations each, in 1e12
  double f32_tflops = 0;    ///< the same for f32
  double bf16_tflops = 0;   ///< of a device beside the CPU; 0 on the CPU
  CoreLatency core_to_core;
  std::string s8_instruction;
  std::string f32_instruction;
};
/// Takes about budget_s seconds (a quarter for each rate) once its buffers are there. Both copies
/// are the better of plain and streaming stores. On a device beside the CPU: its own copy past the
/// caches, and products of its library, since there is no telling what its units could do beyond
/// those.
Ceilings measure_ceilings(Context& context, double budget_s);
Ceilings measure_device_ceilings(Context& context, double budget_s);

/// A loop of independent multiply-adds on registers, filling every pipe the instruction has.
struct RegisterLoop {
  const char* instruction;
  double operations_per_step;  ///< a multiply-add counts as two
  void (*run)(long steps);
};
/// The best exact int8 dot product instruction, and the best f32 multiply-add, the Context may use.
RegisterLoop int8_loop(const Context& context);
RegisterLoop f32_loop(const Context& context);
/// Vector instructions that any unit takes: so many at the most begin at a time, whatever they do.
RegisterLoop integer_loop(const Context& context);

/// Runs `steps` of the loop on each of the Context's threads; returns the operations done by all.
double run_on_all_threads(Context& context, const RegisterLoop& loop, long steps);

/// Bytes of buffers to copy so that they lie past every cache, and inside L3 but past L2 (0: no
/// such size is known), reads and writes together.
std::int64_t past_caches_bytes();
std::int64_t inside_l3_bytes(int threads);

}  // namespace switchback::bench
