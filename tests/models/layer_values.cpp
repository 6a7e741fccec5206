// SPDX-License-Identifier: Apache-2.0
// A program for tests/python/test_models.py: computes one layer, optimizer or whole model on given
// values, so that another implementation can be compared with it.
//
//   models_layer_values IN OUT
//
// Both files have a line of JSON and, behind it, the arrays that it lists, as they lie in memory:
// {"op": NAME, "options": {...}, "arrays": [{"name", "dtype": "f32" or "s32", "rows", "cols"},
// ...]}. Options "dtype" (f32, bf16) is that of activations; their values are f32 in files.
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/unaligned.hpp"
#include "models/decoder.hpp"
#include "models/encoder.hpp"
#include "models/kernels.hpp"
#include "models/optimizer.hpp"

namespace {

using namespace switchback;
using namespace switchback::models;
using Json = nlohmann::ordered_json;

struct Array {
  std::string name;
  std::int64_t rows = 0, cols = 0;
  std::vector<float> floats = {};
  std::vector<std::int32_t> integers = {};
};

class Run {
 public:
  explicit Run(const std::string& file) {
    std::ifstream from(file, std::ios::binary);
    std::string line;
    if (!std::getline(from, line)) core::fail(Status::io_error, "{}: it cannot be read", file);
    header_ = Json::parse(line);
    for (const Json& of : header_["arrays"]) {
      Array a{.name = of["name"], .rows = of["rows"], .cols = of["cols"]};
      const auto count = static_cast<std::size_t>(a.rows * a.cols);
      const bool is_float = of["dtype"] == "f32";
      if (is_float)
        a.floats.resize(count);
      else
        a.integers.resize(count);
      from.read(is_float ? reinterpret_cast<char*>(a.floats.data())
                         : reinterpret_cast<char*>(a.integers.data()),
                static_cast<std::streamsize>(count * 4));
      if (!from) core::fail(Status::io_error, "{}: it ends within array {}", file, a.name);
      inputs_.emplace(a.name, std::move(a));
    }
  }

  [[nodiscard]] std::string op() const { return header_["op"]; }
  [[nodiscard]] std::int64_t integer(const char* option) const {
    return header_["options"].at(option);
  }
  [[nodiscard]] float real(const char* option) const { return header_["options"].at(option); }
  [[nodiscard]] DType dtype() const {
    return header_["options"].value("dtype", "f32") == "bf16" ? DType::bf16 : DType::f32;
  }

  Context context{{.device = "cpu"}};
  Memory memory;
  ContextState& state = context.state();
  [[nodiscard]] Surroundings around() { return {context, memory}; }

  [[nodiscard]] const Array& array(const std::string& name) const {
    const auto found = inputs_.find(name);
    if (found == inputs_.end())
      core::fail(Status::invalid_argument, "array {}: it is missing", name);
    return found->second;
  }
  Tensor input(const std::string& name, DType dtype) {
    const Array& a = array(name);
    Tensor t = memory.take(MemoryClass::workspace, dtype, a.rows, a.cols);
    for (std::int64_t i = 0; i < t.size(); ++i)
      core::store_float(t.any().data, dtype, i, a.floats[static_cast<std::size_t>(i)]);
    return t;
  }
  Tensor activations(const std::string& name) { return input(name, dtype()); }
  Tensor floats(const std::string& name) { return input(name, DType::f32); }
  [[nodiscard]] Tokens integers(const std::string& name) const { return array(name).integers; }
  Tensor taken(std::int64_t rows, std::int64_t cols) { return taken(rows, cols, dtype()); }
  Tensor taken(std::int64_t rows, std::int64_t cols, DType dtype) {
    return memory.take(MemoryClass::workspace, dtype, rows, cols);
  }

