// SPDX-License-Identifier: Apache-2.0
// Bench: runs and checks each field of a case once, and adds it to the timed rounds.
#include <span>
#include <utility>
#include <variant>

#include "bench/cache/files.hpp"
#include "bench/run/case_setting.hpp"
#include "bench/run/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "gemm/floating/engine.hpp"
#include "gemm/int8/candidates.hpp"
#include "measure/source_scope.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

/// A source of configurations that notes whether another source answers with a configuration other
/// than the default.
class WatchedSource final : public ConfigSource {
 public:
  WatchedSource(const Context& context, const ConfigSource& source)
      : context_(context), source_(source) {}
  bool find(const ConfigQuery& query, const ContextState& state,
            ConfigChoice& choice) const override {
    const bool found = source_.find(query, state, choice);
    if (found && choice != default_choice(query, context_)) differs_ = true;
    return found;
  }
  void refused(const ConfigQuery& query, const ConfigChoice& choice,
               std::string_view reason) const noexcept override {
    source_.refused(query, choice, reason);
    differs_ = false;
  }
  [[nodiscard]] bool differs() const noexcept { return differs_; }

 private:
  const Context& context_;
  const ConfigSource& source_;
  mutable bool differs_ = false;
};

std::function<void()> with_source(Context& context, std::function<void()> call,
                                  std::shared_ptr<const ConfigSource> source) {
  return [&context, call = std::move(call), source = std::move(source)] {
    context.set_config_source(source);
    call();
  };
}

std::function<void()> quantize_call(CaseSetting& setting, const Quantize& quantize) {
  return [&setting, quantize] {
    quantize.run(setting.context, setting.take(quantize.x).any(),
                 setting.take(quantize.q).view<std::int8_t>(),
                 setting.take(quantize.absmax).floats());
  };
}

GemmArgs int8_args(CaseSetting& setting, const Int8Product& product) {
  GemmArgs args;
  args.a = setting.take(product.a).view<const std::int8_t>();
  if (product.packed != nullptr)
    args.packed_b = &setting.copies.take(product.packed);
  else
    args.b = setting.take(product.b).view<const std::int8_t>();
  args.d = setting.take(product.d).any();
  args.absmax_a = setting.take(product.absmax_a).floats();
  args.absmax_b = setting.take(product.absmax_b).floats();
  args.engine = setting.options.int8_engine;
  return args;
}

// The engine and configuration that the library chooses for an int8 product with these operands, as
// text.
std::string int8_config(const CaseSetting& setting, const Int8Product& product,
                        const GemmArgs& args) {
  const ContextState& state = setting.context.state();
  const PackedWeight* packed = args.packed_b;
  gemm_int8::GemmProblem problem;
  problem.m = args.a.rows;
  problem.k = args.a.cols;
  problem.n = args.d.cols;
  problem.stride_a = args.a.stride;
  problem.stride_b = packed != nullptr ? 0 : setting.matrix(product.b).any().stride;
  problem.stride_d = args.d.stride;
  problem.output = args.d.dtype;
  problem.alignment = core::alignment_class(state, {args.a.data, args.b.data, args.d.data});
  problem.scale = args.absmax_b.size() == static_cast<std::size_t>(problem.n)
                      ? gemm_int8::ScaleMode::row_col
                      : gemm_int8::ScaleMode::row_scalar;
  const auto named = [&](std::string_view name) {
    return gemm_int8::find_engine(state.device.kind, name);
  };
  if (packed != nullptr) problem.packed_for = named(packed->engine())->id;
  if (setting.options.tuned != nullptr) {
    ConfigChoice choice;
    gemm_int8::GemmConfig config;
    if (setting.options.tuned->find(gemm_int8::to_query(problem, state), state, choice) &&
        gemm_int8::from_choice(choice, config))
      return gemm_int8::describe(config) + " (tuned)";
  }
  const gemm_int8::Engine* engine = named(setting.options.int8_engine);
  return gemm_int8::describe(engine != nullptr ? engine->default_config(problem, state)
                                               : gemm_int8::default_config(problem, state));
}

/// Runs a field's work once and checks its output. Sets `call` to the call to time, and `engine` to
/// the engine that ran, as far as they are known.
struct Validation {
  CaseSetting& setting;
  std::function<void()>& call;
  std::string& engine;

  SampleCheck operator()(const FloatingProduct& product) {
    const CaseOptions& options = setting.options;
    const bool chosen = options.tuned == nullptr && options.standard_engine.empty();
    engine = chosen ? fastest_floating_engine(setting, product) : options.standard_engine;
    call = floating_call(setting, product, engine);
    if (engine.empty()) engine = "tuned";
    run_into({product.d});
    return check(product);
  }

