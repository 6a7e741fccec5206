// SPDX-License-Identifier: Apache-2.0
#include "bench/run/case.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <numeric>
#include <optional>

#include "bench/cache/files.hpp"
#include "bench/run/check.hpp"
#include "bench/run/operands.hpp"
#include "bench/run/plan.hpp"
#include "core/context_state.hpp"
#include "gemm/floating/engine.hpp"
#include "gemm/int8/candidates.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

constexpr std::size_t least_tuned_cycles = 8;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

using Codes = MatrixView<const std::int8_t>;

/// An int8 product of a case: which operands it takes.
struct Int8Product {
  Codes a, b;
  const PackedWeight* packed = nullptr;
  AnyMatrix d;
  std::span<const float> absmax_a, absmax_b;
};

/// A floating point product of a case.
struct StandardProduct {
  ConstAnyMatrix a, b;
  AnyMatrix d;
  bool transpose_a = false, transpose_b = false;
};

/// Notes whether what a source answers is anything but the default.
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

class CaseRun {
 public:
  CaseRun(Context& context, const Case& c, const CaseOptions& options, CaseResult& result)
      : context_(context),
        case_(c),
        options_(options),
        result_(result),
        need_(operand_needs(options.fields)),
        o_(make_operands(context, c, options.dtype, options.fields, options.seed)) {
    if (runtime() == nullptr) return;
    ContextOptions cpu;
    cpu.device = "cpu";
    host_.emplace(cpu);
    if (options.cold_cache) {
      // Written before every timed call, it leaves nothing of the operands in the L2 cache.
      const auto bytes = static_cast<std::int64_t>(2 * runtime()->info().l2_bytes);
      flush_ = ContextMatrix(context, DType::s8, 1, bytes);
    }
  }

  void run() {
    const Clock::time_point start = Clock::now();
    context_.set_config_source(options_.tuned);
    make_codes();
    for (std::size_t i = 0; i < all_fields; ++i)
      if (options_.fields[i]) prepare(static_cast<Field>(i));
    if (options_.tuned != nullptr) prepare_layers();
    result_.setup_s = seconds_since(start);
    measure();
  }

 private:
  // What one entry of the rounds is: a field as it is measured, its default beside it, or a layer.
  enum class Part { field, field_default, standard_step, auto_step, standard_eval, auto_eval };
  struct Timed {
    Field field;
    Part part;
    std::function<void()> call;
    std::vector<double> times_ms;
    // On a device: what takes the time, and the call as a graph if graphs are asked for.
    std::unique_ptr<core::DeviceTimer> timer = nullptr;
    std::unique_ptr<core::DeviceGraph> graph = nullptr;
  };

  [[nodiscard]] core::DeviceRuntime* runtime() const { return context_.state().runtime.get(); }
  /// Where checks run.
  [[nodiscard]] Context& host() { return host_ ? *host_ : context_; }

  // Seconds of one call, by the device's clock where there is one.
  double seconds_of(const std::function<void()>& call) {
    if (runtime() == nullptr) {
      const Clock::time_point start = Clock::now();
      call();
      return seconds_since(start);
    }
    const auto timer = runtime()->make_timer();
    timer->start();
    call();
    timer->stop();
    return timer->seconds();
  }

  void stop_if_interrupted() const {
    if (options_.interrupted()) throw Interrupted{};
  }

  // The codes that products read, whether or not the quantize fields are measured.
  void make_codes() {
    if (need_.qx) call_quantize(Field::x_quantize_rowwise)();
    if (need_.qg) call_quantize(Field::g_quantize_rowwise)();
    if (need_.qw_row) call_quantize(Field::w_quantize_rowwise)();
    if (need_.qw_column_t) call_quantize(Field::w_quantize_colwise_transpose)();
    if (need_.qw_global) call_quantize(Field::w_quantize_global)();
    if (need_.qw_global_t) call_quantize(Field::w_quantize_global_transpose)();
    stop_if_interrupted();
    if (need_.packed_fwd)
      pack_weight(context_, o_.qw_row.view<const std::int8_t>(), o_.packed_fwd,
                  options_.int8_engine);
    if (need_.packed_bwd)
      pack_weight(context_, o_.qw_column_t.view<const std::int8_t>(), o_.packed_bwd,
                  options_.int8_engine);
  }

