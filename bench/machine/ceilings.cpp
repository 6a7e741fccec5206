// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/ceilings.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "bench/machine/copy_kernel.hpp"
#include "bench/machine/machine.hpp"
#include "core/context_state.hpp"
#include "measure/matrix.hpp"
#include "measure/rounds.hpp"
#include "measure/stopwatch.hpp"

namespace switchback::bench {

namespace {

// The loops that measure instruction rates are assembly: a compiler would spill, reorder or drop
// multiply-adds whose results are not used. Twelve (AVX2) or sixteen accumulators hide a latency of
// four to five cycles at two multiply-adds per cycle.
#if defined(__x86_64__)

#define SWITCHBACK_TIMES_12(op) \
  op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)
#define SWITCHBACK_TIMES_16(op) SWITCHBACK_TIMES_12(op) op(12) op(13) op(14) op(15)
#define SWITCHBACK_CLOBBER_16                                                                    \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

// The operand of ldtilecfg (AMX): eight tile registers of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

void tdpbssd_tmm(long steps) {
  static constexpr TileConfig config;
  asm volatile(
      "ldtilecfg %1\n"
      "1:\n"
      "tdpbssd %%tmm6, %%tmm4, %%tmm0\n"
      "tdpbssd %%tmm7, %%tmm4, %%tmm1\n"
      "tdpbssd %%tmm6, %%tmm5, %%tmm2\n"
      "tdpbssd %%tmm7, %%tmm5, %%tmm3\n"
      "dec %0\n"
      "jnz 1b\n"
      "tilerelease\n"
      : "+r"(steps)
      : "m"(config));
}

// Defines a loop that measures the rate of an instruction. It clears the accumulators, sets up the
// other registers, and takes `times` steps (one for each accumulator) in each iteration. %1 is 1.0f
// in memory. The registers after `end` are further ones that the loop writes.
#define SWITCHBACK_LOOP(name, features, times, clear, set_up, step, end, ...)                   \
  __attribute__((target(features))) void name(long steps) {                                     \
    const float one = 1.0f;                                                                     \
    asm volatile(times(clear) set_up "1:\n" times(step) "dec %0\n"                            \
                                                        "jnz 1b\n" end                        \
                 : "+r"(steps)                                                                \
                 : "m"(one)                                                                   \
                 : SWITCHBACK_CLOBBER_16 __VA_OPT__(, ) __VA_ARGS__); \
  }

#define CLEAR_ZMM(i) "vpxord %%zmm" #i ", %%zmm" #i ", %%zmm" #i "\n"
#define CLEAR_YMM(i) "vpxor %%ymm" #i ", %%ymm" #i ", %%ymm" #i "\n"
#define CLEAR_XMM(i) "pxor %%xmm" #i ", %%xmm" #i "\n"
#define ONES_ZMM                                  \
  "vpternlogd $0xFF, %%zmm16, %%zmm16, %%zmm16\n" \
  "vpternlogd $0xFF, %%zmm17, %%zmm17, %%zmm17\n"
#define ONES_YMM                         \
  "vpcmpeqd %%ymm12, %%ymm12, %%ymm12\n" \
  "vpcmpeqd %%ymm13, %%ymm13, %%ymm13\n"
#define ONES_XMM               \
  "pcmpeqd %%xmm12, %%xmm12\n" \
  "pcmpeqd %%xmm13, %%xmm13\n"

#define STEP(i) "vpdpbusd %%zmm17, %%zmm16, %%zmm" #i "\n"
SWITCHBACK_LOOP(vpdpbusd_zmm, "avx512f,avx512vnni", SWITCHBACK_TIMES_16, CLEAR_ZMM, ONES_ZMM, STEP,
                "", "xmm16", "xmm17")
#undef STEP

#define STEP(i) "vfmadd231ps %%zmm17, %%zmm16, %%zmm" #i "\n"
SWITCHBACK_LOOP(fma_zmm, "avx512f", SWITCHBACK_TIMES_16, CLEAR_ZMM,
                "vbroadcastss %1, %%zmm16\n"
                "vbroadcastss %1, %%zmm17\n",
                STEP, "", "xmm16", "xmm17")
#undef STEP

// The int8 dot product on AVX-512 without VNNI, on AVX2 and on SSE: codes that were widened to 16
// bits are multiplied and added, which is the exact method on these instruction sets.
#define STEP(i)                          \
  "vpmaddwd %%zmm17, %%zmm16, %%zmm18\n" \
  "vpaddd %%zmm18, %%zmm" #i ", %%zmm" #i "\n"
SWITCHBACK_LOOP(vpmaddwd_zmm, "avx512f,avx512bw", SWITCHBACK_TIMES_16, CLEAR_ZMM, ONES_ZMM, STEP,
                "", "xmm16", "xmm17", "xmm18")
#undef STEP

#define STEP(i) "%{vex%} vpdpbusd %%ymm13, %%ymm12, %%ymm" #i "\n"
SWITCHBACK_LOOP(vpdpbusd_ymm, "avx2", SWITCHBACK_TIMES_12, CLEAR_YMM, ONES_YMM, STEP,
                "vzeroupper\n")
#undef STEP

#define STEP(i)                          \
  "vpmaddwd %%ymm13, %%ymm12, %%ymm14\n" \
  "vpaddd %%ymm14, %%ymm" #i ", %%ymm" #i "\n"
SWITCHBACK_LOOP(vpmaddwd_ymm, "avx2", SWITCHBACK_TIMES_12, CLEAR_YMM, ONES_YMM, STEP,
                "vzeroupper\n")
#undef STEP

#define STEP(i) "vfmadd231ps %%ymm13, %%ymm12, %%ymm" #i "\n"
SWITCHBACK_LOOP(fma_ymm, "avx2,fma", SWITCHBACK_TIMES_12, CLEAR_YMM,
                "vbroadcastss %1, %%ymm12\n"
                "vbroadcastss %1, %%ymm13\n",
                STEP, "vzeroupper\n")
#undef STEP

// SSE instructions with two operands overwrite one of them, so the loop copies it first.
#define STEP(i)                \
  "movdqa %%xmm12, %%xmm14\n"  \
  "pmaddwd %%xmm13, %%xmm14\n" \
  "paddd %%xmm14, %%xmm" #i "\n"
SWITCHBACK_LOOP(pmaddwd_xmm, "sse2", SWITCHBACK_TIMES_12, CLEAR_XMM, ONES_XMM, STEP, "")
#undef STEP

#define STEP(i)               \
  "movaps %%xmm12, %%xmm14\n" \
  "mulps %%xmm13, %%xmm14\n"  \
  "addps %%xmm14, %%xmm" #i "\n"
SWITCHBACK_LOOP(mulps_xmm, "sse2", SWITCHBACK_TIMES_12, CLEAR_XMM,
                "movss %1, %%xmm12\n"
                "shufps $0, %%xmm12, %%xmm12\n"
                "movaps %%xmm12, %%xmm13\n",
                STEP, "")
#undef STEP

// Integer additions run on more execution units than any other vector instruction.
#define STEP(i) "vpaddd %%zmm16, %%zmm" #i ", %%zmm" #i "\n"
SWITCHBACK_LOOP(vpaddd_zmm, "avx512f", SWITCHBACK_TIMES_16, CLEAR_ZMM, ONES_ZMM, STEP, "", "xmm16",
                "xmm17")
#undef STEP

#define STEP(i) "vpaddd %%ymm12, %%ymm" #i ", %%ymm" #i "\n"
SWITCHBACK_LOOP(vpaddd_ymm, "avx2", SWITCHBACK_TIMES_12, CLEAR_YMM, ONES_YMM, STEP, "vzeroupper\n")
#undef STEP

#define STEP(i) "paddd %%xmm12, %%xmm" #i "\n"
SWITCHBACK_LOOP(paddd_xmm, "sse2", SWITCHBACK_TIMES_12, CLEAR_XMM, ONES_XMM, STEP, "")
#undef STEP

#undef ONES_XMM
#undef ONES_YMM
#undef ONES_ZMM
#undef CLEAR_XMM
#undef CLEAR_YMM
#undef CLEAR_ZMM
#undef SWITCHBACK_LOOP
#undef SWITCHBACK_TIMES_12
#undef SWITCHBACK_TIMES_16
#undef SWITCHBACK_CLOBBER_16

#else

// For other instruction sets, the loops use the compiler's vector types. The empty assembly keeps
// the compiler from merging or dropping steps.
constexpr int portable_accumulators = 8;
using Floats = float __attribute__((vector_size(16)));
using Ints = std::int32_t __attribute__((vector_size(16)));

template <class V, bool multiplies>
void portable_loop(long steps) {
  V a[portable_accumulators] = {};
  V x = V{} + 1;
  V y = V{} + 1;
  for (long i = 0; i < steps; ++i) {
    asm volatile("" ::: "memory");
    for (V& accumulator : a)
      accumulator += multiplies ? x * y : x;
  }
  asm volatile("" : : "g"(&a) : "memory");
}

#endif

// A number of loop steps that takes about a millisecond, so that the start of the threads does not
// matter.
long calibrate(const RegisterLoop& loop) {
  for (long steps = 1000;; steps *= 2) {
    const measure::Stats s = measure::stats_of({.repeat = 1}, [&] { loop.run(steps); });
    if (s.min_ms > 0.5 || steps > (1L << 32)) return steps;
  }
}

double loop_rate(Context& context, const RegisterLoop& loop, double budget_s) {
  const long steps = calibrate(loop);
  double operations = 0;
  const measure::Stats s = measure::stats_of(
      {.repeat = 3, .min_time_s = budget_s, .deadline = measure::deadline_in(2 * budget_s)},
      [&] { operations = run_on_all_threads(context, loop, steps); });
  return operations / (s.min_ms * 1e-3);
}

double copy_rate(Context& context, std::int64_t total_bytes, double budget_s) {
  if (total_bytes <= 0) return 0;
  const std::int64_t half_bytes = total_bytes / 2;
  const measure::Matrix from(DType::s8, 1, half_bytes);
  const measure::Matrix to(DType::s8, 1, half_bytes);
  // The threads that copy touch the destination first, so that its pages exist (and are near those
  // threads).
  copy_lines(context, to.any().data, from.any().data, {half_bytes, half_bytes}, Stores::plain);
  const auto copy = [&](Stores stores) {
    return [&, stores] {
      copy_lines(context, from.any().data, to.any().data, {half_bytes, half_bytes}, stores);
    };
  };
  const std::vector<std::function<void()>> copies = {copy(Stores::plain), copy(Stores::streaming)};
  const auto stats = measure::stats_of_each({.repeat = 3,
                                             .min_time_s = budget_s,
                                             .deadline = measure::deadline_in(2 * budget_s),
                                             .warmup = 2},
                                            copies);
  const double best_ms = std::min(stats[0].min_ms, stats[1].min_ms);
  return static_cast<double>(2 * half_bytes) / (best_ms * 1e-3);
}

}  // namespace

