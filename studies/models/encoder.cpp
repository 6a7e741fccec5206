// SPDX-License-Identifier: Apache-2.0
#include "studies/models/encoder.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "core/check.hpp"
#include "core/modes.hpp"
#include "studies/models/memory.hpp"

namespace switchback::models {

namespace {

constexpr float encoder_deviation = 0.02f;

Parameter& vector_of(Parameters& parameters, const std::string& name, std::int64_t width,
                     float constant) {
  return parameters.get({.name = name, .rows = 1, .cols = width, .constant = constant});
}

/// A LayerNorm: its parameters, and its forward and backward.
struct Norm {
  Norm(Parameters& parameters, const std::string& name, std::int64_t width)
      : gain(vector_of(parameters, name + ".gain", width, 1.0f)),
        bias(vector_of(parameters, name + ".bias", width, 0.0f)) {}

  struct Saved {
    Tensor sum, mean, rstd;
    void reset() {
      sum.reset();
      mean.reset();
      rstd.reset();
    }
  };

  // Arguments for y = norm(x), where `s` receives the mean and rstd of the rows.
  [[nodiscard]] LayerNorm arguments(const Tensor& x, const Saved& s, const Tensor& y) const {
    return {.x = x.any(),
            .gain = gain.value.floats(),
            .bias = bias.value.floats(),
            .y = y.any(),
            .mean = s.mean.floats(),
            .rstd = s.rstd.floats()};
  }
  // Returns norm(x + more); `more` may be empty. If `saved` is not null, it receives what backward
  // needs.
  Tensor forward(const Surroundings& around, Tensor& x, const Tensor& more, Saved* saved) const {
    const MemoryClass c = saved != nullptr ? MemoryClass::saved : MemoryClass::workspace;
    const std::int64_t rows = x.rows();
    Saved s;
    s.mean = around.take(c, DType::f32, 1, rows);
    s.rstd = around.take(c, DType::f32, 1, rows);
    Tensor y = around.take(c, DType::f32, rows, x.cols());
    LayerNorm args = arguments(x, s, y);
    if (more.empty()) {
      layer_norm(around.state(), args);
      s.sum = std::move(x);
    } else {
      s.sum = around.take(c, DType::f32, rows, x.cols());
      args.add = more.any();
      args.sum = s.sum.any();
      layer_norm(around.state(), args);
    }
    if (saved != nullptr) *saved = std::move(s);
    return y;
  }
  // Computes the result of forward again, from the sum and the statistics that forward kept.
  [[nodiscard]] Tensor again(const Surroundings& around, const Saved& saved) const {
    Tensor y = around.take(MemoryClass::saved, DType::f32, saved.sum.rows(), saved.sum.cols());
    layer_norm(around.state(), arguments(saved.sum, saved, y));
    return y;
  }
  // Writes the gradient of the norm's input, the sum, to dx, which may be the same tensor as dy.
  void backward(const Surroundings& around, Saved& saved, const Tensor& dy, const Tensor& dx,
                bool accumulate) const {
    layer_norm_backward(around.state(), {.s = saved.sum.any(),
                                         .gain = gain.value.floats(),
                                         .mean = saved.mean.floats(),
                                         .rstd = saved.rstd.floats(),
                                         .dy = dy.any(),
                                         .dx = dx.any(),
                                         .dgain = gain.gradient.floats(),
                                         .dbias = bias.gradient.floats(),
                                         .accumulate = accumulate});
    saved.reset();
  }
  Parameter& gain;
  Parameter& bias;
};

Tensor copy_of(const Surroundings& around, const Tensor& x) {
  Tensor y = around.take(MemoryClass::workspace, x.dtype(), x.rows(), x.cols());
  zero(around.state(), y.any());
  add(around.state(), x.any(), y.any());
  return y;
}

}  // namespace

std::string_view recompute_name(Recompute recompute) noexcept {
  return recompute == Recompute::full ? "full" : "selective";
}

std::int64_t StackOptions::parameters() const {
  const std::int64_t block =
      4 * width * width + 4 * width + 2 * width * hidden + hidden + width + 4 * width;
  return 2 * vocabulary * width + length * width + layers * block + 2 * width;
}

StackOptions::Cost StackOptions::cost(std::int64_t part) const {
  const bool is_block = part >= 2 && part < 2 + layers;
  if (!is_block && part + 1 < parts()) return {};
  const double rate =
      // Cost factor of forward and dX; dW stays in floating point.
      traits_of(mode).is_int8() ? 1.0 / 3 : 1;
  const auto d = static_cast<double>(width);
  const double down = is_block ? d * static_cast<double>(hidden) : 0;
  const double linears = is_block ? 4 * d * d + 2 * down : d * static_cast<double>(vocabulary);
  // Attention is two products with half of the keys on average, and its gradients are five
  // products.
  const double attention = is_block ? d * static_cast<double>(length) : 0;
  Cost c;
  c.forward = linears * rate + attention;
  c.backward = linears * (1 + rate) + 2.5 * attention;
  c.again = c.forward - (recompute == Recompute::selective ? down * rate : 0);
  return c;
}

struct Stage::Block {
  Block(const Surroundings& around, Parameters& parameters, const StackOptions& o,
        std::int64_t layer_, std::int64_t microbatches)
      : layer(layer_),
        qkv(around, parameters, spec(o, "qkv", o.width, 3 * o.width, Activation::none)),
        out(around, parameters, spec(o, "out", o.width, o.width, Activation::none)),
        up(around, parameters, spec(o, "up", o.width, o.hidden, Activation::none)),
        down(around, parameters, spec(o, "down", o.hidden, o.width, Activation::gelu_erf)),
        norm1(parameters, name("norm1"), o.width),
        norm2(parameters, name("norm2"), o.width),
        saved(static_cast<std::size_t>(microbatches)) {}

