// SPDX-License-Identifier: Apache-2.0
#include "studies/micro/models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cli/table.hpp"
#include "bench/workload/session.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "studies/common/training.hpp"
#include "studies/micro/model_floors.hpp"
#include "studies/models/kernels.hpp"
#include "switchback/activation.hpp"

namespace switchback::bench {

namespace {

using measure::Matrix;

constexpr double models_min_time_s = 0.5;
constexpr MicroShape small_decoder = {1024, 768, 3072};  // four sequences of 256 tokens
constexpr std::int64_t longest_sequence = 256;
constexpr std::int64_t widest_head = 64;
constexpr std::int64_t vocabulary = 10000;
// The largest number of operand sets of one operation. 64 sets of the shapes for which results are
// claimed do not fit into the caches.
constexpr std::size_t most_sets = 64;

struct Dimensions {
  std::int64_t rows, width, hidden;
  std::int64_t length, heads;
  DType dtype;

  [[nodiscard]] models::AttentionShape attention() const {
    return {.batch = rows / length, .length = length, .heads = heads, .head_dim = width / heads};
  }
};

Dimensions dimensions_of(const MicroOptions& options, const MicroShape& shape) {
  core::require(shape.dim_in % 2 == 0, "--shape: width {}; it must be even", shape.dim_in);
  const DType dtype = options.dtype.value_or(DType::f32);
  core::require(dtype == DType::f32 || dtype == DType::bf16, "--dtype {}: it must be f32 or bf16",
                dtype_name(dtype));
  return {.rows = shape.batch,
          .width = shape.dim_in,
          .hidden = shape.dim_out,
          .length = shape.batch % longest_sequence == 0 ? longest_sequence : shape.batch,
          .heads = shape.dim_in % widest_head == 0 ? shape.dim_in / widest_head : 1,
          .dtype = dtype};
}

// A block of normally distributed values that is copied into operands, which is faster than new
// ones.
class RandomValues {
 public:
  RandomValues(Context& context, DType dtype, std::uint64_t seed)
      : floats_(context, DType::f32, 1, block), activations_(context, dtype, 1, block) {
    measure::fill_normal(context, floats_.any(), seed);
    measure::fill_normal(context, activations_.any(), seed + 1);
  }
  void fill(Context& context, const Matrix& m) const {
    const Matrix& from = m.dtype() == DType::f32 ? floats_ : activations_;
    auto* const to = static_cast<std::byte*>(m.data());
    for (std::size_t at = 0; at < m.size_bytes(); at += from.size_bytes()) {
      const std::size_t bytes = std::min(from.size_bytes(), m.size_bytes() - at);
      if (core::DeviceRuntime* runtime = context.state().runtime.get(); runtime != nullptr)
        runtime->copy(to + at, bytes, from.data(), bytes, bytes, 1);
      else
        std::memcpy(to + at, from.data(), bytes);
    }
  }

 private:
  static constexpr std::int64_t block = 1 << 18;
  Matrix floats_, activations_;
};

// Allocates the operands of one operation and owns their memory.
class LayerMemory {
 public:
  LayerMemory(Context& context, const Dimensions& d, const RandomValues& random)
      : context_(context), dimensions_(d), random_(random) {}

  AnyMatrix activations(std::int64_t cols) {
    return take(dimensions_.dtype, dimensions_.rows, cols).any();
  }
  const Matrix& floats(std::int64_t rows, std::int64_t cols) {
    return take(DType::f32, rows, cols);
  }
  std::span<float> vector(std::int64_t size) { return floats(1, size).floats(); }
  MatrixView<float> table(std::int64_t rows, std::int64_t cols) {
    return floats(rows, cols).view<float>();
  }
  models::Tokens tokens() {
    const std::vector<std::int32_t> values = random_tokens(dimensions_.rows, vocabulary, 1);
    const Matrix host(DType::s32, 1, dimensions_.rows);
    std::copy(values.begin(), values.end(), host.values<std::int32_t>().begin());
    const Matrix& m = matrices_.emplace_back(context_, DType::s32, 1, dimensions_.rows);
    measure::copy(context_, host.any(), m.any());
    return m.values<std::int32_t>();
  }
  // A vector of `size` elements that all have this value.
  std::span<float> constants(std::int64_t size, float value) {
    const Matrix host(DType::f32, 1, size);
    std::fill(host.floats().begin(), host.floats().end(), value);
    const Matrix& m = matrices_.emplace_back(context_, DType::f32, 1, size);
    measure::copy(context_, host.any(), m.any());
    return m.floats();
  }
  double* loss() {
    return static_cast<double*>(matrices_.emplace_back(context_, DType::s32, 1, 2).data());
  }
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const Matrix& m : matrices_)
      sum += static_cast<std::int64_t>(m.size_bytes());
    return sum;
  }