  std::function<void()> call_quantize(Field field) {
    switch (field) {
      case Field::x_quantize_rowwise:
        return [this] {
          quantize_rowwise(context_, o_.x.any(), o_.qx.view<std::int8_t>(), o_.absmax_x.floats());
        };
      case Field::g_quantize_rowwise:
        return [this] {
          quantize_rowwise(context_, o_.g.any(), o_.qg.view<std::int8_t>(), o_.absmax_g.floats());
        };
      case Field::w_quantize_rowwise:
        return [this] {
          quantize_rowwise(context_, o_.w.any(), o_.qw_row.view<std::int8_t>(),
                           o_.absmax_w_row.floats());
        };
      case Field::w_quantize_colwise_transpose:
        return [this] {
          quantize_columnwise_transpose(context_, o_.w.any(), o_.qw_column_t.view<std::int8_t>(),
                                        o_.absmax_w_column.floats());
        };
      case Field::w_quantize_global:
        return [this] {
          quantize_global(context_, o_.w.any(), o_.qw_global.view<std::int8_t>(),
                          o_.absmax_w_global.floats());
        };
      default:
        return [this] {
          quantize_global_transpose(context_, o_.w.any(), o_.qw_global_t.view<std::int8_t>(),
                                    o_.absmax_w_global_t.floats());
        };
    }
  }

  [[nodiscard]] Int8Product int8_product(Field field) const {
    const bool forward =
        field == Field::rowwise_fwd || field == Field::global_fwd || field == Field::fwd_packed;
    const bool global = field == Field::global_fwd || field == Field::global_bwd;
    Int8Product p;
    p.a = (forward ? o_.qx : o_.qg).view<const std::int8_t>();
    p.d = (forward ? o_.y : o_.dx).any();
    p.absmax_a = (forward ? o_.absmax_x : o_.absmax_g).floats();
    if (forward) {
      p.b = (global ? o_.qw_global : o_.qw_row).view<const std::int8_t>();
      p.absmax_b = (global ? o_.absmax_w_global : o_.absmax_w_row).floats();
    } else {
      p.b = (global ? o_.qw_global_t : o_.qw_column_t).view<const std::int8_t>();
      p.absmax_b = (global ? o_.absmax_w_global_t : o_.absmax_w_column).floats();
    }
    if (field == Field::fwd_packed) p.packed = &o_.packed_fwd;
    if (field == Field::bwd_packed) p.packed = &o_.packed_bwd;
    return p;
  }

  [[nodiscard]] GemmArgs int8_args(const Int8Product& p) const {
    GemmArgs args;
    args.a = p.a;
    if (p.packed != nullptr)
      args.packed_b = p.packed;
    else
      args.b = p.b;
    args.d = p.d;
    args.absmax_a = p.absmax_a;
    args.absmax_b = p.absmax_b;
    args.engine = options_.int8_engine;
    return args;
  }

