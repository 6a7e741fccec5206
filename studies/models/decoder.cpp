// SPDX-License-Identifier: Apache-2.0
#include "studies/models/decoder.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.hpp"
#include "studies/models/memory.hpp"

namespace switchback::models {

namespace {

constexpr float initial_deviation = 0.02f;

void check_options(const DecoderOptions& o) {
  core::require(o.vocabulary >= 1, "decoder: vocabulary {}; it must be at least 1", o.vocabulary);
  core::require(o.heads >= 1, "decoder: heads {}; it must be at least 1", o.heads);
  core::require(o.width >= 1 && o.width % (2 * o.heads) == 0,
                "decoder: width {} with {} heads; it must be a multiple of twice the heads",
                o.width, o.heads);
  core::require(o.hidden >= 1, "decoder: hidden {}; it must be at least 1", o.hidden);
  core::require(o.layers >= 1, "decoder: layers {}; it must be at least 1", o.layers);
  core::require(o.context >= 1, "decoder: context {}; it must be at least 1", o.context);
  core::require(o.dtype == DType::f32 || o.dtype == DType::bf16,
                "decoder: dtype {}; it must be f32 or bf16", dtype_name(o.dtype));
}

std::string in_layer(std::int64_t layer, std::string_view name) {
  return "layers." + std::to_string(layer) + "." + std::string(name);
}

}  // namespace

std::int64_t DecoderOptions::parameters() const {
  return 2 * vocabulary * width + layers * (4 * width * width + 3 * width * hidden + 2 * width) +
         width;
}

/// A block of the decoder: adds attention(norm(x)) to its input x, then swiglu(norm(x)) to the sum.
/// The last addition is not made here but together with the next norm, which reads
/// `Stream::pending`.
class Decoder::Block {
 public:
  Block(const Surroundings& around, Parameters& parameters, const DecoderOptions& o,
        std::int64_t layer)
      : options_(o),
        gain1_(parameters.get(
            {.name = in_layer(layer, "norm1"), .rows = 1, .cols = o.width, .constant = 1.0f})),
        gain2_(parameters.get(
            {.name = in_layer(layer, "norm2"), .rows = 1, .cols = o.width, .constant = 1.0f})),
        qkv_(around, parameters, spec(layer, "qkv", o.width, 3 * o.width, false)),
        out_(around, parameters, spec(layer, "out", o.width, o.width, true)),
        gate_up_(around, parameters, spec(layer, "gate_up", o.width, 2 * o.hidden, false)),
        down_(around, parameters, spec(layer, "down", o.hidden, o.width, true)) {}

  struct Stream {
    ConstAnyMatrix x;
    Tensor pending;  ///< output of a branch, still to be added to x
    Tensor owned;    ///< memory of x, unless a block keeps x for its backward
  };

  void forward(const Surroundings& around, Stream& stream, const AttentionShape& shape,
               const Rope& rotary, bool keeps) {
    ContextState& state = around.state();
    const DType dtype = options_.dtype;
    const std::int64_t rows = shape.rows();
    const MemoryClass c = keeps ? MemoryClass::saved : MemoryClass::workspace;
    const auto take = [&](std::int64_t cols) { return around.take(c, dtype, rows, cols); };
    Saved s;
    s.rstd1 = around.take(c, DType::f32, 1, rows);
    s.normed1 = take(options_.width);
    add_and_norm(around, stream, gain1_, s.normed1, s.rstd1, keeps ? &s.x : nullptr);

    s.qkv = take(3 * options_.width);
    run(around, "linear qkv: forward", qkv_, s.normed1, s.qkv, keeps);
    if (!keeps) s.normed1.reset();
    {
      const Profile::Range range(around.profile, "rope");
      rope(state, rotary, s.qkv.any(), false);
    }
    s.attended = take(options_.width);
    s.logsumexp = around.take(c, DType::f32, 1, rows * shape.heads);
    {
      const Profile::Range range(around.profile, "attention: forward");
      attention(state, shape, s.qkv.any(), s.attended.any(), s.logsumexp.floats(),
                around.profile != nullptr ? &around.profile->attention : nullptr);
    }
    if (!keeps) s.qkv.reset();
    stream.pending = around.take(MemoryClass::workspace, dtype, rows, options_.width);
    run(around, "linear out: forward", out_, s.attended, stream.pending, keeps);
    if (!keeps) s.attended.reset();

    s.rstd2 = around.take(c, DType::f32, 1, rows);
    s.normed2 = take(options_.width);
    add_and_norm(around, stream, gain2_, s.normed2, s.rstd2, keeps ? &s.middle : nullptr);
    s.gate_up = take(2 * options_.hidden);
    run(around, "linear gate_up: forward", gate_up_, s.normed2, s.gate_up, keeps);
    if (!keeps) s.normed2.reset();
    s.hidden = take(options_.hidden);
    {
      const Profile::Range range(around.profile, "swiglu: forward");
      swiglu(state, s.gate_up.any(), s.hidden.any());
    }
    if (!keeps) s.gate_up.reset();
    stream.pending = around.take(MemoryClass::workspace, dtype, rows, options_.width);
    run(around, "linear down: forward", down_, s.hidden, stream.pending, keeps);
    if (keeps) saved_ = std::move(s);
  }