 private:
  const Matrix& take(DType dtype, std::int64_t rows, std::int64_t cols) {
    const Matrix& m = matrices_.emplace_back(context_, dtype, rows, cols);
    random_.fill(context_, m);
    return m;
  }
  Context& context_;
  Dimensions dimensions_;
  const RandomValues& random_;
  std::deque<Matrix> matrices_;
};

struct ModelOperation {
  std::string name;
  LayerFloor floor;
  std::function<std::function<void()>(LayerMemory&)> make;
};

// Multiplications per element of GELU in its erf form, for f32: 11 for an exponential, 10 for a
// quotient of polynomials, 1 for the product of both and 1 for the result. Backward has 3 instead
// of the last 2: for the slope, the derivative and the gradient. For bf16 none is counted: a bf16
// has 65536 values, so its GELU can be looked up.
double gelu_forward_operations(DType dtype) {
  return dtype == DType::f32 ? 11 + 10 + 2 : 0;
}
double gelu_backward_operations(DType dtype) {
  return dtype == DType::f32 ? 11 + 10 + 3 : 0;
}
// Multiplications per element of SwiGLU. An exponential takes 9 for f32, and 6 for bf16, whose
// polynomial and range reduction are shorter. Forward has 1 more to multiply with the other half,
// and for f32 1 with the reciprocal (bf16 divides instead, which is not counted). Backward has 2
// more for silu and its slope, and 3 for the gradients.
double swiglu_forward_operations(DType dtype) {
  return dtype == DType::f32 ? 9 + 2 : 6 + 1;
}
double swiglu_backward_operations(DType dtype) {
  return (dtype == DType::f32 ? 9 : 6) + 5;
}
// Multiplications per element of dropout. The Philox generator makes four words from a counter with
// two 32-bit products in each of ten rounds; an instruction computes the products of every second
// lane. In the first two rounds one of the two factors is the same for all counters, which saves a
// product each. The last multiplication scales the element.
constexpr double dropout_operations = (10 * 2 - 2) * 2 / 4.0 + 1;
// Instructions of all kinds per element of dropout. Each of the ten Philox rounds has two products,
// two shifts of their upper halves, and two combinations of three words; two products and two
// shifts of constant factors are saved. Then come a comparison, and the multiplication that zeroes
// dropped elements. For bf16, one instruction moves an element to its position, and one rounds two
// elements.
double dropout_operations_of_any_kind(DType dtype) {
  return (10 * 6 - 4) * 2 / 4.0 + 2 + (dtype == DType::bf16 ? 1.5 : 0);
}
// Multiplications of a softmax for each visible pair of a query and a key, in addition to the
// matrix products. An exponential with a table takes two for the exponent and three (bf16: two) for
// the polynomial. Scaling by the power of two may be an addition. Backward has one more product.
double softmax_operations(DType dtype, bool backward) {
  return (dtype == DType::f32 ? 5 : 4) + (backward ? 1 : 0);
}