  void output(const std::string& name, const Tensor& t) {
    Array a{.name = name, .rows = t.rows(), .cols = t.cols()};
    for (std::int64_t i = 0; i < t.size(); ++i)
      a.floats.push_back(core::load_float(t.any().data, t.dtype(), i));
    outputs_.push_back(std::move(a));
  }
  void output(const std::string& name, double value) {
    outputs_.push_back({.name = name, .rows = 1, .cols = 1, .floats = {static_cast<float>(value)}});
  }
  // Values of parameters from arrays of their names.
  void set(Parameters& parameters) const {
    for (Parameter& p : parameters.all()) {
      const Array& a = array(p.name);
      core::require(a.rows == p.value.rows() && a.cols == p.value.cols(),
                    "array {}: it is {}x{}; the parameter is {}x{}", p.name, a.rows, a.cols,
                    p.value.rows(), p.value.cols());
      std::copy(a.floats.begin(), a.floats.end(), p.value.floats().begin());
    }
  }
  void output_gradients(const Parameters& parameters) {
    for (const Parameter& p : parameters.all())
      output("d " + p.name, p.gradient);
  }

  void write(const std::string& file) const {
    Json header = {{"arrays", Json::array()}};
    for (const Array& a : outputs_)
      header["arrays"].push_back(
          {{"name", a.name}, {"dtype", "f32"}, {"rows", a.rows}, {"cols", a.cols}});
    std::ofstream to(file, std::ios::binary | std::ios::trunc);
    to << header.dump() << '\n';
    for (const Array& a : outputs_)
      to.write(reinterpret_cast<const char*>(a.floats.data()),
               static_cast<std::streamsize>(a.floats.size() * 4));
    to.close();
    if (!to) core::fail(Status::io_error, "{}: it cannot be written", file);
  }