  // The engine and configuration the library picks for these operands.
  [[nodiscard]] std::string int8_config(const Int8Product& p) const {
    gemm_int8::GemmProblem problem;
    problem.m = p.a.rows;
    problem.k = p.a.cols;
    problem.n = p.b.rows;
    problem.stride_a = p.a.stride;
    problem.stride_b = p.packed != nullptr ? 0 : p.b.stride;
    problem.stride_d = p.d.stride;
    problem.output = p.d.dtype;
    problem.alignment = core::alignment_class(
        context_.state(), {p.a.data, p.packed != nullptr ? nullptr : p.b.data, p.d.data});
    problem.scale = p.absmax_b.size() == static_cast<std::size_t>(problem.n)
                        ? gemm_int8::ScaleMode::row_col
                        : gemm_int8::ScaleMode::row_scalar;
    const gemm_int8::Engine* engine = gemm_int8::find_engine(
        context_.state().device.kind,
        p.packed != nullptr ? p.packed->engine() : std::string_view(options_.int8_engine));
    if (p.packed != nullptr && engine != nullptr) problem.packed_for = engine->id;
    if (options_.tuned != nullptr) {
      ConfigChoice choice;
      const ContextState& state = context_.state();
      if (options_.tuned->find(gemm_int8::config_query(problem, state), state, choice))
        return gemm_int8::describe(gemm_int8::from_choice(choice)) + " (tuned)";
    }
    return gemm_int8::describe(engine != nullptr ? engine->default_config(problem, context_.state())
                                                 : gemm_int8::default_config(problem, context_));
  }

  [[nodiscard]] StandardProduct standard_product(Field field) const {
    if (field == Field::standard_fwd) return {o_.x.any(), o_.w.any(), o_.y.any(), false, true};
    if (field == Field::standard_gx) return {o_.g.any(), o_.w.any(), o_.dx.any(), false, false};
    return {o_.g.any(), o_.x.any(), o_.dw.any(), true, false};
  }

  std::function<void()> call_standard(const StandardProduct& p, const std::string& engine) {
    // `engine` must live as long as the call: the arguments hold a view of it.
    return [this, p, engine] {
      StandardGemmArgs args;
      args.a = p.a;
      args.b = p.b;
      args.d = p.d;
      args.transpose_a = p.transpose_a;
      args.transpose_b = p.transpose_b;
      args.engine = engine;
      gemm_standard(context_, args);
    };
  }

  // The fastest engine for a pass: every one that accepts it, interleaved. A slow rival would
  // flatter the int8 path.
  std::string fastest_standard_engine(const StandardProduct& product) {
    struct Rival {
      std::string name;
      std::function<void()> call;
      double best_s;
    };
    std::vector<Rival> rivals;
    std::string refusals;
    std::vector<EngineInfo> engines = gemm_standard_engines(context_);
    // The reference is for tests: it takes part only where nothing else does.
    std::stable_partition(engines.begin(), engines.end(),
                          [](const EngineInfo& e) { return e.name != core::oracle_name; });
    for (const EngineInfo& engine : engines) {
      if (!engine.available || (engine.name == core::oracle_name && !rivals.empty())) continue;
      if (factor_error(engine.name) > 0)
        continue;  // another product; --standard-engine asks for it
      stop_if_interrupted();
      Rival rival{engine.name, call_standard(product, engine.name), 0};
      try {
        rival.call();  // allocates, and lets a library build its kernel
        rival.best_s = seconds_of(rival.call);
      } catch (const Error& error) {
        if (error.status() != Status::unsupported) throw;
        refusals += (refusals.empty() ? "" : "; ") + std::string(error.what());
        continue;
      }
      rivals.push_back(std::move(rival));
    }
    if (rivals.empty()) throw Error(Status::unsupported, refusals);
    const auto by_time = [](const Rival& a, const Rival& b) { return a.best_s < b.best_s; };
    const double best_s = std::min_element(rivals.begin(), rivals.end(), by_time)->best_s;
    std::erase_if(rivals, [&](const Rival& r) { return r.best_s > 2 * best_s; });
    const int rounds = rivals.size() < 2 ? 0 : best_s > 0.5 ? 1 : best_s > 0.01 ? 3 : 7;
    for (int round = 0; round < rounds; ++round)
      for (Rival& rival : rivals) {
        stop_if_interrupted();
        rival.best_s = std::min(rival.best_s, seconds_of(rival.call));
      }
    return std::min_element(rivals.begin(), rivals.end(), by_time)->name;
  }