// Adds the operations of RMSNorm and LayerNorm. `activations`: the bytes of a matrix [rows, width].
void add_norms(ContextState& state, const Dimensions& d, double activations,
               std::vector<ModelOperation>& all) {
  all.push_back({"rmsnorm of a sum: forward",
                 {2 * activations, 2 * activations},
                 [&state, d](LayerMemory& o) {
                   models::RmsNorm args{.x = o.activations(d.width),
                                        .add = o.activations(d.width),
                                        .sum = o.activations(d.width),
                                        .gain = o.vector(d.width),
                                        .y = o.activations(d.width),
                                        .rstd = o.vector(d.rows)};
                   return [&state, args] { models::rms_norm(state, args); };
                 }});
  all.push_back({"rmsnorm: backward", {3 * activations, activations}, [&state, d](LayerMemory& o) {
                   models::RmsNormBackward args{.s = o.activations(d.width),
                                                .gain = o.vector(d.width),
                                                .rstd = o.vector(d.rows),
                                                .dy = o.activations(d.width),
                                                .dx = o.activations(d.width),
                                                .dgain = o.vector(d.width)};
                   return [&state, args] { models::rms_norm_backward(state, args); };
                 }});
  all.push_back({"layernorm of a sum: forward",
                 {2 * activations, 2 * activations},
                 [&state, d](LayerMemory& o) {
                   models::LayerNorm args{.x = o.activations(d.width),
                                          .add = o.activations(d.width),
                                          .sum = o.activations(d.width),
                                          .gain = o.vector(d.width),
                                          .bias = o.vector(d.width),
                                          .y = o.activations(d.width),
                                          .mean = o.vector(d.rows),
                                          .rstd = o.vector(d.rows)};
                   return [&state, args] { models::layer_norm(state, args); };
                 }});
  all.push_back(
      {"layernorm: backward", {2 * activations, activations}, [&state, d](LayerMemory& o) {
         models::LayerNormBackward args{.s = o.activations(d.width),
                                        .gain = o.vector(d.width),
                                        .mean = o.vector(d.rows),
                                        .rstd = o.vector(d.rows),
                                        .dy = o.activations(d.width),
                                        .dx = o.activations(d.width),
                                        .dgain = o.vector(d.width),
                                        .dbias = o.vector(d.width)};
         return [&state, args] { models::layer_norm_backward(state, args); };
       }});
}

void add_attention(ContextState& state, const Dimensions& d, double activations,
                   std::vector<ModelOperation>& all) {
  for (const bool inverse : {false, true})
    all.push_back({inverse ? "rope: backward" : "rope: forward",
                   {2 * activations, 2 * activations},
                   [&state, d, inverse](LayerMemory& o) {
                     const std::int64_t half_dim = d.width / d.heads / 2;
                     // Cosines are 1 and sines 0, so the values do not change, however often the
                     // operation runs.
                     const models::Rope args{.heads = d.heads,
                                             .head_dim = d.width / d.heads,
                                             .length = d.length,
                                             .cosines = o.constants(d.length * half_dim, 1.0f),
                                             .sines = o.constants(d.length * half_dim, 0.0f)};
                     return [&state, args, inverse, qkv = o.activations(3 * d.width)] {
                       models::rope(state, args, qkv, inverse);
                     };
                   }});
  // Attention has this number of products of head_dim for each visible pair of a query and a key:
  // two in forward, five in backward.
  const double pairs = static_cast<double>(d.rows) * static_cast<double>(d.length + 1) / 2;
  const double heads = static_cast<double>(d.heads);
  const double product = pairs * static_cast<double>(d.width);
  const double forward = pairs * heads * softmax_operations(d.dtype, false);
  const double backward = pairs * heads * softmax_operations(d.dtype, true);
  all.push_back({"attention: forward",
                 {3 * activations, activations, forward, 2 * product},
                 [&state, d](LayerMemory& o) {
                   return [&state, shape = d.attention(), qkv = o.activations(3 * d.width),
                           out = o.activations(d.width), lse = o.vector(d.rows * d.heads)] {
                     models::attention(state, shape, qkv, out, lse);
                   };
                 }});
  all.push_back({"attention: backward",
                 {5 * activations, 3 * activations, backward, 5 * product},
                 [&state, d](LayerMemory& o) {
                   const models::AttentionShape shape = d.attention();
                   const AnyMatrix qkv = o.activations(3 * d.width);
                   const AnyMatrix out = o.activations(d.width);
                   const AnyMatrix dout = o.activations(d.width);
                   const AnyMatrix dqkv = o.activations(3 * d.width);
                   const std::span<float> lse = o.vector(d.rows * d.heads);
                   models::attention(state, shape, qkv, out, lse);
                   return [&state, shape, qkv, out, dout, dqkv, lse] {
                     models::attention_backward(state, shape, qkv, out, lse, dout, dqkv);
                   };
                 }});
}