  [[nodiscard]] std::string name(const char* of) const {
    return "blocks." + std::to_string(layer) + "." + of;
  }
  [[nodiscard]] LinearSpec spec(const StackOptions& o, const char* of, std::int64_t in,
                                std::int64_t outputs, Activation activation) const {
    return {.name = name(of),
            .in = in,
            .out = outputs,
            .bias = true,
            .deviation = encoder_deviation,
            .mode = o.mode,
            .dtype = DType::f32,
            .activation = activation};
  }

  // What a block keeps of one microbatch for its backward.
  struct Saved {
    KeptTensor x, attended, normed, hidden;
    Tensor qkv, logsumexp;
    Norm::Saved sum1, sum2;
  };

  // y = x · Wᵀ + b for training. If `codes` is not null, x is also stored there as int8 codes.
  static void run(const Surroundings& around, Linear& linear, const Tensor& x, const Tensor& y,
                  KeptTensor* codes) {
    if (codes != nullptr)
      linear.forward_keeping_codes(around, x.any(), y.any(), *codes);
    else
      linear.forward_for_training(x.any(), y.any());
  }

  // Runs a block up to the input of GELU, and returns that. `normed` receives the output of the
  // first norm, which is later added to the MLP's output. If `s` is not null, it receives all data
  // that is kept up to there.
  Tensor hidden_of(const Surroundings& around, const StackOptions& o, const Microbatch& m, Tensor x,
                   const Dropout& drop1, Saved* s, Tensor& normed) {
    ContextState& state = around.state();
    const bool keeps = s != nullptr;
    const MemoryClass c = keeps ? MemoryClass::saved : MemoryClass::workspace;
    const std::int64_t rows = x.rows();
    const auto take = [&](MemoryClass of, std::int64_t cols) {
      return around.take(of, DType::f32, rows, cols);
    };
    const bool codes = keeps && o.keeps_codes;
    Tensor projected = take(c, 3 * o.width);
    run(around, qkv, x, projected, codes ? &s->x : nullptr);
    Tensor attended = take(codes ? MemoryClass::workspace : c, o.width);
    Tensor logsumexp = around.take(c, DType::f32, 1, rows * o.heads);
    attention(state, shape(o, m), projected.any(), attended.any(), logsumexp.floats());
    if (keeps) {
      s->qkv = std::move(projected);
      s->logsumexp = std::move(logsumexp);
    }
    projected.reset();
    Tensor branch = take(MemoryClass::workspace, o.width);
    run(around, out, attended, branch, codes ? &s->attended : nullptr);
    if (keeps && !codes) s->attended.x = std::move(attended);
    attended.reset();
    dropout(state, drop1, branch.any());
    normed = norm1.forward(around, x, branch, keeps ? &s->sum1 : nullptr);
    if (keeps && !codes) s->x.x = std::move(x);
    x.reset();
    branch.reset();
    Tensor hidden = take(codes ? MemoryClass::workspace : c, o.hidden);
    run(around, up, normed, hidden, codes ? &s->normed : nullptr);
    return hidden;
  }
  static void keep_hidden(const Surroundings& around, const StackOptions& o, Tensor hidden,
                          Saved& s) {
    if (o.keeps_codes)
      keep_codes(around, hidden.any(), s.hidden);
    else
      s.hidden.x = std::move(hidden);
  }