  /// Backward of the block. dx contains the gradient of the block's output, and then that of its
  /// input.
  void backward(const Surroundings& around, Tensor& dx, const AttentionShape& shape,
                const Rope& rotary, bool accumulate) {
    ContextState& state = around.state();
    Saved& s = saved_;
    const std::int64_t rows = shape.rows();
    const auto take = [&](std::int64_t cols) {
      return around.take(MemoryClass::workspace, options_.dtype, rows, cols);
    };
    Tensor dgate_up = take(2 * options_.hidden);
    {
      Tensor dhidden = take(options_.hidden);
      back(around, "linear down: backward", down_, s.hidden, dx, dhidden, accumulate);
      s.hidden.reset();
      const Profile::Range range(around.profile, "swiglu: backward");
      swiglu_backward(state, s.gate_up.any(), dhidden.any(), dgate_up.any());
      s.gate_up.reset();
    }
    Tensor dnormed = take(options_.width);
    back(around, "linear gate_up: backward", gate_up_, s.normed2, dgate_up, dnormed, accumulate);
    dgate_up.reset();
    s.normed2.reset();
    norm_back(around, s.middle, gain2_, s.rstd2, dnormed, dx, accumulate);
    s.middle.reset();
    s.rstd2.reset();

    Tensor dattended = std::move(dnormed);
    back(around, "linear out: backward", out_, s.attended, dx, dattended, accumulate);
    Tensor dqkv = take(3 * options_.width);
    {
      const Profile::Range range(around.profile, "attention: backward");
      attention_backward(state, shape, s.qkv.any(), s.attended.any(), s.logsumexp.floats(),
                         dattended.any(), dqkv.any());
    }
    s.attended.reset();
    s.qkv.reset();
    s.logsumexp.reset();
    {
      const Profile::Range range(around.profile, "rope");
      rope(state, rotary, dqkv.any(), true);
    }
    dnormed = std::move(dattended);
    back(around, "linear qkv: backward", qkv_, s.normed1, dqkv, dnormed, accumulate);
    s.normed1.reset();
    norm_back(around, s.x, gain1_, s.rstd1, dnormed, dx, accumulate);
    s.x.reset();
    s.rstd1.reset();
  }

  /// Adds `pending` to the stream's x, and writes the norm of the sum to `normed`. The new x is
  /// moved to `keep` if that is not null.
  static void add_and_norm(const Surroundings& around, Stream& stream, const Parameter& gain,
                           const Tensor& normed, const Tensor& rstd, Tensor* keep) {
    const Profile::Range range(around.profile, "rmsnorm: forward");
    RmsNorm args{
        .x = stream.x, .gain = gain.value.floats(), .y = normed.any(), .rstd = rstd.floats()};
    Tensor x;
    if (stream.pending.empty()) {
      x = std::move(stream.owned);
    } else {
      x = around.take(keep != nullptr ? MemoryClass::saved : MemoryClass::workspace, stream.x.dtype,
                      stream.x.rows, stream.x.cols);
      args.add = stream.pending.any();
      args.sum = x.any();
    }
    rms_norm(around.state(), args);
    stream.pending.reset();
    stream.x = x.any();
    if (keep != nullptr)
      *keep = std::move(x);
    else
      stream.owned = std::move(x);
  }
  static void norm_back(const Surroundings& around, const Tensor& s, Parameter& gain,
                        const Tensor& rstd, const Tensor& dy, const Tensor& dx, bool accumulate) {
    const Profile::Range range(around.profile, "rmsnorm: backward");
    rms_norm_backward(around.state(), {.s = s.any(),
                                       .gain = gain.value.floats(),
                                       .rstd = rstd.floats(),
                                       .dy = dy.any(),
                                       .dx = dx.any(),
                                       .dgain = gain.gradient.floats(),
                                       .accumulate = accumulate});
  }

  template <class F>
  void for_each_linear(F&& f) {
    for (Linear* linear : {&qkv_, &out_, &gate_up_, &down_})
      f(*linear);
  }