 private:
  Json header_;
  std::map<std::string, Array> inputs_;
  std::vector<Array> outputs_;
};

void rms_norm_values(Run& run) {
  const Tensor x = run.activations("x"), add = run.activations("add"), dy = run.activations("dy");
  const Tensor gain = run.floats("gain");
  const Tensor sum = run.taken(x.rows(), x.cols()), y = run.taken(x.rows(), x.cols());
  const Tensor dx = run.taken(x.rows(), x.cols());
  const Tensor rstd = run.taken(1, x.rows(), DType::f32);
  const Tensor dgain = run.taken(1, x.cols(), DType::f32);
  rms_norm(run.state, {.x = x.any(),
                       .add = add.any(),
                       .sum = sum.any(),
                       .gain = gain.floats(),
                       .y = y.any(),
                       .rstd = rstd.floats()});
  zero(run.state, dx.any());
  rms_norm_backward(run.state, {.s = sum.any(),
                                .gain = gain.floats(),
                                .rstd = rstd.floats(),
                                .dy = dy.any(),
                                .dx = dx.any(),
                                .dgain = dgain.floats()});
  run.output("y", y);
  run.output("dx", dx);
  run.output("dgain", dgain);
}

void layer_norm_values(Run& run) {
  const Tensor x = run.activations("x"), add = run.activations("add"), dy = run.activations("dy");
  const Tensor gain = run.floats("gain"), bias = run.floats("bias");
  const Tensor sum = run.taken(x.rows(), x.cols()), y = run.taken(x.rows(), x.cols());
  const Tensor dx = run.taken(x.rows(), x.cols());
  const Tensor mean = run.taken(1, x.rows(), DType::f32), rstd = run.taken(1, x.rows(), DType::f32);
  const Tensor dgain = run.taken(1, x.cols(), DType::f32);
  const Tensor dbias = run.taken(1, x.cols(), DType::f32);
  layer_norm(run.state, {.x = x.any(),
                         .add = add.any(),
                         .sum = sum.any(),
                         .gain = gain.floats(),
                         .bias = bias.floats(),
                         .y = y.any(),
                         .mean = mean.floats(),
                         .rstd = rstd.floats()});
  layer_norm_backward(run.state, {.s = sum.any(),
                                  .gain = gain.floats(),
                                  .mean = mean.floats(),
                                  .rstd = rstd.floats(),
                                  .dy = dy.any(),
                                  .dx = dx.any(),
                                  .dgain = dgain.floats(),
                                  .dbias = dbias.floats()});
  run.output("y", y);
  run.output("dx", dx);
  run.output("dgain", dgain);
  run.output("dbias", dbias);
}

void rope_values(Run& run) {
  const Tensor qkv = run.activations("qkv"), dy = run.activations("dy");
  const Tensor cosines = run.floats("cosines"), sines = run.floats("sines");
  const std::int64_t heads = run.integer("heads");
  const Rope args{heads, qkv.cols() / heads / 3, run.integer("length"), cosines.floats(),
                  sines.floats()};
  rope(run.state, args, qkv.any(), false);
  rope(run.state, args, dy.any(), true);
  run.output("y", qkv);
  run.output("dqkv", dy);
}

void attention_values(Run& run) {
  const Tensor qkv = run.activations("qkv"), dout = run.activations("dout");
  AttentionShape shape;
  shape.length = run.integer("length");
  shape.heads = run.integer("heads");
  shape.batch = qkv.rows() / shape.length;
  shape.head_dim = qkv.cols() / shape.heads / 3;
  const Tensor out = run.taken(qkv.rows(), shape.width());
  const Tensor dqkv = run.taken(qkv.rows(), qkv.cols());
  const Tensor lse = run.taken(1, shape.rows() * shape.heads, DType::f32);
  attention(run.state, shape, qkv.any(), out.any(), lse.floats());
  attention_backward(run.state, shape, qkv.any(), out.any(), lse.floats(), dout.any(), dqkv.any());
  run.output("out", out);
  run.output("dqkv", dqkv);
}

void swiglu_values(Run& run) {
  const Tensor gate_up = run.activations("gate_up"), dh = run.activations("dh");
  const Tensor h = run.taken(dh.rows(), dh.cols());
  const Tensor dgate_up = run.taken(gate_up.rows(), gate_up.cols());
  swiglu(run.state, gate_up.any(), h.any());
  swiglu_backward(run.state, gate_up.any(), dh.any(), dgate_up.any());
  run.output("h", h);
  run.output("dgate_up", dgate_up);
}

// Linear, GELU, Linear, both with biases.
void gelu_mlp_values(Run& run) {
  const Tensor x = run.floats("x"), dy = run.floats("dy");
  const std::int64_t hidden = run.array("up.weight").rows;
  Parameters parameters(run.state, run.memory, 1);
  Linear up(run.around(), parameters, {.name = "up", .in = x.cols(), .out = hidden, .bias = true});
  Linear down(run.around(), parameters,
              {.name = "down",
               .in = hidden,
               .out = x.cols(),
               .bias = true,
               .activation = Activation::gelu_erf});
  run.set(parameters);
  up.updated();
  down.updated();
  const Tensor h = run.taken(x.rows(), hidden), dh = run.taken(x.rows(), hidden);
  const Tensor y = run.taken(x.rows(), x.cols()), dx = run.taken(x.rows(), x.cols());
  up.forward_for_training(x.any(), h.any());
  down.forward_for_training(h.any(), y.any());
  down.backward({h.any(), {}}, {.g = dy.any(), .dx = dh.any()});
  up.backward({x.any(), {}}, {.g = dh.any(), .dx = dx.any()});
  run.output("y", y);
  run.output("dx", dx);
  run.output_gradients(parameters);
}

void embedding_values(Run& run) {
  const Tensor table = run.floats("table"), positions = run.floats("positions");
  const Tensor dy = run.activations("dy");
  const Tokens tokens = run.integers("tokens");
  const auto view = [](const Tensor& t) {
    return MatrixView<float>{t.floats().data(), t.rows(), t.cols()};
  };
  const Tensor y = run.taken(dy.rows(), dy.cols());
  const Tensor dtable = run.taken(table.rows(), table.cols(), DType::f32);
  const Tensor dpositions = run.taken(positions.rows(), positions.cols(), DType::f32);
  embed(run.state, tokens, view(table), view(positions), y.any());
  embed_backward(run.state, tokens, dy.any(), view(dtable), view(dpositions), false);
  run.output("y", y);
  run.output("dtable", dtable);
  run.output("dpositions", dpositions);
}

void cross_entropy_values(Run& run) {
  const Tensor logits = run.activations("logits");
  const double loss =
      cross_entropy(run.state, logits.any(), run.integers("targets"), logits.rows(), true);
  run.output("loss", loss);
  run.output("dlogits", logits);
}

// The values of a parameter after each step; gradients [steps · rows, cols]. Only what decays under
// AdamW is called a weight there.
void optimizer_values(Run& run) {
  const Array& gradients = run.array("gradients");
  const Array& value = run.array("value");
  Parameters parameters(run.state, run.memory, 1);
  Parameter& p =
      parameters.get({.name = "value", .rows = value.rows, .cols = value.cols, .decays = true});
  run.set(parameters);
  std::unique_ptr<Optimizer> optimizer;
  if (run.op() == "adamw")
    optimizer = make_adamw(parameters, run.memory,
                           {.learning_rate = run.real("learning_rate"),
                            .beta1 = run.real("beta1"),
                            .beta2 = run.real("beta2"),
                            .epsilon = run.real("epsilon"),
                            .weight_decay = run.real("weight_decay")});
  else
    optimizer = make_sgd(parameters, run.memory,
                         {.learning_rate = run.real("learning_rate"),
                          .momentum = run.real("momentum"),
                          .weight_decay = run.real("weight_decay"),
                          .nesterov = run.integer("nesterov") != 0});
  const auto size = static_cast<std::size_t>(p.value.size());
  const Tensor values = run.taken(gradients.rows, gradients.cols, DType::f32);
  for (std::size_t at = 0; at < gradients.floats.size(); at += size) {
    std::copy_n(gradients.floats.data() + at, size, p.gradient.floats().data());
    optimizer->step(run.state);
    std::copy_n(p.value.floats().data(), size, values.floats().data() + at);
  }
  run.output("values", values);
}

void decoder_values(Run& run) {
  const DecoderOptions options{.vocabulary = run.integer("vocabulary"),
                               .width = run.integer("width"),
                               .hidden = run.integer("hidden"),
                               .layers = run.integer("layers"),
                               .heads = run.integer("heads"),
                               .context = run.integer("length")};
  Parameters parameters(run.state, run.memory, 1);
  Decoder decoder(run.around(), parameters, options);
  run.set(parameters);
  decoder.weights_updated();
  const Tokens tokens = run.integers("tokens");
  const std::int64_t length = run.integer("length");
  const Decoder::Batch batch{tokens, static_cast<std::int64_t>(tokens.size()) / length, length};
  run.output("logits", decoder.infer(batch));
  decoder.forward(batch);
  run.output("loss", decoder.loss(run.integers("targets")));
  decoder.backward();
  run.output_gradients(parameters);
}

void stack_values(Run& run) {
  const StackOptions options{.vocabulary = run.integer("vocabulary"),
                             .width = run.integer("width"),
                             .hidden = run.integer("hidden"),
                             .layers = run.integer("layers"),
                             .heads = run.integer("heads"),
                             .length = run.integer("length")};
  Parameters parameters(run.state, run.memory, 1);
  Stage stage(run.around(), parameters, options, 0, options.parts(), 1);
  run.set(parameters);
  stage.weights_updated();
  const Tokens tokens = run.integers("indices");
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const Microbatch all{.count = rows / options.length,
                       .tokens = tokens,
                       .targets = run.integers("targets"),
                       .rows_of_batch = rows};
  static_cast<void>(stage.forward(all, Tensor(), false));
  static_cast<void>(stage.backward(all, Tensor(), false));
  run.output("loss", stage.take_loss());
  run.output_gradients(parameters);
}

const std::map<std::string, std::function<void(Run&)>> operations = {
    {"rms_norm", rms_norm_values},   {"layer_norm", layer_norm_values},
    {"rope", rope_values},           {"attention", attention_values},
    {"swiglu", swiglu_values},       {"gelu_mlp", gelu_mlp_values},
    {"embedding", embedding_values}, {"cross_entropy", cross_entropy_values},
    {"adamw", optimizer_values},     {"sgd", optimizer_values},
    {"decoder", decoder_values},     {"stack", stack_values}};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: models_layer_values IN OUT\n");
    return 2;
  }
  try {
    Run run(argv[1]);
    const auto found = operations.find(run.op());
    if (found == operations.end())
      core::fail(Status::invalid_argument, "op {}: there is none of this name", run.op());
    found->second(run);
    run.write(argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "models_layer_values: %s\n", error.what());
    return 1;
  }
  return 0;
}