  Tensor forward(const Surroundings& around, const StackOptions& o, const Microbatch& m, Tensor x,
                 const Dropout& drop1, const Dropout& drop2, Keeps keeps) {
    const bool keeps_all = keeps == Keeps::everything;
    Saved s;
    Tensor normed;
    Tensor hidden = hidden_of(around, o, m, std::move(x), drop1, keeps_all ? &s : nullptr, normed);
    Tensor branch = around.take(MemoryClass::workspace, DType::f32, hidden.rows(), o.width);
    down.forward_for_training(hidden.any(), branch.any());
    if (keeps_all) keep_hidden(around, o, std::move(hidden), s);
    hidden.reset();
    dropout(around.state(), drop2, branch.any());
    Tensor y = norm2.forward(around, normed, branch, keeps == Keeps::nothing ? nullptr : &s.sum2);
    if (keeps_all && !o.keeps_codes) s.normed.x = std::move(normed);
    if (keeps != Keeps::nothing) saved[static_cast<std::size_t>(m.index)] = std::move(s);
    return y;
  }
  // Computes the data again that `forward` of this block did not keep, because it kept only the
  // input of its last norm. `x` is the block's input.
  void recompute(const Surroundings& around, const StackOptions& o, const Microbatch& m, Tensor x,
                 const Dropout& drop1) {
    Saved& kept = saved[static_cast<std::size_t>(m.index)];
    Saved s;
    Tensor normed;
    keep_hidden(around, o, hidden_of(around, o, m, std::move(x), drop1, &s, normed), s);
    if (!o.keeps_codes) s.normed.x = std::move(normed);
    s.sum2 = std::move(kept.sum2);
    kept = std::move(s);
  }
  // Computes the block's output again, from the kept input of its last norm.
  Tensor output(const Surroundings& around, const Microbatch& m) const {
    return norm2.again(around, saved[static_cast<std::size_t>(m.index)].sum2);
  }