void add_mlp(Context& context, const Dimensions& d, double hidden,
             std::vector<ModelOperation>& all) {
  ContextState& state = context.state();
  const auto elements = static_cast<double>(d.rows * d.hidden);
  all.push_back({"swiglu: forward",
                 {2 * hidden, hidden, swiglu_forward_operations(d.dtype) * elements},
                 [&state, d](LayerMemory& o) {
                   return [&state, gate_up = o.activations(2 * d.hidden),
                           h = o.activations(d.hidden)] { models::swiglu(state, gate_up, h); };
                 }});
  all.push_back({"swiglu: backward",
                 {3 * hidden, 2 * hidden, swiglu_backward_operations(d.dtype) * elements},
                 [&state, d](LayerMemory& o) {
                   return [&state, gate_up = o.activations(2 * d.hidden),
                           dh = o.activations(d.hidden), dgate_up = o.activations(2 * d.hidden)] {
                     models::swiglu_backward(state, gate_up, dh, dgate_up);
                   };
                 }});
  all.push_back({"gelu: forward",
                 {hidden, hidden, gelu_forward_operations(d.dtype) * elements},
                 [&context, d](LayerMemory& o) {
                   return [&context, x = o.activations(d.hidden), y = o.activations(d.hidden)] {
                     activation_forward(context, x, Activation::gelu_erf, y);
                   };
                 }});
  all.push_back({"gelu: backward",
                 {2 * hidden, hidden, gelu_backward_operations(d.dtype) * elements},
                 [&context, d](LayerMemory& o) {
                   return [&context, g = o.activations(d.hidden), x = o.activations(d.hidden),
                           dx = o.activations(d.hidden)] {
                     activation_backward(context, g, x, Activation::gelu_erf, dx);
                   };
                 }});
}

void add_ends(ContextState& state, const Dimensions& d, double activations, double element,
              std::vector<ModelOperation>& all) {
  const double floats = static_cast<double>(d.rows * d.width) * 4;
  const double table = static_cast<double>(vocabulary * d.width) * 4;
  const LayerFloor gather = {.read_bytes = floats,
                             .written_bytes = activations,
                             .row_bytes = d.width * 4,
                             .table_rows = vocabulary};
  all.push_back({"embedding: forward", gather, [&state, d](LayerMemory& o) {
                   const models::Tokens tokens = o.tokens();
                   return
                       [&state, tokens, from = o.table(vocabulary, d.width),
                        y = o.activations(d.width)] { models::embed(state, tokens, from, {}, y); };
                 }});
  // The table's gradient is counted as written once, because few of the random tokens repeat.
  all.push_back({"embedding: backward", {activations, table}, [&state, d](LayerMemory& o) {
                   const models::Tokens tokens = o.tokens();
                   return [&state, tokens, to = o.table(vocabulary, d.width),
                           dy = o.activations(d.width)] {
                     models::embed_backward(state, tokens, dy, to, {}, false);
                   };
                 }});
  const auto elements = static_cast<double>(d.rows * d.width);
  const double logits = static_cast<double>(d.rows * vocabulary) * element;
  for (const bool gradient : {false, true})
    all.push_back({gradient ? "cross entropy and gradient" : "cross entropy",
                   {logits, gradient ? logits : 0},
                   [&state, d, gradient](LayerMemory& o) {
                     return [&state, d, gradient, loss = o.loss(), targets = o.tokens(),
                             x = o.activations(vocabulary)] {
                       models::queue_cross_entropy(state, x, targets, d.rows, gradient, loss);
                     };
                   }});
  all.push_back({"dropout",
                 {.read_bytes = activations,
                  .written_bytes = activations,
                  .operations = dropout_operations * elements,
                  .of_any_kind = dropout_operations_of_any_kind(d.dtype) * elements},
                 [&state, d](LayerMemory& o) {
                   return [&state, x = o.activations(d.width)] {
                     models::dropout(state, {.p = 0.1f, .key = 1}, x);
                   };
                 }});
  all.push_back({"sum", {2 * activations, activations}, [&state, d](LayerMemory& o) {
                   return [&state, x = o.activations(d.width), y = o.activations(d.width)] {
                     models::add(state, x, y);
                   };
                 }});
}