RegisterLoop int8_loop([[maybe_unused]] const Context& context) {
#if defined(__x86_64__)
  const core::CpuFeatures& f = context.state().features;
  // Operations in a loop step of AMX: 2 per multiply-add × 16 rows × 16 columns × 64 codes × 4
  // accumulators.
  if (f.amx_int8) return {"tdpbssd tmm", 2.0 * 16 * 16 * 64 * 4, tdpbssd_tmm};
  // Operations in a loop step of vector dot products: 2 per multiply-add × the products of one
  // instruction (four per 32-bit lane with VNNI) × accumulators.
  if (f.avx512_vnni) return {"vpdpbusd zmm", 2.0 * 64 * 16, vpdpbusd_zmm};
  if (f.avx512) return {"vpmaddwd zmm", 2.0 * 32 * 16, vpmaddwd_zmm};
  if (f.avx_vnni) return {"vpdpbusd ymm", 2.0 * 32 * 12, vpdpbusd_ymm};
  if (f.avx2) return {"vpmaddwd ymm", 2.0 * 16 * 12, vpmaddwd_ymm};
  return {"pmaddwd xmm", 2.0 * 8 * 12, pmaddwd_xmm};
#else
  return {"int32 vector multiply-add", 2.0 * 4 * portable_accumulators, portable_loop<Ints, true>};
#endif
}