  SampleCheck operator()(const EvalForward& forward) {
    // A layer in eval mode uses its packed weight or the ordinary product, whichever is faster.
    LinearOptions options{.in_features = setting.shape.dim_in,
                          .out_features = setting.shape.dim_out,
                          .mode = Mode::standard,
                          .dtype = setting.options.dtype,
                          .engine = setting.options.standard_engine};
    const FloatingProduct& product = forward.product;
    measure::TakenInTurns<LayerOfCase>& layers = setting.add_layer(
        options, true, static_cast<double>(setting.matrix(product.b).size_bytes()));
    engine = "layer in eval mode";
    call = [&setting = setting, &layers, &product] {
      layers.next().layer->forward(setting.take(product.a).any(), setting.take(product.d).any());
    };
    run_into({product.d});
    return check(product);
  }

  SampleCheck operator()(const Int8Product& product) {
    call = [&setting = setting, product] { gemm(setting.context, int8_args(setting, product)); };
    run_into({product.d});
    engine = int8_config(setting, product, int8_args(setting, product));
    const measure::Matrix a = setting.on_host(product.a), b = setting.on_host(product.b),
                          d = setting.on_host(product.d),
                          absmax_a = setting.on_host(product.absmax_a),
                          absmax_b = setting.on_host(product.absmax_b);
    return check_int8_product(setting.host(), a.view<const std::int8_t>(),
                              b.view<const std::int8_t>(), d.any(), absmax_a.floats(),
                              absmax_b.floats(), seed());
  }

  SampleCheck operator()(const Quantize& quantize) {
    call = quantize_call(setting, quantize);
    run_into({quantize.q, quantize.absmax});
    const measure::Matrix x = setting.on_host(quantize.x), q = setting.on_host(quantize.q),
                          absmax = setting.on_host(quantize.absmax);
    return check_quantized(setting.host(), x.any(), quantize.group, q.view<const std::int8_t>(),
                           quantize.transposed, absmax.floats(), seed());
  }

  SampleCheck operator()(const Cast& cast) {
    const ConstAnyMatrix x = setting.matrix(cast.x).any();
    const auto codes_in = [x](const measure::Matrix& m) {
      return MatrixView<std::int8_t>(m.view<std::int8_t>().data, x.rows, x.cols);
    };
    call = [&setting = setting, cast, codes_in] {
      cast_to_int8(setting.context, setting.take(cast.x).any(),
                   codes_in(setting.take(&Operands::cast)));
    };
    const MatrixView<std::int8_t> q = codes_in(setting.matrix(&Operands::cast));
    measure::poison(setting.context, q);
    call();
    const measure::Matrix host_x = setting.on_host(cast.x),
                          host_q = measure::to_host(setting.context, ConstAnyMatrix(q));
    return check_cast(host_x.any(), host_q.view<const std::int8_t>(), seed());
  }

 private:
  [[nodiscard]] std::uint64_t seed() const { return setting.options.seed + 100; }

  void run_into(std::initializer_list<Operand> outputs) {
    for (const Operand output : outputs)
      measure::poison(setting.context, setting.matrix(output).any());
    call();
  }

  SampleCheck check(const FloatingProduct& product) {
    const measure::Matrix a = setting.on_host(product.a), b = setting.on_host(product.b),
                          d = setting.on_host(product.d);
    return check_standard_product(setting.host(), a.any(), product.transpose_a, b.any(),
                                  product.transpose_b, d.any(), seed(),
                                  floating::factor_error(setting.context.state().device.kind,
                                                         setting.options.standard_engine));
  }
};

// Adds a correct field to the rounds. With a tuner, the field is also timed in its default
// configuration.
void enter(CaseSetting& setting, const FieldSpec& spec, std::function<void()> call,
           FieldResult& result) {
  using Sweep = Entry::Sweep;
  const auto& tuned = setting.options.tuned;
  // Casts, the lower bound of quantize operations, have no configurations to tune.
  if (tuned == nullptr || std::holds_alternative<Cast>(spec.work)) {
    setting.add(Sweep::fields, std::move(call), result.stats, &result.times_ms);
    return;
  }
  const auto watched = std::make_shared<WatchedSource>(setting.context, *tuned);
  with_source(setting.context, call, watched)();
  result.tuned = watched->differs();
  const std::size_t subject = setting.add(Sweep::fields, with_source(setting.context, call, tuned),
                                          result.stats, &result.times_ms);
  const std::size_t rival =
      setting.add(Sweep::defaults, with_source(setting.context, std::move(call), nullptr),
                  result.default_stats);
  setting.duels.push_back({subject, rival, &result.tuned_speedup});
}

}  // namespace