// Adds SGD and AdamW, with the number of parameters of one block of a decoder.
void add_optimizers(ContextState& state, const Dimensions& d, std::vector<ModelOperation>& all) {
  const std::int64_t parameters = 4 * d.width * d.width + 3 * d.width * d.hidden;
  const double bytes = static_cast<double>(parameters) * 4;
  const auto update_of = [parameters](LayerMemory& o) {
    return models::Update{.value = o.vector(parameters).data(),
                          .gradient = o.vector(parameters).data(),
                          .first = o.vector(parameters).data(),
                          .size = parameters,
                          .weight_decay = 1e-4f};
  };
  all.push_back({"sgd with momentum", {3 * bytes, 2 * bytes}, [&state, update_of](LayerMemory& o) {
                   return [&state, update = update_of(o)] {
                     models::sgd(state,
                                 {.learning_rate = 1e-6f, .momentum = 0.9f, .nesterov = true},
                                 {&update, 1});
                   };
                 }});
  all.push_back({"adamw", {4 * bytes, 3 * bytes}, [&state, update_of, parameters](LayerMemory& o) {
                   models::Update update = update_of(o);
                   update.second = o.constants(parameters, 1.0f).data();
                   return [&state, update] {
                     models::adamw(
                         state,
                         {.learning_rate = 1e-6f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f},
                         {&update, 1});
                   };
                 }});
}

std::vector<ModelOperation> model_operations(Context& context, const Dimensions& d) {
  const auto element = static_cast<double>(dtype_size_bytes(d.dtype));
  const double activations = static_cast<double>(d.rows * d.width) * element;
  const double hidden = static_cast<double>(d.rows * d.hidden) * element;
  std::vector<ModelOperation> all;
  add_norms(context.state(), d, activations, all);
  add_attention(context.state(), d, activations, all);
  add_mlp(context, d, hidden, all);
  add_ends(context.state(), d, activations, element, all);
  add_optimizers(context.state(), d, all);
  return all;
}

void race_with_floor(Context& context, const MicroOptions& options, const Dimensions& d,
                     const MicroShape& shape, const ModelOperation& operation,
                     const RandomValues& random, MemoryFloor& memory_floor, std::int64_t cold_bytes,
                     const RaceSink& sink) {
  // Each call uses the next set of operands, so that they come from memory like the activations of
  // a model. Matrix products always use the same operands; arithmetic bounds their time.
  std::deque<LayerMemory> sets;
  std::vector<std::function<void()>> calls;
  std::int64_t bytes = 0;
  do {
    sets.emplace_back(context, d, random);
    calls.push_back(operation.make(sets.back()));
    bytes += sets.back().bytes();
  } while (bytes < cold_bytes && sets.size() < most_sets && operation.floor.products == 0);
  std::size_t next = 0;
  const auto subject = [&] { calls[next++ % calls.size()](); };
  const bool on_cpu = context.state().on_cpu();
  const LayerFloor& floor = operation.floor;
  std::vector<measure::Rival> rivals = memory_floor.rivals(floor, bytes);
  const std::size_t of_memory = rivals.size();
  std::optional<ArithmeticFloor> arithmetic;
  if (floor.products > 0 || (floor.operations > 0 && on_cpu)) {
    arithmetic.emplace(context, d.rows, d.width, d.dtype, floor);
    rivals.push_back(arithmetic->rival());
  }
  if (floor.of_any_kind > 0 && on_cpu) rivals.push_back(rival_of_any_kind(context, floor));
  const std::size_t of_floors = rivals.size();
  rivals.push_back({operation.name, subject});
  const std::vector<measure::Timed> timed =
      measure::race(rivals, micro_rounds(context, options, models_min_time_s, 2));
  const measure::Timed* slowest = &measure::fastest(timed, 0, of_memory);
  bool by_memory = true;
  for (std::size_t i = of_memory; i < of_floors; ++i)
    if (timed[i].stats.median_ms >= slowest->stats.median_ms) {
      slowest = &timed[i];
      by_memory = false;
    }
  RaceRow row("models", operation.name, timed.back(), *slowest);
  row.variant = by_memory ? "memory" : "arithmetic";
  row.dtype = d.dtype;
  row.shape = shape;
  sink(row);
}