RegisterLoop f32_loop([[maybe_unused]] const Context& context) {
#if defined(__x86_64__)
  const core::CpuFeatures& f = context.state().features;
  if (f.avx512) return {"vfmadd231ps zmm", 2.0 * 16 * 16, fma_zmm};
  if (f.avx2) return {"vfmadd231ps ymm", 2.0 * 8 * 12, fma_ymm};
  return {"mulps + addps xmm", 2.0 * 4 * 12, mulps_xmm};
#else
  return {"f32 vector multiply-add", 2.0 * 4 * portable_accumulators, portable_loop<Floats, true>};
#endif
}

RegisterLoop integer_loop([[maybe_unused]] const Context& context) {
#if defined(__x86_64__)
  const core::CpuFeatures& f = context.state().features;
  if (f.avx512) return {"vpaddd zmm", 16.0 * 16, vpaddd_zmm};
  if (f.avx2) return {"vpaddd ymm", 8.0 * 12, vpaddd_ymm};
  return {"paddd xmm", 4.0 * 12, paddd_xmm};
#else
  return {"int32 vector addition", 4.0 * portable_accumulators, portable_loop<Ints, false>};
#endif
}

double run_on_all_threads(Context& context, const RegisterLoop& loop, long steps) {
  // Each thread gets several tasks. If a thread wakes late, the others take some of its tasks.
  constexpr int tasks_per_thread = 8;
  const std::int64_t tasks = std::int64_t{context.threads()} * tasks_per_thread;
  const long steps_per_task = std::max(steps / tasks_per_thread, 1L);
  context.state().threads.for_each(
      tasks, [&](std::int64_t /*task*/, int /*worker*/) { loop.run(steps_per_task); });
  return loop.operations_per_step * static_cast<double>(steps_per_task) *
         static_cast<double>(tasks);
}