  Tensor backward(const Surroundings& around, const StackOptions& o, const Microbatch& m, Tensor dy,
                  const Dropout& drop1, const Dropout& drop2, bool accumulate) {
    ContextState& state = around.state();
    Saved& s = saved[static_cast<std::size_t>(m.index)];
    const std::int64_t rows = dy.rows();
    const auto take = [&](std::int64_t cols) {
      return around.take(MemoryClass::workspace, DType::f32, rows, cols);
    };
    Tensor dnormed = take(o.width);
    norm2.backward(around, s.sum2, dy, dnormed, accumulate);
    dy.reset();
    Tensor dbranch = copy_of(around, dnormed);
    dropout(state, drop2, dbranch.any());
    Tensor dhidden = take(o.hidden);
    {
      Tensor hidden = s.hidden.codes.empty() ? std::move(s.hidden.x)
                                             : dequantized(around, s.hidden, DType::f32);
      s.hidden.reset();
      down.backward({hidden.any(), {}},
                    {.g = dbranch.any(), .dx = dhidden.any(), .accumulate = accumulate});
    }
    back(around, up, s.normed, dhidden, dbranch, accumulate);
    dhidden.reset();
    add(state, dbranch.any(), dnormed.any());
    Tensor dx = take(o.width);
    norm1.backward(around, s.sum1, dnormed, dx, accumulate);
    dnormed.reset();
    dbranch = copy_of(around, dx);
    dropout(state, drop1, dbranch.any());

    Tensor dattended = take(o.width);
    out.backward(s.attended.input(),
                 {.g = dbranch.any(), .dx = dattended.any(), .accumulate = accumulate});
    Tensor attended = s.attended.codes.empty() ? std::move(s.attended.x)
                                               : dequantized(around, s.attended, DType::f32);
    s.attended.reset();
    Tensor dqkv = take(3 * o.width);
    attention_backward(state, shape(o, m), s.qkv.any(), attended.any(), s.logsumexp.floats(),
                       dattended.any(), dqkv.any());
    attended.reset();
    dattended.reset();
    s.qkv.reset();
    s.logsumexp.reset();
    back(around, qkv, s.x, dqkv, dbranch, accumulate);
    add(state, dbranch.any(), dx.any());
    return dx;
  }

  static void back(const Surroundings& /*around*/, Linear& linear, KeptTensor& x, const Tensor& g,
                   const Tensor& dx, bool accumulate) {
    linear.backward(x.input(), {.g = g.any(), .dx = dx.any(), .accumulate = accumulate});
    x.reset();
  }
  static AttentionShape shape(const StackOptions& o, const Microbatch& m) {
    return {m.count, o.length, o.heads, o.width / o.heads};
  }

