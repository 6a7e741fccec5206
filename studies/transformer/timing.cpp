// SPDX-License-Identifier: Apache-2.0
#include "studies/transformer/timing.hpp"

#include <fmt/format.h>
#include <memory>

#include <algorithm>
#include <cmath>

#include "bench/cli/table.hpp"
#include "bench/workload/statistic.hpp"
#include "core/context_state.hpp"
#include "measure/rounds.hpp"
#include "measure/stopwatch.hpp"
#include "studies/common/training.hpp"
#include "studies/models/kernels.hpp"
#include "studies/models/optimizer.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench::transformer {

namespace {

// Milliseconds from the start of a call until it has returned (host), and until the work that it
// queued is complete (done).
struct CallTime {
  double host = 0, done = 0;
};
template <class F>
CallTime time_of(Context& context, F&& f) {
  const auto begin = measure::Clock::now();
  f();
  CallTime time;
  time.host = 1e3 * measure::seconds_since(begin);
  context.synchronize();
  time.done = 1e3 * measure::seconds_since(begin);
  return time;
}
template <class F>
double time_ms(Context& context, F&& f) {
  return time_of(context, f).done;
}

void stop_if_asked() {
  if (Session::interrupted()) throw measure::Interrupted{};
}

// Milliseconds that the first floating point product of a process takes longer than the second one,
// because threads and libraries start.
double start_libraries(Context& context) {
  models::Memory memory(context.state().runtime);
  const auto zeros = [&] {
    models::Tensor t = memory.take(models::MemoryClass::workspace, DType::f32, 64, 64);
    models::zero(context.state(), t.any());
    return t;
  };
  const models::Tensor a = zeros(), b = zeros(), d = zeros();
  const auto product = [&] {
    gemm_standard(context, {.a = a.any(), .b = b.any(), .d = d.any(), .transpose_b = true});
  };
  const double first = time_ms(context, product);
  return std::max(0.0, first - time_ms(context, product));
}

// Milliseconds that the system needs to provide one byte of new memory. On a CPU this is the time
// of the first write to each page, which creates the page.
double ms_of_new_byte(Context& context) {
  ContextState& state = context.state();
  constexpr std::int64_t bytes = std::int64_t{64} << 20;
  constexpr std::int64_t page = 4096;
  core::AlignedBuffer buffer = state.make_buffer();
  const double ms = time_ms(context, [&] {
    buffer.reserve(static_cast<std::size_t>(bytes));
    if (!state.on_cpu()) return;
    state.threads.for_ranges(bytes / page, 1024, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i)
        buffer.as<volatile char>()[i * page] = 1;
    });
  });
  return ms / static_cast<double>(bytes);
}

// A decoder in one mode, and the times of its steps.
struct Variant {
  Variant(const models::Surroundings& around, models::Parameters& parameters,
          const Setting& setting, Mode mode)
      : decoder(around, parameters, setting.decoder(mode)), profile(around.state().runtime) {
    times.mode = mode;
  }
  models::Decoder decoder;
  models::Profile profile;
  ModeTimes times;
};

void add(StepTimes& to, Pass pass, const CallTime& forward, const CallTime& backward,
         const CallTime& optimizer) {
  to.forward.push_back(forward.done);
  if (pass != Pass::forward) to.backward.push_back(backward.done);
  if (pass == Pass::step) to.optimizer.push_back(optimizer.done);
  to.whole.push_back(forward.done + backward.done + optimizer.done);
  to.host.push_back(forward.host + backward.host + optimizer.host);
}

std::vector<TuneShape> shapes_of(const Setting& s) {
  const auto shape = [&](std::int64_t in, std::int64_t out) {
    return TuneShape{.rows = s.rows(), .in_features = in, .out_features = out, .dtype = s.dtype};
  };
  const std::int64_t d = s.size.width;
  return {shape(d, 3 * d), shape(d, d), shape(d, 2 * s.size.hidden), shape(s.size.hidden, d),
          shape(d, s.vocabulary)};
}

}  // namespace