std::int64_t past_caches_bytes() {
  const auto l3 = static_cast<std::int64_t>(core::cpu_caches().l3_bytes);
  const std::int64_t wanted = std::max<std::int64_t>(8 * l3, std::int64_t{128} << 20);
  const auto memory = static_cast<std::int64_t>(available_memory_bytes());
  return memory > 0 ? std::min(wanted, memory / 4) : wanted;
}

std::int64_t inside_l3_bytes(int threads) {
  const auto l2 = static_cast<std::int64_t>(core::cpu_caches().l2_bytes);
  const auto l3 = static_cast<std::int64_t>(core::cpu_caches().l3_bytes);
  // A copy within L3 uses a quarter of it, because other virtual machines may share L3. It uses
  // more if the threads' L2 caches hold that much.
  return std::min(std::max(l3 / 4, 2 * l2 * threads), l3 / 2);
}

Ceilings measure_ceilings(Context& context, double budget_s) {
  if (context.state().runtime != nullptr) return measure_device_ceilings(context, budget_s);
  const double part_s = budget_s / 4;
  const RegisterLoop s8 = int8_loop(context);
  const RegisterLoop f32 = f32_loop(context);
  Ceilings c;
  c.copy_gb_s = copy_rate(context, past_caches_bytes(), part_s) * 1e-9;
  c.copy_l3_gb_s = copy_rate(context, inside_l3_bytes(context.threads()), part_s) * 1e-9;
  c.s8_tops = loop_rate(context, s8, part_s) * 1e-12;
  c.f32_tflops = loop_rate(context, f32, part_s) * 1e-12;
  c.core_to_core = measure_core_latency(context);
  c.s8_instruction = s8.instruction;
  c.f32_instruction = f32.instruction;
  return c;
}

