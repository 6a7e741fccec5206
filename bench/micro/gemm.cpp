// SPDX-License-Identifier: Apache-2.0
// Bench: `micro gemm`: every int8 engine and every f32 engine on the same product, beside the rates
// their instructions reach in registers and the reading of W's bytes, in the same rounds.
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "bench/machine/ceilings.hpp"
#include "bench/machine/copy_kernel.hpp"
#include "bench/micro/micro.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

namespace {

constexpr double default_min_time_s = 4;

// A register loop of about two milliseconds on all threads: long beside waking them.
struct Ceiling {
  RegisterLoop loop;
  long steps = 1024;
  double operations = 0;

  Ceiling(Context& context, const RegisterLoop& loop_) : loop(loop_) {
    for (;; steps *= 2) {
      const measure::Stats s = measure::stats_of(
          {.repeat = 2}, [&] { operations = run_on_all_threads(context, loop, steps); });
      if (s.min_ms > 2) break;
    }
  }
};

// share = (operations / time) / (ceiling's operations / its time), round by round.
measure::Middle share_of(const measure::Timed& subject, double operations,
                         const measure::Timed& ceiling, double ceiling_operations) {
  measure::Middle ratio = measure::speed_ratio(ceiling.times_ms, subject.times_ms);
  const double factor = operations / ceiling_operations;
  return {ratio.median * factor, ratio.mad * factor};
}

// X, W and Y of one shape in f32, their codes, and a packed W for each int8 engine and output.
class Product {
 public:
  Product(Context& context, const MicroShape& shape, std::uint64_t seed)
      : context_(context),
        x_(DType::f32, shape.batch, shape.dim_in),
        w_(DType::f32, shape.dim_out, shape.dim_in),
        y_(DType::f32, shape.batch, shape.dim_out),
        read_(DType::s8, shape.dim_out, shape.dim_in),
        q_x_(DType::s8, shape.batch, shape.dim_in),
        q_w_(DType::s8, shape.dim_out, shape.dim_in),
        absmax_x_(static_cast<std::size_t>(shape.batch)),
        absmax_w_(static_cast<std::size_t>(shape.dim_out)) {
    measure::fill_normal(context, x_.any(), seed);
    measure::fill_normal(context, w_.any(), seed + 1);
    measure::fill_normal(context, y_.any(), seed + 2);
    std::memset(read_.any().data, 1, read_.size_bytes());
    quantize_rowwise(context, x_.any(), q_x_.view<std::int8_t>(), absmax_x_);
    quantize_rowwise(context, w_.any(), q_w_.view<std::int8_t>(), absmax_w_);
  }

  // A packed W for each output: one that another call has just read would come from a cache.
  measure::Rival int8(const std::string& engine, DType output) {
    std::shared_ptr<PackedWeight>& packed = packed_[{engine, output}];
    if (packed == nullptr) {
      packed = std::make_shared<PackedWeight>();
      pack_weight(context_, q_w_.view<const std::int8_t>(), *packed, engine);
    }
    return {engine, [this, engine, packed, output] {
              GemmArgs args;
              args.a = q_x_.view<const std::int8_t>();
              args.packed_b = packed.get();
              args.d = {y_.any().data, output, y_.rows(), y_.cols(), y_.cols()};
              args.absmax_a = absmax_x_;
              args.absmax_b = absmax_w_;
              args.engine = engine;
              gemm(context_, args);
            }};
  }

  // As many bytes as W has codes.
  measure::Rival read() {
    return {"read", [this] {
              read_lines(context_, read_.any().data, static_cast<std::int64_t>(read_.size_bytes()));
            }};
  }

  measure::Rival f32(const std::string& engine) {
    return {engine, [this, engine] {
              StandardGemmArgs args;
              args.a = x_.any();
              args.b = w_.any();
              args.d = y_.any();
              args.transpose_b = true;
              args.engine = engine;
              gemm_standard(context_, args);
            }};
  }

 private:
  Context& context_;
  measure::Matrix x_, w_, y_, read_, q_x_, q_w_;
  std::vector<float> absmax_x_, absmax_w_;
  std::map<std::pair<std::string, DType>, std::shared_ptr<PackedWeight>> packed_;
};

}  // namespace