  [[nodiscard]] std::function<void()> with_source(std::function<void()> call,
                                                  std::shared_ptr<const ConfigSource> source) {
    return [this, call = std::move(call), source = std::move(source)] {
      context_.set_config_source(source);
      call();
    };
  }

  void time_field(Field field, std::function<void()> call) {
    // Casts are the floor under quantize operations; nobody tunes them.
    const bool is_cast = field >= Field::cast_x && field <= Field::cast_w;
    if (options_.tuned == nullptr || is_cast) {
      timed_.push_back({field, Part::field, std::move(call), {}, nullptr, nullptr});
      return;
    }
    const auto watched = std::make_shared<WatchedSource>(context_, *options_.tuned);
    with_source(call, watched)();
    result_.fields[index(field)].tuned = watched->differs();
    timed_.push_back({field, Part::field, with_source(call, options_.tuned), {}, nullptr, nullptr});
    timed_.push_back(
        {field, Part::field_default, with_source(std::move(call), nullptr), {}, nullptr, nullptr});
  }

  // Layers over the case's own operands. The steps share dx and dw, which nobody reads.
  void prepare_layers() {
    const FieldSet every = every_field();
    if (options_.fields != every || case_.dim_in > max_exact_k || case_.dim_out > max_exact_k)
      return;
    context_.set_config_source(options_.tuned);
    for (const bool automatic : {false, true})
      for (const bool eval : {false, true}) {
        LinearOptions layer_options;
        layer_options.in_features = case_.dim_in;
        layer_options.out_features = case_.dim_out;
        layer_options.mode = automatic ? Mode::automatic : Mode::standard;
        layer_options.dtype = options_.dtype;
        auto& layer =
            layers_.emplace_back(std::make_unique<SwitchbackLinear>(context_, layer_options));
        layer->set_weight(o_.w.any());
        if (eval) layer->prepare_for_eval();
        SwitchbackLinear* each = layer.get();
        std::function<void()> call;
        if (eval)
          call = [this, each] { each->forward(o_.x.any(), o_.y.any()); };
        else
          call = [this, each] {
            each->weight_updated();
            each->forward(o_.x.any(), o_.y.any(), Save::borrow);
            LinearGrads grads;
            grads.g = o_.g.any();
            grads.dx = o_.dx.any();
            grads.dw = o_.dw.any();
            each->backward(grads);
          };
        call();
        stop_if_interrupted();
        const Part part = automatic ? (eval ? Part::auto_eval : Part::auto_step)
                                    : (eval ? Part::standard_eval : Part::standard_step);
        if (!result_.layer) result_.layer.emplace();
        if (automatic && eval)
          result_.layer->eval_mode = mode_name(each->forward_mode(case_.batch_size));
        if (automatic && !eval) {
          each->weight_updated();
          result_.layer->forward_mode =
              mode_name(each->forward_mode(case_.batch_size, Save::borrow));
          result_.layer->dx_mode = mode_name(each->dx_mode(case_.batch_size));
        }
        timed_.push_back({Field::standard_fwd,
                          part,
                          with_source(std::move(call), options_.tuned),
                          {},
                          nullptr,
                          nullptr});
      }
  }

