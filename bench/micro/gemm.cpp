// SPDX-License-Identifier: Apache-2.0
// Bench: `micro gemm`: int8 products compared with f32 products. On the CPU they are also compared
// with the rates of the same instructions in registers, and with the time to read the bytes of W,
// in the same rounds.
#include "bench/micro/benches.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "bench/cli/table.hpp"
#include "bench/machine/copy_kernel.hpp"
#include "bench/micro/race.hpp"
#include "bench/workload/session.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "measure/caches.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

constexpr double gemm_min_time_s = 4;

// The operands of one product: X, W and Y in f32, the codes of X and W, and a packed W for each
// int8 engine and output type.
class Product {
 public:
  Product(Context& context, const MicroShape& shape, std::uint64_t seed, measure::Turns& turns)
      : context_(context),
        turns_(turns),
        x_(turns, context, DType::f32, shape.batch, shape.dim_in),
        w_(turns, context, DType::f32, shape.dim_out, shape.dim_in),
        y_(turns, context, DType::f32, shape.batch, shape.dim_out),
        q_x_(turns, context, DType::s8, shape.batch, shape.dim_in),
        q_w_(context, DType::s8, shape.dim_out, shape.dim_in),
        absmax_x_(context, DType::f32, 1, shape.batch),
        absmax_w_(context, DType::f32, 1, shape.dim_out) {
    measure::fill_normal(context, x_.first().any(), seed);
    measure::fill_normal(context, w_.first().any(), seed + 1);
    measure::fill_normal(context, y_.first().any(), seed + 2);
    quantize_rowwise(context, x_.first().any(), q_x_.first().view<std::int8_t>(),
                     absmax_x_.floats());
    quantize_rowwise(context, w_.first().any(), q_w_.view<std::int8_t>(), absmax_w_.floats());
  }

  // A call of the int8 product with this engine. Each output type has its own packed W, because a W
  // that another call has just read would come from a cache.
  measure::Rival int8(const std::string& engine, DType output) {
    return {engine, [this, engine, output] {
              const auto [packed, is_new] = packed_.try_emplace(
                  std::pair(engine, output), turns_, static_cast<double>(q_w_.size_bytes()),
                  [this, engine](std::size_t) {
                    PackedWeight made;
                    pack_weight(context_, q_w_.view<const std::int8_t>(), made, engine);
                    return made;
                  });
              GemmArgs args;
              args.a = q_x_.next().view<const std::int8_t>();
              args.packed_b = &packed->second.next();
              args.d = y_.next().any();
              args.d.dtype = output;
              args.absmax_a = absmax_x_.floats();
              args.absmax_b = absmax_w_.floats();
              args.engine = engine;
              gemm(context_, args);
            }};
  }

  measure::Rival f32(const std::string& engine) {
    return {engine, [this, engine] {
              StandardGemmArgs args;
              args.a = x_.next().any();
              args.b = w_.next().any();
              args.d = y_.next().any();
              args.transpose_b = true;
              args.engine = engine;
              gemm_standard(context_, args);
            }};
  }

 private:
  Context& context_;
  measure::Turns& turns_;
  measure::MatrixInTurns x_, w_, y_, q_x_;
  measure::Matrix q_w_, absmax_x_, absmax_w_;
  std::map<std::pair<std::string, DType>, measure::TakenInTurns<PackedWeight>> packed_;
};

// The lower bounds of a product on the CPU: the instruction rates in registers and the time to read
// W. For a device such bounds are not known.
struct Floors {
  Ceiling int8, f32;
  measure::MatrixInTurns w;  // memory to read: one byte for each code of W

  Floors(Context& context, const MicroShape& shape, measure::Turns& turns)
      : int8(context, int8_loop(context)),
        f32(context, f32_loop(context)),
        w(turns, context, DType::s8, shape.dim_out, shape.dim_in) {
    std::memset(w.first().any().data, 1, w.first().size_bytes());
  }
  std::vector<measure::Rival> rivals(Context& context) {
    return {{int8.loop.instruction, [&] { run_on_all_threads(context, int8.loop, int8.steps); }},
            {f32.loop.instruction, [&] { run_on_all_threads(context, f32.loop, f32.steps); }},
            {"read", [&] {
               const measure::Matrix& now = w.next();
               read_lines(context, now.data(), static_cast<std::int64_t>(now.size_bytes()));
             }}};
  }
};