void micro_gemm(Context& context, const MicroOptions& options, const MicroSink& sink) {
  const Ceiling int8_ceiling(context, int8_loop(context));
  const Ceiling f32_ceiling(context, f32_loop(context));
  const std::vector<std::string> int8_engines = fast_engines(gemm_engines(context));
  const std::vector<std::string> f32_engines = fast_engines(gemm_standard_engines(context));
  const measure::Matrix others(DType::s8, 1, options.cold ? past_caches_bytes() : 64);
  std::memset(others.any().data, 1, others.size_bytes());
  for (const MicroShape& shape : options.shapes.empty() ? default_micro_shapes() : options.shapes) {
    Product product(context, shape, options.seed);
    // Each engine with every output, the engines that nobody would choose left out.
    std::vector<measure::Rival> int8;
    std::vector<measure::Rival> f32;
    for (const std::string& engine : int8_engines)
      int8.push_back(product.int8(engine, DType::f32));
    for (const std::string& engine : f32_engines)
      f32.push_back(product.f32(engine));
    int8 = measure::without_hopeless(std::move(int8), 20);
    f32 = measure::without_hopeless(std::move(f32), 5);

    std::vector<measure::Rival> rivals = {
        {int8_ceiling.loop.instruction,
         [&] { run_on_all_threads(context, int8_ceiling.loop, int8_ceiling.steps); }},
        {f32_ceiling.loop.instruction,
         [&] { run_on_all_threads(context, f32_ceiling.loop, f32_ceiling.steps); }},
        product.read()};
    constexpr std::size_t first_int8 = 3;
    std::vector<DType> outputs;
    for (const measure::Rival& rival : int8)
      for (const DType output : options.outputs) {
        rivals.push_back(product.int8(rival.name, output));
        outputs.push_back(output);
      }
    const std::size_t first_f32 = rivals.size();
    rivals.insert(rivals.end(), f32.begin(), f32.end());
    const double min_time_s =
        options.min_time_s > 0 ? options.min_time_s : default_min_time_s * options.time_factor;
    measure::RoundOptions measure_options{.repeat = 5,
                                          .min_time_s = min_time_s,
                                          .deadline = measure::deadline_in(4 * min_time_s),
                                          .fewest = fewest_micro_rounds};
    if (options.cold)
      measure_options.before_each = [&] {
        read_lines(context, others.any().data, static_cast<std::int64_t>(others.size_bytes()));
      };
    const std::vector<measure::Timed> timed = measure::race(rivals, measure_options);

    const measure::Timed& best_f32 = measure::fastest(timed, first_f32, timed.size());
    const double operations = 2.0 * static_cast<double>(shape.batch) *
                              static_cast<double>(shape.dim_in) *
                              static_cast<double>(shape.dim_out);
    for (std::size_t i = first_int8; i < timed.size(); ++i) {
      const bool is_int8 = i < first_f32;
      const Ceiling& ceiling = is_int8 ? int8_ceiling : f32_ceiling;
      MicroRow row;
      row.bench = "gemm";
      row.subject = timed[i].name;
      row.variant = is_int8 ? "int8" : "f32";
      row.shape = shape;
      row.dtype = is_int8 ? DType::s8 : DType::f32;
      row.output = is_int8 ? outputs[i - first_int8] : DType::f32;
      row.subject_ms = timed[i].stats;
      row.rival = best_f32.name;
      row.rival_ms = best_f32.stats;
      row.ratio = measure::speed_ratio(best_f32.times_ms, timed[i].times_ms);
      row.gop_s = operations / (timed[i].stats.median_ms * 1e-3) * 1e-9;
      row.ceiling = ceiling.loop.instruction;
      row.share = share_of(timed[i], operations, timed[is_int8 ? 0 : 1], ceiling.operations);
      if (is_int8) row.read_share = measure::speed_ratio(timed[2].times_ms, timed[i].times_ms);
      // The claim is of the engine the library would choose.
      if (is_int8 && !int8_engines.empty() && timed[i].name == int8_engines.front() &&
          shape.batch >= 1024)
        row.target = Target{0.72, 0.82, 0.9};
      sink(row);
    }
  }
}

}  // namespace switchback::bench