  // Runs one field once into poisoned outputs, checks it, and takes it up for timing.
  void prepare(Field field) {
    stop_if_interrupted();
    FieldResult& out = result_.fields[index(field)];
    try {
      SampleCheck check;
      std::function<void()> call;
      const std::uint64_t seed = options_.seed + 100;
      if (field <= Field::standard_gx) {
        const StandardProduct p = standard_product(field);
        const bool chosen = options_.tuned == nullptr && options_.standard_engine.empty();
        out.engine = chosen ? fastest_standard_engine(p) : options_.standard_engine;
        call = call_standard(p, out.engine);
        if (out.engine.empty()) out.engine = "tuned";
        poison(context_, p.d);
        call();
        check = check_standard(p, options_.standard_engine, seed);
      } else if (field == Field::standard_fwd_packed) {
        // A layer in eval mode takes the faster of its packed weight and the products above.
        LinearOptions layer{.in_features = case_.dim_in,
                            .out_features = case_.dim_out,
                            .mode = Mode::standard,
                            .dtype = options_.dtype,
                            .engine = options_.standard_engine};
        eval_layer_.emplace(context_, layer);
        eval_layer_->set_weight(o_.w.any());
        eval_layer_->prepare_for_eval();
        out.engine = "layer in eval mode";
        call = [this] { eval_layer_->forward(o_.x.any(), o_.y.any()); };
        poison(context_, o_.y.any());
        call();
        check =
            check_standard(standard_product(Field::standard_fwd), options_.standard_engine, seed);
      } else if (is_int8_product(field)) {
        const Int8Product p = int8_product(field);
        const GemmArgs args = int8_args(p);
        call = [this, args] { gemm(context_, args); };
        poison(context_, p.d);
        call();
        out.engine = int8_config(p);
        const HostCopy a(context_, p.a), b(context_, p.b), d(context_, ConstAnyMatrix(p.d));
        const HostCopy absmax_a(context_, p.absmax_a), absmax_b(context_, p.absmax_b);
        check = check_int8_product(host(), a.view<std::int8_t>(), b.view<std::int8_t>(), d.any(),
                                   absmax_a.floats(), absmax_b.floats(), seed);
      } else if (field >= Field::cast_x && field <= Field::cast_w) {
        const ContextMatrix& from = field == Field::cast_x   ? o_.x
                                    : field == Field::cast_g ? o_.g
                                                             : o_.w;
        const ConstAnyMatrix x = from.any();
        const MatrixView<std::int8_t> q(o_.cast.view<std::int8_t>().data, x.rows, x.cols);
        call = [this, x, q] { cast_to_int8(context_, x, q); };
        poison(context_, AnyMatrix(q));
        call();
        const HostCopy host_x(context_, x), host_q(context_, ConstAnyMatrix(AnyMatrix(q)));
        check = check_cast(host_x.any(), host_q.view<std::int8_t>(), seed);
      } else {
        call = call_quantize(field);
        check = run_and_check_quantize(field, call, seed);
      }
      out.error = check.error;
      out.status = check.ok() ? CaseStatus::ok : CaseStatus::wrong;
      out.why = check.wrong;
      if (check.ok()) time_field(field, std::move(call));
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      out.status = CaseStatus::unsupported;
      out.why = error.what();
    }
    if (out.status != CaseStatus::ok && result_.status != CaseStatus::wrong) {
      result_.status = out.status;
      result_.why = std::string(field_name(field)) + ": " + out.why;
    }
  }

  SampleCheck run_and_check_quantize(Field field, const std::function<void()>& call,
                                     std::uint64_t seed) {
    struct Target {
      ConstAnyMatrix x;
      Group group;
      ContextMatrix& q;
      bool transposed;
      ContextMatrix& absmax;
    };
    const auto target = [&]() -> Target {
      switch (field) {
        case Field::x_quantize_rowwise:
          return {o_.x.any(), Group::row, o_.qx, false, o_.absmax_x};
        case Field::g_quantize_rowwise:
          return {o_.g.any(), Group::row, o_.qg, false, o_.absmax_g};
        case Field::w_quantize_rowwise:
          return {o_.w.any(), Group::row, o_.qw_row, false, o_.absmax_w_row};
        case Field::w_quantize_colwise_transpose:
          return {o_.w.any(), Group::column, o_.qw_column_t, true, o_.absmax_w_column};
        case Field::w_quantize_global:
          return {o_.w.any(), Group::matrix, o_.qw_global, false, o_.absmax_w_global};
        default:
          return {o_.w.any(), Group::matrix, o_.qw_global_t, true, o_.absmax_w_global_t};
      }
    }();
    poison(context_, target.q.any());
    poison(context_, target.absmax.any());
    call();
    const HostCopy x(context_, target.x), q(context_, ConstAnyMatrix(target.q.any()));
    const HostCopy absmax(context_, target.absmax.floats());
    return check_quantized(host(), x.any(), target.group, q.view<std::int8_t>(), target.transposed,
                           absmax.floats(), seed);
  }