void make_codes(CaseSetting& setting) {
  const CaseOptions& options = setting.options;
  for (const FieldSpec& spec : field_table())
    if (const auto* quantize = std::get_if<Quantize>(&spec.work);
        quantize != nullptr && uses(options.fields, quantize->q))
      quantize_call(setting, *quantize)();
  setting.stop_if_interrupted();
  for (std::size_t i = 0; i < all_fields; ++i)
    if (const auto* product = std::get_if<Int8Product>(&field_table()[i].work);
        options.fields[i] && product != nullptr && product->packed != nullptr) {
      const auto pack = [&setting, product](PackedWeight& packed) {
        pack_weight(setting.context, setting.matrix(product->b).view<const std::int8_t>(), packed,
                    setting.options.int8_engine);
      };
      pack(setting.operands.*product->packed);
      setting.copies.add(product->packed,
                         static_cast<double>(setting.matrix(product->b).size_bytes()), pack);
    }
}

void prepare_field(CaseSetting& setting, Field field, CaseResult& result) {
  setting.stop_if_interrupted();
  const FieldSpec& spec = spec_of(field);
  FieldResult& out = result.fields[index(field)];
  try {
    std::function<void()> call;
    const SampleCheck check = std::visit(Validation{setting, call, out.engine}, spec.work);
    out.error = check.error;
    out.status = check.ok() ? CaseStatus::ok : CaseStatus::wrong;
    out.why = check.wrong;
    if (wrap_timed_call != nullptr) call = wrap_timed_call(field, std::move(call));
    if (check.ok()) enter(setting, spec, std::move(call), out);
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
    out.status = CaseStatus::unsupported;
    out.why = error.what();
  }
  if (out.status != CaseStatus::ok && result.status != CaseStatus::wrong) {
    result.status = out.status;
    result.why = std::string(spec.name) + ": " + out.why;
  }
}

void prepare_layers(CaseSetting& setting, CaseResult& result) {
  using Sweep = Entry::Sweep;
  const Case& shape = setting.shape;
  const Operands& o = setting.operands;
  if (setting.options.fields != every_field() || shape.dim_in > max_exact_k ||
      shape.dim_out > max_exact_k)
    return;
  const auto& tuned = setting.options.tuned;
  setting.context.set_config_source(tuned);
  LayerResult& out = result.layer.emplace();
  const auto enter_layer = [&](Mode mode, bool eval, measure::Stats& stats) {
    LinearOptions options;
    options.in_features = shape.dim_in;
    options.out_features = shape.dim_out;
    options.mode = mode;
    options.dtype = setting.options.dtype;
    const double weight_bytes = static_cast<double>(o.w.size_bytes());
    measure::TakenInTurns<LayerOfCase>& layers =
        setting.add_layer(options, eval, (eval ? 1 : 2) * weight_bytes);
    SwitchbackLinear& layer = *layers.first().layer;
    const auto call = [&setting, &layers, eval] {
      SwitchbackLinear& next = *layers.next().layer;
      const AnyMatrix x = setting.take(&Operands::x).any(), y = setting.take(&Operands::y).any();
      if (eval) return next.forward(x, y);
      next.weight_updated();
      next.forward(x, y, Save::borrow);
      // All layers' steps write to the same dx and dw, because their contents are not used.
      LinearGrads grads;
      grads.g = setting.take(&Operands::g).any();
      grads.dx = setting.take(&Operands::dx).any();
      grads.dw = setting.take(&Operands::dw).any();
      next.backward(grads);
    };
    call();
    setting.stop_if_interrupted();
    if (mode == Mode::automatic && eval)
      out.eval_mode = mode_name(layer.forward_mode(shape.batch_size));
    if (mode == Mode::automatic && !eval) {
      layer.weight_updated();
      out.forward_mode = mode_name(layer.forward_mode(shape.batch_size, Save::borrow));
      out.dx_mode = mode_name(layer.dx_mode(shape.batch_size));
    }
    return setting.add(mode == Mode::automatic ? Sweep::auto_layers : Sweep::standard_layers,
                       with_source(setting.context, call, tuned), stats);
  };
  const std::size_t standard_step = enter_layer(Mode::standard, false, out.standard_step);
  const std::size_t standard_eval = enter_layer(Mode::standard, true, out.standard_forward);
  const std::size_t auto_step = enter_layer(Mode::automatic, false, out.auto_step);
  const std::size_t auto_eval = enter_layer(Mode::automatic, true, out.auto_forward);
  setting.duels.push_back({auto_step, standard_step, &out.step_speedup});
  setting.duels.push_back({auto_eval, standard_eval, &out.forward_speedup});
}

}  // namespace switchback::bench