  std::int64_t layer;
  Linear qkv, out, up, down;
  Norm norm1, norm2;
  std::vector<Saved> saved;
};

/// The parts of a stage before and after its blocks; members are null for parts of other stages.
struct Stage::Ends {
  bool embeds = false, drops = false;
  Parameter* tokens = nullptr;
  Parameter* positions = nullptr;
  std::unique_ptr<Norm> norm;
  std::unique_ptr<Linear> head;
  struct Saved {
    Norm::Saved norm;
    KeptTensor normed;
    Tensor dlogits;
  };
  std::vector<Saved> saved;
};

Stage::Stage(const Surroundings& around, Parameters& parameters, const StackOptions& o,
             std::int64_t first_part, std::int64_t parts, std::int64_t microbatches)
    : around_(around),
      options_(o),
      ends_(std::make_unique<Ends>()),
      inputs_(static_cast<std::size_t>(microbatches)),
      checkpointed_(static_cast<std::size_t>(microbatches)),
      has_loss_(static_cast<std::size_t>(microbatches)) {
  core::require(o.heads >= 1 && o.width >= 1 && o.width % o.heads == 0,
                "stack: width {} with {} heads; it must be a multiple of the heads", o.width,
                o.heads);
  ends_->saved.resize(static_cast<std::size_t>(microbatches));
  for (std::int64_t part = first_part; part < first_part + parts; ++part) {
    if (part == 0) {
      ends_->embeds = true;
      ends_->tokens = &parameters.get({.name = "tokens",
                                       .rows = o.vocabulary,
                                       .cols = o.width,
                                       .deviation = encoder_deviation});
      ends_->positions = &parameters.get(
          {.name = "positions", .rows = o.length, .cols = o.width, .deviation = encoder_deviation});
    } else if (part == 1) {
      ends_->drops = true;
    } else if (part < 2 + o.layers) {
      blocks_.push_back(std::make_unique<Block>(around_, parameters, o, part - 2, microbatches));
    } else if (part == 2 + o.layers) {
      ends_->norm = std::make_unique<Norm>(parameters, "final_norm", o.width);
    } else {
      ends_->head = std::make_unique<Linear>(around_, parameters,
                                             LinearSpec{.name = "head",
                                                        .in = o.width,
                                                        .out = o.vocabulary,
                                                        .deviation = encoder_deviation,
                                                        .mode = o.mode});
      losses_ = around_.take(MemoryClass::workspace, DType::f32, 2, microbatches);  // of f64
    }
  }
}

Stage::~Stage() = default;

Dropout Stage::dropout_at(const Microbatch& m, std::int64_t site) const {
  // Dropout numbers elements by their position in the whole batch, rounded down to a multiple
  // of 64. So results do not depend on the division into microbatches if each begins at such a
  // multiple.
  const std::int64_t first = m.first * options_.length * options_.width;
  return {.p = options_.dropout,
          .key = options_.key,
          .stream = static_cast<std::uint64_t>(m.step) << 16 | static_cast<std::uint64_t>(site),
          .first = first / 64 * 64};
}

Tensor Stage::entry(const Microbatch& m, Tensor x, MemoryClass c) {
  ContextState& state = around_.state();
  const StackOptions& o = options_;
  if (ends_->embeds) {
    x = around_.take(c, DType::f32, m.count * o.length, o.width);
    Tensor holder;
    embed(state, on_device(state, around_.memory, m.tokens, holder), ends_->tokens->value_view(),
          ends_->positions->value_view(), x.any());
  }
  if (ends_->drops) dropout(state, dropout_at(m, 0), x.any());
  return x;
}

Tensor Stage::blocks(const Microbatch& m, Tensor x, Keeps keeps) {
  x = entry(m, std::move(x),
            keeps == Keeps::everything ? MemoryClass::saved : MemoryClass::workspace);
  for (const auto& block : blocks_)
    x = block->forward(around_, options_, m, std::move(x), dropout_at(m, 2 * block->layer + 1),
                       dropout_at(m, 2 * block->layer + 2), keeps);
  return x;
}

Tensor Stage::end(const Microbatch& m, Tensor x, bool keeps) {
  ContextState& state = around_.state();
  const StackOptions& o = options_;
  const MemoryClass c = keeps ? MemoryClass::saved : MemoryClass::workspace;
  Ends& ends = *ends_;
  Ends::Saved s;
  if (ends.norm != nullptr) x = ends.norm->forward(around_, x, Tensor(), keeps ? &s.norm : nullptr);
  if (ends.head != nullptr) {
    Tensor logits = around_.take(c, DType::f32, x.rows(), o.vocabulary);
    Block::run(around_, *ends.head, x, logits, keeps && o.keeps_codes ? &s.normed : nullptr);
    if (keeps && !o.keeps_codes) s.normed.x = std::move(x);
    x.reset();
    Tensor holder;
    queue_cross_entropy(state, logits.any(), on_device(state, around_.memory, m.targets, holder),
                        m.rows_of_batch, keeps, losses_.values<double>().data() + m.index);
    has_loss_[static_cast<std::size_t>(m.index)] = 1;
    if (keeps) s.dlogits = std::move(logits);
  }
  if (keeps) ends.saved[static_cast<std::size_t>(m.index)] = std::move(s);
  return x;
}

bool Stage::keeps_sums() const {
  return options_.recompute == Recompute::selective && ends_->head == nullptr;
}

Tensor Stage::forward(const Microbatch& m, Tensor x, bool checkpoint) {
  const auto i = static_cast<std::size_t>(m.index);
  checkpointed_[i] = static_cast<char>(checkpoint);
  if (!checkpoint) return end(m, blocks(m, std::move(x), Keeps::everything), true);
  inputs_[i] = std::move(x);
  inputs_[i].set_class(MemoryClass::saved);
  if (ends_->head != nullptr) return {};
  Tensor input = inputs_[i].empty() ? Tensor() : copy_of(around_, inputs_[i]);
  Tensor y = blocks(m, std::move(input), keeps_sums() ? Keeps::sums : Keeps::nothing);
  return end(m, std::move(y), false);
}

Tensor Stage::input_of_block(const Microbatch& m, std::size_t i) {
  if (i > 0) return blocks_[i - 1]->output(around_, m);
  return entry(m, std::move(inputs_[static_cast<std::size_t>(m.index)]), MemoryClass::saved);
}

Tensor Stage::backward(const Microbatch& m, Tensor dy, bool accumulate) {
  ContextState& state = around_.state();
  const StackOptions& o = options_;
  const auto i = static_cast<std::size_t>(m.index);
  Ends& ends = *ends_;
  const bool by_block = checkpointed_[i] != 0 && keeps_sums();
  if (checkpointed_[i] != 0 && !by_block)
    end(m, blocks(m, std::move(inputs_[i]), Keeps::everything), true);
  else if (by_block && ends.norm != nullptr)
    end(m, input_of_block(m, blocks_.size()), true);
  Ends::Saved& s = ends.saved[i];
  if (ends.head != nullptr) {
    dy = around_.take(MemoryClass::workspace, DType::f32, s.dlogits.rows(), o.width);
    Block::back(around_, *ends.head, s.normed, s.dlogits, dy, accumulate);
    s.dlogits.reset();
  }
  if (ends.norm != nullptr) {
    Tensor dx = around_.take(MemoryClass::workspace, DType::f32, dy.rows(), o.width);
    ends.norm->backward(around_, s.norm, dy, dx, accumulate);
    dy = std::move(dx);
  }
  for (std::size_t b = blocks_.size(); b-- > 0;) {
    Block& block = *blocks_[b];
    const Dropout drop1 = dropout_at(m, 2 * block.layer + 1);
    if (by_block) block.recompute(around_, o, m, input_of_block(m, b), drop1);
    dy = block.backward(around_, o, m, std::move(dy), drop1, dropout_at(m, 2 * block.layer + 2),
                        accumulate);
  }
  inputs_[i].reset();
  if (ends.drops) dropout(state, dropout_at(m, 0), dy.any());
  if (!ends.embeds) return dy;
  Tensor holder;
  embed_backward(state, on_device(state, around_.memory, m.tokens, holder), dy.any(),
                 ends.tokens->gradient_view(), ends.positions->gradient_view(), accumulate);
  return {};
}

void Stage::drop() {
  for (const auto& block : blocks_)
    for (Block::Saved& saved : block->saved)
      saved = Block::Saved();
  for (Ends::Saved& saved : ends_->saved)
    saved = Ends::Saved();
  for (Tensor& input : inputs_)
    input.reset();
}

double Stage::take_loss() {
  double sum = 0;
  if (losses_.empty()) return sum;
  std::vector<double> losses(has_loss_.size());
  read(around_.state(), losses_, losses.data());
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (std::exchange(has_loss_[i], 0) != 0) sum += losses[i];
  return sum;
}

void Stage::weights_updated() {
  for (const auto& block : blocks_)
    for (Linear* linear : {&block->qkv, &block->out, &block->up, &block->down})
      linear->updated();
  if (ends_->head != nullptr) ends_->head->updated();
}

std::size_t Stage::int8_weight_bytes() const {
  std::size_t bytes = ends_->head != nullptr ? ends_->head->cached_weight_bytes() : 0;
  for (const auto& block : blocks_)
    for (const Linear* linear : {&block->qkv, &block->out, &block->up, &block->down})
      bytes += linear->cached_weight_bytes();
  return bytes;
}

}  // namespace switchback::models