  // See floating::Engine.
  [[nodiscard]] double factor_error(const std::string& engine) const {
    const floating::Engine* found = floating::find_engine(context_.state().device.kind, engine);
    return found == nullptr ? 0 : found->factor_error;
  }

  SampleCheck check_standard(const StandardProduct& p, const std::string& engine,
                             std::uint64_t seed) {
    const HostCopy a(context_, p.a), b(context_, p.b), d(context_, ConstAnyMatrix(p.d));
    return check_standard_product(host(), a.any(), p.transpose_a, b.any(), p.transpose_b, d.any(),
                                  seed, factor_error(engine));
  }

  // The order of a round. A field's default follows its tuned form by a whole sweep, not at once:
  // the second of two calls on the same operands would find them in the caches. Sweeps and layers
  // change places so that within four rounds each has followed each of the others equally often.
  [[nodiscard]] std::vector<Timed*> next_round() {
    std::vector<Timed*> first, second, layers;
    for (Timed& t : timed_)
      (t.part == Part::field           ? first
       : t.part == Part::field_default ? second
                                       : layers)
          .push_back(&t);
    const std::size_t phase = rounds_begun_++ % tuned_cycle;
    if (phase % 2 == 1) std::swap(first, second);
    // Standard and auto, of the steps and of the forwards.
    if (phase >= tuned_cycle / 2 && layers.size() == 4) {
      std::swap(layers[0], layers[2]);
      std::swap(layers[1], layers[3]);
    }
    first.insert(first.end(), second.begin(), second.end());
    first.insert(first.end(), layers.begin(), layers.end());
    return first;
  }

  // A device's times are read when the round is over: until then nobody waits for it.
  void device_round(bool timed) {
    const std::vector<Timed*> order = next_round();
    for (Timed* entry : order) {
      Timed& t = *entry;
      stop_if_interrupted();
      if (t.timer == nullptr) t.timer = runtime()->make_timer();
      if (options_.graphs && t.graph == nullptr) {
        runtime()->begin_capture();
        t.call();
        t.graph = runtime()->end_capture();
      }
      if (options_.cold_cache) runtime()->fill(flush_.any().data, 0, flush_.size_bytes());
      t.timer->start();
      if (t.graph != nullptr)
        t.graph->launch();
      else
        t.call();
      t.timer->stop();
    }
    for (Timed& t : timed_) {
      const double ms = t.timer->seconds() * 1e3;
      if (timed) t.times_ms.push_back(ms);
    }
  }

  void round(bool timed) {
    if (runtime() != nullptr) return device_round(timed);
    for (Timed* entry : next_round()) {
      Timed& t = *entry;
      stop_if_interrupted();
      const Clock::time_point start = Clock::now();
      t.call();
      const std::chrono::duration<double, std::milli> took = Clock::now() - start;
      if (timed) t.times_ms.push_back(took.count());
    }
  }

  void measure() {
    if (timed_.empty()) return;
    using Seconds = std::chrono::duration<double>;
    const auto left_s = [&] {
      return options_.deadline ? Seconds(*options_.deadline - Clock::now()).count() : 1e18;
    };
    // Warming up may take a third of the time there is.
    const double warm_up_until_s = left_s() * 2 / 3;
    for (int i = 0; i < options_.repeat / 2 && (i == 0 || left_s() > warm_up_until_s); ++i) {
      // A round that would eat into the three timed ones is not begun.
      round(false);
      if (left_s() <= 0) break;
    }

    const Clock::time_point start = Clock::now();
    const int fewest = std::min(options_.repeat, fewest_rounds);
    const int wanted =
        options_.tuned == nullptr
            ? options_.repeat
            : std::max(options_.repeat, static_cast<int>(tuned_cycle * least_tuned_cycles));
    rounds_begun_ = 0;
    for (int done = 0;; ++done) {
      const double elapsed_s = seconds_since(start);
      if (done >= wanted && elapsed_s >= options_.min_time_s) break;
      if (done >= fewest && elapsed_s / done > left_s()) break;
      round(true);
    }
    result_.rounds = static_cast<int>(timed_.front().times_ms.size());
    for (std::size_t i = 0; i < timed_.size(); ++i)
      take_times(i);
    context_.set_config_source(options_.tuned);
  }

