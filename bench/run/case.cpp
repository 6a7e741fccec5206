// SPDX-License-Identifier: Apache-2.0
#include "bench/run/case.hpp"

#include <new>
#include <stdexcept>

#include "bench/run/case_setting.hpp"
#include "core/context_state.hpp"
#include "measure/source_scope.hpp"
#include "measure/stopwatch.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {

CaseSetting::CaseSetting(Context& context_, const Case& c, const CaseOptions& options_)
    : context(context_),
      shape(c),
      options(options_),
      operands(make_operands(context_, c, options_.dtype, options_.fields, options_.seed)),
      turns(options_.cold_bytes),
      copies(context_, operands, turns) {
  if (context.state().runtime == nullptr) return;
  ContextOptions cpu;
  cpu.device = "cpu";
  cpu_.emplace(cpu);
}

void CaseSetting::stop_if_interrupted() const {
  if (options.interrupted()) throw Interrupted{};
}

std::size_t CaseSetting::add(Entry::Sweep sweep, std::function<void()> call, measure::Stats& stats,
                             std::vector<double>* times_ms) {
  entries.push_back({sweep, std::move(call), &stats, times_ms});
  return entries.size() - 1;
}

measure::TakenInTurns<LayerOfCase>& CaseSetting::add_layer(const LinearOptions& made_with,
                                                           bool eval, double bytes) {
  return layers.emplace_back(turns, bytes, [this, made_with, eval](std::size_t number) {
    LayerOfCase made;
    if (number > 0) made.own_w = measure::copy_of(context, operands.w);
    made.layer = std::make_unique<SwitchbackLinear>(context, made_with);
    made.layer->set_weight((number > 0 ? made.own_w : operands.w).any());
    if (eval) made.layer->prepare_for_eval();
    return made;
  });
}

namespace {

void measure_case(Context& context, const Case& c, const CaseOptions& options, CaseResult& result) {
  CaseSetting setting(context, c, options);
  const measure::Clock::time_point start = measure::Clock::now();
  make_codes(setting);
  for (std::size_t i = 0; i < all_fields; ++i)
    if (options.fields[i]) prepare_field(setting, static_cast<Field>(i), result);
  if (options.tuned != nullptr) prepare_layers(setting, result);
  result.setup_s = measure::seconds_since(start);
  run_case_rounds(setting, result);
}

}  // namespace

CaseResult run_case(Context& context, const Case& c, const CaseOptions& options) {
  CaseResult result;
  result.shape = c;
  result.repeat = options.repeat;
  const measure::Clock::time_point start = measure::Clock::now();
  const auto out_of_memory = [&](const char* why) {
    result = {};
    result.shape = c;
    result.repeat = options.repeat;
    result.status = CaseStatus::oom;
    result.why = why;
  };
  const measure::SourceScope scope(context, options.tuned);
  try {
    measure_case(context, c, options, result);
  } catch (const std::bad_alloc&) {
    out_of_memory("there is not enough memory");
  } catch (const std::length_error& error) {
    out_of_memory(error.what());
  } catch (const Error& error) {
    if (error.status() != Status::out_of_memory) throw;
    out_of_memory(error.what());
  }
  result.wall_s = measure::seconds_since(start);
  return result;
}

std::optional<double> CaseResult::median_ms(Field f) const {
  const FieldResult& result = field(f);
  if (result.status != CaseStatus::ok || result.stats.count == 0) return std::nullopt;
  return result.stats.median_ms;
}

Record CaseResult::record() const {
  Record record;
  record.repeat = rounds > 0 ? rounds : repeat;
  record.shape = shape;
  for (std::size_t i = 0; i < record_fields; ++i)
    record.times_ms[i] = median_ms(static_cast<Field>(i));
  return record;
}

}  // namespace switchback::bench