void gemm_of_shape(Context& context, const GemmOptions& options, const MicroShape& shape,
                   const RaceSink& sink) {
  const std::vector<std::string> int8_engines = fast_engines(gemm_engines(context));
  measure::Turns turns(options.cold_bytes);
  Product product(context, shape, options.seed, turns);
  // Each engine is measured with every output type. Engines that are far too slow are left out.
  std::vector<measure::Rival> int8, f32;
  for (const std::string& engine : int8_engines)
    int8.push_back(product.int8(engine, DType::f32));
  for (const std::string& engine : fast_floating_engines(context))
    f32.push_back(product.f32(engine));
  int8 = measure::without_hopeless(without_refusing(std::move(int8)), 20, &context);
  f32 = measure::without_hopeless(without_refusing(std::move(f32)), 5, &context);

  std::optional<Floors> floors;
  if (context.state().runtime == nullptr) floors.emplace(context, shape, turns);
  std::vector<measure::Rival> rivals =
      floors ? floors->rivals(context) : std::vector<measure::Rival>();
  const std::size_t first_int8 = rivals.size();
  std::vector<DType> outputs;
  for (const measure::Rival& rival : int8)
    for (const DType output : options.outputs) {
      rivals.push_back(product.int8(rival.name, output));
      outputs.push_back(output);
    }
  const std::size_t first_f32 = rivals.size();
  rivals.insert(rivals.end(), f32.begin(), f32.end());
  const std::vector<measure::Timed> timed =
      micro_race(context, options, turns, rivals, gemm_min_time_s);

  const measure::Timed& best_f32 = measure::fastest(timed, first_f32, timed.size());
  const double operations = operations_of(shape);
  for (std::size_t i = first_int8; i < timed.size(); ++i) {
    const bool is_int8 = i < first_f32;
    RaceRow row("gemm", timed[i].name, timed[i], best_f32);
    row.variant = is_int8 ? "int8" : "f32";
    row.shape = shape;
    row.dtype = is_int8 ? DType::s8 : DType::f32;
    row.output = is_int8 ? outputs[i - first_int8] : DType::f32;
    row.gop_s = operations / (timed[i].stats.median_ms * 1e-3) * 1e-9;
    if (floors) {
      const Ceiling& ceiling = is_int8 ? floors->int8 : floors->f32;
      row.ceiling = ceiling.loop.instruction;
      row.share = share_of(timed[i], operations, timed[is_int8 ? 0 : 1], ceiling.operations);
      if (is_int8) row.read_share = measure::speed_ratio(timed[2].times_ms, timed[i].times_ms);
    }
    sink(row);
  }
}

class GemmBench final : public RaceBench {
 public:
  using RaceBench::RaceBench;
  [[nodiscard]] std::string_view name() const override { return "gemm"; }
  [[nodiscard]] std::string_view about() const override {
    return "int8 products compared with floating point ones";
  }
  [[nodiscard]] std::string_view explanation() const override {
    return "int8 engines: with W packed, including scales and rounded output; f32 engines: X·Wᵀ. "
           "'of\n"
           "ceiling': share of the rate of the best int8 (or f32) instruction in registers. 'of "
           "reading W': time\n"
           "to read as many bytes as W has codes, divided by the engine's time. All are measured "
           "in the same\n"
           "rounds.";
  }
  void add_options(CLI::App& command, SessionOptions& /*shared*/) override {
    command
        .add_option_function<std::vector<std::string>>(
            "--output",
            [this](const std::vector<std::string>& names) {
              outputs_.clear();
              for (const std::string& output : names) {
                outputs_.push_back(parse_dtype(output));
                core::require(
                    outputs_.back() == DType::f32 || dtype_size_bytes(outputs_.back()) == 2,
                    "--output '{}' is not one of f32, f16, bf16", output);
              }
            },
            "output type of the int8 products of gemm: f32, f16 or bf16 (default f32); may be "
            "repeated")
        ->type_name("NAME");
  }
  [[nodiscard]] Table table() const override {
    return Table(
        {"MxKxN", "engine", "output", "ms", "GOP/s", "of ceiling", "of reading W", "/ best f32"},
        {"engine", "output"});
  }
  [[nodiscard]] std::size_t key_columns() const override { return 2; }
  std::vector<CasePlan> plan(Session& /*session*/) override {
    return plan_shapes(default_micro_shapes());
  }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    micro_gemm(session.context(), {of_case(i), outputs_}, rows_to(sink));
    return {};
  }

 private:
  [[nodiscard]] std::vector<std::string> cells(const RaceRow& r) const override {
    const std::int64_t samples = r.subject_ms.count;
    return {shape_text(r.shape),
            r.variant + " " + r.subject,
            std::string(dtype_name(r.output.value_or(DType::f32))),
            time_text(r.subject_ms),
            number(r.gop_s),
            r.share ? share_text(*r.share, samples) : "",
            r.read_share ? share_text(*r.read_share, samples) : "",
            ratio_text(r)};
  }

  std::vector<DType> outputs_ = {DType::f32};
};

}  // namespace

void micro_gemm(Context& context, const GemmOptions& options, const RaceSink& sink) {
  for (const MicroShape& shape : options.shapes.empty() ? default_micro_shapes() : options.shapes)
    gemm_of_shape(context, options, shape, sink);
}

std::unique_ptr<MicroBench> make_micro_gemm(const MicroOptions& shared) {
  return std::make_unique<GemmBench>(shared);
}

}  // namespace switchback::bench
