// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/micro.hpp"

#include "bench/micro/race.hpp"
#include "core/context_state.hpp"

namespace switchback::bench {

const std::vector<MicroShape>& default_micro_shapes() {
  static const std::vector<MicroShape> shapes = {
      {1, 4096, 4096},    {16, 4096, 4096},   {256, 1024, 4096}, {1024, 1024, 4096},
      {1024, 4096, 1024}, {4096, 1408, 6144}, {2048, 4096, 4096}};
  return shapes;
}

measure::RoundOptions micro_rounds(const Context& context, const MicroOptions& options,
                                   double default_s, int warmup) {
  std::function<void()> before_each;
  if (options.cold && !context.state().on_cpu())
    before_each = [flush = std::make_shared<measure::CacheFlush>(context)] { flush->run(); };
  const double s = options.min_time_s > 0 ? options.min_time_s : default_s * options.time_factor;
  return {.repeat = 5,
          .min_time_s = s,
          .deadline = measure::deadline_in(4 * s),
          .fewest = fewest_micro_rounds,
          .warmup = warmup,
          .before_each = std::move(before_each),
          .context = &context,
          .watch = options.watch};
}

std::vector<measure::Timed> micro_race(const Context& context, const MicroOptions& options,
                                       measure::Turns& turns,
                                       const std::vector<measure::Rival>& rivals, double default_s,
                                       int warmup) {
  std::vector<std::function<void()>> calls;
  for (const measure::Rival& rival : rivals)
    calls.push_back(rival.call);
  turns.make_copies(calls);
  return measure::race(rivals, micro_rounds(context, options, default_s, warmup));
}

std::vector<CasePlan> MicroBench::plan_shapes(std::vector<MicroShape> otherwise) {
  shapes_ = shared_.shapes.empty() ? std::move(otherwise) : shared_.shapes;
  std::vector<CasePlan> plans;
  for (const MicroShape& shape : shapes_)
    plans.push_back({.id = shape_text(shape)});
  return plans;
}

MicroOptions MicroBench::of_case(std::size_t i) const {
  MicroOptions one = shared_;
  one.shapes = {shapes_[i]};
  return one;
}

}  // namespace switchback::bench