 private:
  // The data of a block's forward that is kept for its backward.
  struct Saved {
    Tensor x, rstd1, normed1, qkv, attended, logsumexp, middle, rstd2, normed2, gate_up, hidden;
  };

  [[nodiscard]] LinearSpec spec(std::int64_t layer, std::string_view name, std::int64_t in,
                                std::int64_t out, bool ends_branch) const {
    LinearSpec s;
    s.name = in_layer(layer, name);
    s.in = in;
    s.out = out;
    // As in GPT-2, the initial weights that end a branch are smaller, so that the variance of the
    // residual stream does not grow with the number of branches added to it.
    s.deviation = ends_branch
                      ? initial_deviation / std::sqrt(2.0f * static_cast<float>(options_.layers))
                      : initial_deviation;
    s.mode = options_.mode;
    s.dw = options_.dw;
    s.rotation = options_.rotation;
    s.dtype = options_.dtype;
    return s;
  }

  static void run(const Surroundings& around, std::string_view name, Linear& linear,
                  const Tensor& x, const Tensor& y, bool keeps) {
    const Profile::Range range(around.profile, name);
    if (keeps)
      linear.forward_for_training(x.any(), y.any());
    else
      linear.forward(x.any(), y.any());
  }
  static void back(const Surroundings& around, std::string_view name, Linear& linear,
                   const Tensor& x, const Tensor& g, const Tensor& dx, bool accumulate) {
    const Profile::Range range(around.profile, name);
    linear.backward({x.any(), {}}, {.g = g.any(), .dx = dx.any(), .accumulate = accumulate});
  }