std::vector<ModeTimes> time_modes(Session& session, const Setting& setting,
                                  const std::vector<Mode>& modes, const TimingOptions& options) {
  Context& context = session.context();
  const std::uint64_t seed = session.options().seed;
  const double library_ms = start_libraries(context);
  const double new_byte_ms = ms_of_new_byte(context);
  double tuning_ms = 0;
  const bool has_auto = std::find(modes.begin(), modes.end(), Mode::automatic) != modes.end();
  if (has_auto)
    tuning_ms = time_ms(context, [&] { options.tuning.tune(context, shapes_of(setting)); });
  stop_if_asked();

  models::Memory memory(context.state().runtime);
  const models::Surroundings around{context, memory};
  models::Parameters parameters(context.state(), memory, seed);
  std::vector<std::unique_ptr<Variant>> variants;
  for (const Mode mode : modes)
    variants.push_back(std::make_unique<Variant>(around, parameters, setting, mode));
  std::unique_ptr<models::Optimizer> optimizer;
  if (setting.pass == Pass::step)
    optimizer = models::make_adamw(parameters, memory, {.learning_rate = 1e-4f});
  const std::vector<std::int32_t> tokens =
      random_tokens(setting.rows(), setting.vocabulary, seed + 1);
  const std::vector<std::int32_t> targets =
      random_tokens(setting.rows(), setting.vocabulary, seed + 2);
  const models::Decoder::Batch batch{tokens, setting.batch, setting.context};

  const auto forward_of = [&](Variant& v) {
    if (setting.pass == Pass::forward)
      static_cast<void>(v.decoder.infer(batch));
    else
      v.decoder.forward(batch);
  };
  const auto held_elsewhere = [&] {
    std::size_t codes = 0;
    for (const auto& v : variants)
      codes += v->decoder.int8_weight_bytes();
    memory.set_held_elsewhere(models::MemoryClass::int8_weights, codes);
    memory.set_held_elsewhere(models::MemoryClass::workspace, context.workspace_bytes());
  };
  // Decoders in different modes run alternately, each for a whole step, so that a change of the
  // machine's speed affects all of them.
  const auto round = [&](bool timed) {
    for (const auto& v : variants) {
      stop_if_asked();
      // The decoder of another mode may have changed the shared weights.
      if (setting.pass == Pass::step) v->decoder.weights_updated();
      v->decoder.set_profile(timed ? &v->profile : nullptr);
      memory.reset_peak();
      const std::size_t taken_before = memory.taken_from_system() + context.workspace_bytes();
      double loss = 0;
      const CallTime forward = time_of(context, [&] { forward_of(*v); });
      CallTime backward, update;
      if (setting.pass != Pass::forward)
        backward = time_of(context, [&] {
          loss = v->decoder.loss(targets);
          v->decoder.backward();
        });
      if (setting.pass == Pass::step) {
        const models::Profile::Range range(timed ? &v->profile : nullptr, "adamw");
        update = time_of(context, [&] { optimizer->step(context.state()); });
      }
      held_elsewhere();
      StepTimes& times = timed ? v->times.timed : v->times.warmup;
      if (v->times.warmup.whole.empty() && v->times.timed.whole.empty()) {
        v->times.loss = loss;
        const std::size_t taken = memory.taken_from_system() + context.workspace_bytes();
        v->times.first.allocation_ms =
            static_cast<double>(taken - taken_before + v->decoder.int8_weight_bytes()) *
            new_byte_ms;
      }
      add(times, setting.pass, forward, backward, update);
      if (memory.peak().total() > v->times.peak.total()) v->times.peak = memory.peak();
    }
  };
  for (int i = 0; i < options.warmup; ++i)
    round(false);
  const auto deadline = session.deadline();
  for (int i = 0; i < options.steps; ++i) {
    if (i >= 2 && deadline && measure::Clock::now() >= *deadline) break;
    round(true);
  }

  std::vector<ModeTimes> all;
  for (const auto& v : variants) {
    v->decoder.set_profile(nullptr);
    // Two forwards, the first after a change of the weights: their difference is the time to
    // quantize and pack the weights.
    v->decoder.weights_updated();
    const double fresh = time_ms(context, [&] { forward_of(*v); });
    const double cached = time_ms(context, [&] { forward_of(*v); });
    v->times.first.packing_ms =
        v->times.mode == Mode::standard ? 0.0 : std::max(0.0, fresh - cached);
    v->times.first.library_ms = all.empty() ? library_ms : 0.0;
    v->times.first.tuning_ms = v->times.mode == Mode::automatic ? tuning_ms : 0.0;
    v->times.operations_ms = {v->profile.times_ms().begin(), v->profile.times_ms().end()};
    const double per_step =
        1e6 * static_cast<double>(context.threads()) *
        static_cast<double>(std::max<std::size_t>(1, v->times.timed.whole.size()));
    v->times.attention_products_ms =
        static_cast<double>(v->profile.attention.products_ns.load()) / per_step;
    v->times.attention_softmax_ms =
        static_cast<double>(v->profile.attention.softmax_ns.load()) / per_step;
    all.push_back(std::move(v->times));
  }
  return all;
}

std::string table_of_operations(const ModeTimes& times) {
  struct Line {
    std::string name;
    double total = 0;
    Json of;
  };
  std::vector<Line> lines;
  double all = 0;
  for (const auto& [name, ms] : times.operations_ms) {
    Line line{.name = name, .of = statistic(ms)};
    for (const double t : ms)
      line.total += t;
    all += line.total;
    lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.total > b.total; });
  Table table({"share [%]", "total [ms]", "instances", "mean [ms]", "median", "min", "max", "std",
               "operation"},
              {"operation"});
  for (const Line& line : lines) {
    std::vector<std::string> cells = {number(100 * line.total / all), number(line.total),
                                      line.of["count"].dump()};
    for (const char* key : {"mean", "median", "min", "max", "std"})
      cells.push_back(number(line.of[key].get<double>()));
    cells.push_back(line.name);
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace switchback::bench::transformer