namespace {

using measure::Clock;

constexpr int round_trips = 500;
constexpr int attempts = 3;
constexpr double patience_s = 5e-3;  // time to wait for the other thread, which may not be running

// Measures the latency between two cores: two threads increment a shared number alternately.
class Rally {
 public:
  // The first thread calls this. Returns the time from one core to the other in seconds, or nothing
  // if the second thread did not answer.
  std::optional<double> begin() {
    const Clock::time_point deadline = measure::deadline_in(patience_s);
    if (!turn(0, deadline)) return std::nullopt;
    const Clock::time_point before = Clock::now();
    for (int i = 1; i < round_trips; ++i)
      if (!turn(2 * i, deadline)) return std::nullopt;
    return measure::seconds_between(before, Clock::now()) / (2 * (round_trips - 1));
  }
  void answer() {
    const Clock::time_point deadline = measure::deadline_in(patience_s);
    for (int i = 0; i < round_trips; ++i) {
      if (!wait(2 * i + 1, deadline)) return;
      count_.store(2 * i + 2, std::memory_order_release);
    }
  }

 private:
  bool turn(int from, Clock::time_point deadline) {
    count_.store(from + 1, std::memory_order_release);
    return wait(from + 2, deadline);
  }
  bool wait(int value, Clock::time_point deadline) const {
    constexpr int looks = 4096;  // how often the number is read between two readings of the clock
    do {
      for (int i = 0; i < looks; ++i)
        if (count_.load(std::memory_order_acquire) == value) return true;
    } while (Clock::now() < deadline);
    return false;
  }

  // The shared number, aligned so that it is alone on its cache line and on the next one.
  alignas(128) std::atomic<int> count_ = 0;
};

// The latency from the core of the first thread to that of another thread, in seconds; empty if the
// threads did not run at the same time.
std::optional<double> one_way_s(core::Threads& threads, int other) {
  Rally rally;
  std::optional<double> one_way;
  // A thread that is late may lose its task to a thread that has already run its own task. The
  // flags ignore such a second task, and all waits end after a time limit.
  bool begun = false;
  bool answered = false;
  threads.for_each(threads.count(), [&](std::int64_t, int worker) {
    if (worker == 0 && !begun) {
      begun = true;
      one_way = rally.begin();
    } else if (worker == other && !answered) {
      answered = true;
      rally.answer();
    }
  });
  return one_way;
}

}  // namespace

CoreLatency measure_core_latency(Context& context) {
  CoreLatency latency;
  if (context.state().runtime != nullptr) return latency;
  core::Threads& threads = context.state().threads;
  for (int other = 1; other < threads.count(); ++other) {
    double best_s = 0;
    for (int i = 0; i < attempts; ++i)
      if (const std::optional<double> s = one_way_s(threads, other); s)
        best_s = best_s > 0 ? std::min(best_s, *s) : *s;
    if (best_s == 0) continue;
    const double ns = best_s * 1e9;
    latency.least_ns = latency.least_ns > 0 ? std::min(latency.least_ns, ns) : ns;
    latency.most_ns = std::max(latency.most_ns, ns);
  }
  return latency;
}

nlohmann::ordered_json to_json(const CoreLatency& latency) {
  if (latency.most_ns == 0) return nullptr;
  return nlohmann::ordered_json::array({latency.least_ns, latency.most_ns});
}

}  // namespace switchback::bench
