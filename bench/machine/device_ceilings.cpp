// SPDX-License-Identifier: Apache-2.0
// Bench: the upper limits of a device other than the CPU: a copy beyond its caches, and the
// products of the device's library on a suitable shape.
#include <algorithm>
#include <functional>

#include "bench/machine/ceilings.hpp"
#include "core/context_state.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "measure/rounds.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

// The time of the fastest of the calls that fit into the budget, in seconds, by the device's clock.
double best_seconds(Context& context, double budget_s, const std::function<void()>& call) {
  call();  // the first call, which is not timed, creates plans and allocates memory
  measure::RoundRules rules;
  rules.another = [&](const measure::RoundsSoFar& so_far) {
    return so_far.rounds < 3 || so_far.timed_ms < budget_s * 1e3;
  };
  const measure::Times times_ms = measure::run_rounds(rules, std::span(&call, 1), context);
  return std::max(measure::summarize(times_ms.front()).min_ms / 1e3, 1e-9);
}

// The side n of the square products that are timed: large enough to fill a device; for the emulated
// device, small enough to take no time.
std::int64_t square(const Context& context) {
  return context.state().device.kind == DeviceKind::emulated ? 32 : 8192;
}

double copy_rate(Context& context, double budget_s) {
  core::DeviceRuntime& runtime = *context.state().runtime;
  const bool emulated = context.state().device.kind == DeviceKind::emulated;
  const std::size_t wanted = emulated ? std::size_t{1} << 16 : std::size_t{1} << 30;
  const std::size_t bytes = std::min(wanted, runtime.free_bytes() / 8);
  const auto count = static_cast<std::int64_t>(bytes);
  const measure::Matrix from(context, DType::s8, 1, count);
  const measure::Matrix to(context, DType::s8, 1, count);
  runtime.fill(from.any().data, 1, bytes);
  const double seconds = best_seconds(context, budget_s, [&] {
    runtime.copy(to.any().data, bytes, from.any().data, bytes, bytes, 1);
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

// The rate of the product d[n,n] = a[n,n] · b[n,n]ᵀ in operations per second; 0 if no engine
// computes it.
double product_rate(Context& context, DType type, double budget_s) {
  const std::int64_t n = square(context);
  const bool s8 = type == DType::s8;
  const measure::Matrix a(context, type, n, n);
  const measure::Matrix b(context, type, n, n);
  const measure::Matrix d(context, s8 ? DType::s32 : type, n, n);
  // The operands are random: if fewer bits change from value to value, a device runs at a higher
  // clock rate.
  if (s8) {
    const measure::Matrix random(context, DType::f32, n, n);
    const measure::Matrix absmax(context, DType::f32, 1, n);
    measure::fill_normal(context, random.any(), 1);
    quantize_rowwise(context, random.any(), a.view<std::int8_t>(), absmax.floats());
    quantize_rowwise(context, random.any(), b.view<std::int8_t>(), absmax.floats());
    context.synchronize();
  } else {
    measure::fill_normal(context, a.any(), 1);
    measure::fill_normal(context, b.any(), 2);
  }
  try {
    const double seconds = best_seconds(context, budget_s, [&] {
      if (s8) {
        GemmS8S8S32Args args;
        args.a = a.view<const std::int8_t>();
        args.b = b.view<const std::int8_t>();
        args.d = d.view<std::int32_t>();
        gemm_s8s8s32(context, args);
      } else {
        StandardGemmArgs args;
        args.a = a.any();
        args.b = b.any();
        args.d = d.any();
        args.transpose_b = true;
        gemm_standard(context, args);
      }
    });
    const auto size = static_cast<double>(n);
    return 2 * size * size * size / seconds;
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
    return 0;
  }
}

}  // namespace

Ceilings measure_device_ceilings(Context& context, double budget_s) {
  const double part_s = budget_s / 4;
  Ceilings c;
  c.copy_gb_s = copy_rate(context, part_s) * 1e-9;
  c.s8_tops = product_rate(context, DType::s8, part_s) * 1e-12;
  c.bf16_tflops = product_rate(context, DType::bf16, part_s) * 1e-12;
  c.f32_tflops = product_rate(context, DType::f32, part_s) * 1e-12;
  const std::string size = std::to_string(square(context));
  c.s8_instruction = "s8 product of " + size + " x " + size + " x " + size;
  c.f32_instruction = "f32 product of the same size";
  return c;
}

}  // namespace switchback::bench