  // Times of a cycle of rounds together: over it no rival was the better placed one.
  static std::vector<double> whole_cycles(const std::vector<double>& times) {
    if (times.size() < tuned_cycle) return times;
    std::vector<double> sums;
    for (std::size_t i = 0; i + tuned_cycle <= times.size(); i += tuned_cycle)
      sums.push_back(std::accumulate(times.begin() + static_cast<std::ptrdiff_t>(i),
                                     times.begin() + static_cast<std::ptrdiff_t>(i + tuned_cycle),
                                     0.0));
    return sums;
  }

  void take_times(std::size_t i) {
    const std::vector<double>& times = timed_[i].times_ms;
    FieldResult& field = result_.fields[index(timed_[i].field)];
    // What an entry is compared with was put right before it, or two before.
    switch (timed_[i].part) {
      case Part::field:
        field.stats = measure::summarize(times);
        break;
      case Part::field_default:
        field.default_stats = measure::summarize(times);
        field.tuned_speedup =
            measure::speed_ratio(whole_cycles(times), whole_cycles(timed_[i - 1].times_ms));
        break;
      case Part::standard_step:
        result_.layer->standard_step = measure::summarize(times);
        break;
      case Part::standard_eval:
        result_.layer->standard_forward = measure::summarize(times);
        break;
      case Part::auto_step:
        result_.layer->auto_step = measure::summarize(times);
        result_.layer->step_speedup =
            measure::speed_ratio(whole_cycles(timed_[i - 2].times_ms), whole_cycles(times));
        break;
      case Part::auto_eval:
        result_.layer->auto_forward = measure::summarize(times);
        result_.layer->forward_speedup =
            measure::speed_ratio(whole_cycles(timed_[i - 2].times_ms), whole_cycles(times));
        break;
    }
  }

  Context& context_;
  Case case_;
  const CaseOptions& options_;
  CaseResult& result_;
  OperandNeeds need_;
  Operands o_;
  std::optional<Context> host_;  ///< the CPU, beside another device
  ContextMatrix flush_;
  std::optional<SwitchbackLinear> eval_layer_;
  std::vector<std::unique_ptr<SwitchbackLinear>> layers_;
  std::vector<Timed> timed_;
  std::size_t rounds_begun_ = 0;
};

}  // namespace

CaseResult run_case(Context& context, const Case& c, const CaseOptions& options) {
  CaseResult result;
  result.shape = c;
  result.repeat = options.repeat;
  const Clock::time_point start = Clock::now();
  const auto out_of_memory = [&](const char* why) {
    result = {};
    result.shape = c;
    result.repeat = options.repeat;
    result.status = CaseStatus::oom;
    result.why = why;
  };
  const std::shared_ptr<const ConfigSource> before = context.state().config_source;
  struct Restore {
    Context& context;
    const std::shared_ptr<const ConfigSource>& source;
    ~Restore() { context.set_config_source(source); }
  } const restore{context, before};
  try {
    CaseRun(context, c, options, result).run();
  } catch (const std::bad_alloc&) {
    out_of_memory("memory could not be had");
  } catch (const std::length_error& error) {
    out_of_memory(error.what());
  } catch (const Error& error) {
    if (error.status() == Status::out_of_memory) {
      out_of_memory(error.what());
    } else {
      throw;
    }
  }
  result.wall_s = seconds_since(start);
  return result;
}

}  // namespace switchback::bench