  const DecoderOptions& options_;
  Parameter& gain1_;
  Parameter& gain2_;
  Linear qkv_, out_, gate_up_, down_;
  Saved saved_;
};

Decoder::Decoder(const Surroundings& around, Parameters& parameters, const DecoderOptions& o)
    : around_(around),
      options_(o),
      embedding_((check_options(o), parameters.get({.name = "embedding",
                                                    .rows = o.vocabulary,
                                                    .cols = o.width,
                                                    .deviation = initial_deviation}))),
      final_gain_(
          parameters.get({.name = "final_norm", .rows = 1, .cols = o.width, .constant = 1.0f})) {
  for (std::int64_t layer = 0; layer < o.layers; ++layer)
    blocks_.push_back(std::make_unique<Block>(around_, parameters, options_, layer));
  LinearSpec head;
  head.name = "head";
  head.in = o.width;
  head.out = o.vocabulary;
  head.deviation = initial_deviation;
  head.mode = o.mode;
  head.dw = o.dw;
  head.rotation = o.rotation;
  head.dtype = o.dtype;
  head_ = std::make_unique<Linear>(around_, parameters, head);

  const std::int64_t half_dim = o.width / o.heads / 2;
  cosines_ = around_.take(MemoryClass::param, DType::f32, o.context, half_dim);
  sines_ = around_.take(MemoryClass::param, DType::f32, o.context, half_dim);
  std::vector<float> cosines(static_cast<std::size_t>(cosines_.size())), sines(cosines.size());
  for (std::int64_t t = 0; t < o.context; ++t)
    for (std::int64_t i = 0; i < half_dim; ++i) {
      const double angle = static_cast<double>(t) *
                           std::pow(static_cast<double>(o.rope_theta),
                                    -static_cast<double>(i) / static_cast<double>(half_dim));
      const auto at = static_cast<std::size_t>(t * half_dim + i);
      cosines[at] = static_cast<float>(std::cos(angle));
      sines[at] = static_cast<float>(std::sin(angle));
    }
  write(around_.state(), cosines.data(), cosines_);
  write(around_.state(), sines.data(), sines_);
}

Decoder::~Decoder() = default;

void Decoder::check(const Batch& b) const {
  core::require(b.batch >= 1, "decoder: batch {}; it must be at least 1", b.batch);
  core::require(b.length >= 1 && b.length <= options_.context,
                "decoder: sequences of {} tokens; they must have from 1 to {}", b.length,
                options_.context);
  check_tokens("tokens", b.tokens, b.batch * b.length, options_.vocabulary);
}

AttentionShape Decoder::attention_shape() const {
  return {batch_, length_, options_.heads, options_.width / options_.heads};
}
Rope Decoder::rotary() const {
  return {options_.heads, options_.width / options_.heads, length_, cosines_.floats(),
          sines_.floats()};
}

Tensor Decoder::run(const Batch& b, bool keeps) {
  check(b);
  batch_ = b.batch;
  length_ = b.length;
  const std::int64_t rows = b.batch * b.length;
  const MemoryClass c = keeps ? MemoryClass::saved : MemoryClass::workspace;
  Block::Stream stream;
  stream.owned = around_.take(c, options_.dtype, rows, options_.width);
  stream.x = stream.owned.any();
  {
    const Profile::Range range(around_.profile, "embedding: forward");
    embed(around_.state(), on_device(around_.state(), around_.memory, b.tokens, tokens_on_device_),
          {embedding_.value.floats().data(), options_.vocabulary, options_.width}, {},
          stream.owned.any());
  }
  for (const auto& block : blocks_)
    block->forward(around_, stream, attention_shape(), rotary(), keeps);
  Tensor rstd = around_.take(c, DType::f32, 1, rows);
  Tensor normed = around_.take(c, options_.dtype, rows, options_.width);
  Block::add_and_norm(around_, stream, final_gain_, normed, rstd, keeps ? &last_ : nullptr);
  stream.owned.reset();
  Tensor logits = around_.take(c, options_.dtype, rows, options_.vocabulary);
  const Profile::Range range(around_.profile, "linear head: forward");
  if (keeps) {
    head_->forward_for_training(normed.any(), logits.any());
    last_rstd_ = std::move(rstd);
    normed_ = std::move(normed);
  } else {
    head_->forward(normed.any(), logits.any());
  }
  return logits;
}

Tensor Decoder::infer(const Batch& batch) {
  core::require(!has_forward_,
                "decoder: infer must not be called between a forward and its backward");
  return run(batch, false);
}

void Decoder::forward(const Batch& batch) {
  tokens_.assign(batch.tokens.begin(), batch.tokens.end());
  logits_ = Tensor();
  logits_ = run(batch, true);
  has_forward_ = true;
  has_loss_ = false;
}

double Decoder::loss(Tokens targets) {
  if (!has_forward_ || has_loss_)
    core::fail(Status::invalid_state, "decoder: loss must be called after a forward");
  check_tokens("targets", targets, logits_.rows(), options_.vocabulary);
  const Profile::Range range(around_.profile, "cross entropy");
  Tensor holder;
  const double value = cross_entropy(around_.state(), logits_.any(),
                                     on_device(around_.state(), around_.memory, targets, holder),
                                     logits_.rows(), true);
  has_loss_ = true;
  return value;
}

double Decoder::evaluate(const Batch& batch, Tokens targets) {
  const Tensor logits = infer(batch);
  check_tokens("targets", targets, logits.rows(), options_.vocabulary);
  Tensor holder;
  return cross_entropy(around_.state(), logits.any(),
                       on_device(around_.state(), around_.memory, targets, holder), logits.rows(),
                       false);
}

void Decoder::backward(bool accumulate) {
  if (!has_loss_) core::fail(Status::invalid_state, "decoder: backward must be called after loss");
  has_forward_ = has_loss_ = false;
  const std::int64_t rows = batch_ * length_;
  Tensor dnormed = around_.take(MemoryClass::workspace, options_.dtype, rows, options_.width);
  {
    const Profile::Range range(around_.profile, "linear head: backward");
    head_->backward({normed_.any(), {}},
                    {.g = logits_.any(), .dx = dnormed.any(), .accumulate = accumulate});
  }
  logits_.reset();
  normed_.reset();
  Tensor dx = around_.take(MemoryClass::workspace, options_.dtype, rows, options_.width);
  zero(around_.state(), dx.any());
  Block::norm_back(around_, last_, final_gain_, last_rstd_, dnormed, dx, accumulate);
  last_.reset();
  last_rstd_.reset();
  dnormed.reset();
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block)
    (*block)->backward(around_, dx, attention_shape(), rotary(), accumulate);
  const Profile::Range range(around_.profile, "embedding: backward");
  const Tokens tokens =
      around_.state().on_cpu() ? Tokens(tokens_) : tokens_on_device_.values<std::int32_t>();
  embed_backward(around_.state(), tokens, dx.any(), embedding_.gradient_view(), {}, accumulate);
}

void Decoder::weights_updated() {
  for (const auto& block : blocks_)
    block->for_each_linear([](Linear& linear) { linear.updated(); });
  head_->updated();
}

void Decoder::prepare_for_eval() {
  for (const auto& block : blocks_)
    block->for_each_linear([](Linear& linear) { linear.prepare_for_eval(); });
  head_->prepare_for_eval();
}

std::size_t Decoder::int8_weight_bytes() const {
  std::size_t bytes = head_->cached_weight_bytes();
  for (const auto& block : blocks_)
    block->for_each_linear([&](const Linear& linear) { bytes += linear.cached_weight_bytes(); });
  return bytes;
}

}  // namespace switchback::models