class ModelsBench final : public RaceBench {
 public:
  using RaceBench::RaceBench;
  [[nodiscard]] std::string_view name() const override { return "models"; }
  [[nodiscard]] std::string_view about() const override {
    return "the operations of a model other than linear layers, compared with their floors";
  }
  [[nodiscard]] std::string_view explanation() const override {
    return "The operations of a model other than linear layers, compared with the slower of two\n"
           "floors. Memory: reading and writing the same number of bytes past the caches, with the "
           "better of\n"
           "plain and streaming stores; for the embedding, rows at random places of a table. "
           "Arithmetic, if the\n"
           "result determines the multiplications: the same number of multiply-adds in registers; "
           "for attention,\n"
           "first a product with as many multiply-adds as its own, by the engine of mode standard; "
           "for dropout\n"
           "also as many additions as it has operations of any kind. On a device, memory is the "
           "device's own\n"
           "copy, and arithmetic is only that of products.";
  }
  [[nodiscard]] bool has_operations() const override { return true; }
  [[nodiscard]] Table table() const override {
    return Table(
        {"tokens x width x hidden", "operation", "ms", "floor", "floor ms", "share of floor"},
        {"operation", "floor"});
  }
  [[nodiscard]] std::size_t key_columns() const override { return 2; }
  std::vector<CasePlan> plan(Session& session) override {
    std::vector<CasePlan> plans = plan_shapes({small_decoder});
    for (CasePlan& plan : plans)
      plan.bytes = 4 * static_cast<double>(past_all_caches_bytes(session.context()));
    return plans;
  }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    micro_models(session.context(), of_case(i), rows_to(sink));
    return {};
  }

 private:
  [[nodiscard]] std::vector<std::string> cells(const RaceRow& r) const override {
    return {shape_text(r.shape),   r.subject,    time_text(r.subject_ms), r.rival,
            time_text(r.rival_ms), ratio_text(r)};
  }
};

}  // namespace

void micro_models(Context& context, const MicroOptions& options, const RaceSink& sink) {
  const std::vector<MicroShape> shapes =
      options.shapes.empty() ? std::vector<MicroShape>{small_decoder} : options.shapes;
  for (const MicroShape& shape : shapes) {
    const Dimensions d = dimensions_of(options, shape);
    // For tiny shapes, 64 sets of operands may be smaller than the caches: the number of sets is
    // limited.
    double largest = 0;
    std::vector<ModelOperation> operations = model_operations(context, d);
    std::erase_if(operations,
                  [&](const ModelOperation& operation) { return !options.takes(operation.name); });
    if (operations.empty()) continue;
    for (const ModelOperation& operation : operations)
      largest = std::max(largest, operation.floor.bytes());
    const std::int64_t cold_bytes =
        std::min(past_all_caches_bytes(context), static_cast<std::int64_t>(most_sets * largest));
    MemoryFloor memory(context, cold_bytes);
    const RandomValues random(context, d.dtype, options.seed);
    for (const ModelOperation& operation : operations)
      race_with_floor(context, options, d, shape, operation, random, memory, cold_bytes, sink);
  }
}

std::unique_ptr<MicroBench> make_micro_models(const MicroOptions& shared) {
  return std::make_unique<ModelsBench>(shared);
}

}  // namespace switchback::bench
