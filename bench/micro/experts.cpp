// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/benches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cli/table.hpp"
#include "bench/machine/copy_kernel.hpp"
#include "bench/workload/session.hpp"
#include "core/context_state.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/grouped.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

constexpr double experts_min_time_s = 2;

struct Mixture {
  std::int64_t experts = 0;
  MicroShape shape;  // `batch` is the number of tokens of all experts
};

// The default shape of an expert. It is measured with many tokens, and with so few tokens that
// reading the weights dominates.
constexpr MicroShape expert_shape = {1024, 4096, 1408};
constexpr std::int64_t few_tokens = 16;

std::vector<Mixture> mixtures_of(const MicroOptions& options) {
  if (options.shapes.empty())
    return {{8, expert_shape}, {64, {few_tokens, expert_shape.dim_in, expert_shape.dim_out}}};
  std::vector<Mixture> all;
  for (const MicroShape& shape : options.shapes)
    for (const std::int64_t experts : {8, 64})
      all.push_back({experts, shape});
  return all;
}

// Routes tokens unevenly: expert e gets a share of them in proportion to 1 / (e + 1). Returns the
// end of each expert's tokens.
std::vector<std::int32_t> uneven_ends(const Mixture& mixture) {
  std::vector<double> shares;
  double sum = 0;
  for (std::int64_t e = 0; e < mixture.experts; ++e)
    shares.push_back(sum += 1.0 / static_cast<double>(e + 1));
  std::vector<std::int32_t> ends;
  for (const double share : shares)
    ends.push_back(static_cast<std::int32_t>(
        std::lround(share / sum * static_cast<double>(mixture.shape.batch))));
  return ends;
}

// How many experts have at least one token.
std::int64_t used_by(const std::vector<std::int32_t>& ends) {
  std::int64_t used = 0;
  for (std::size_t e = 0; e < ends.size(); ++e)
    if (ends[e] > (e == 0 ? 0 : ends[e - 1])) ++used;
  return used;
}

// The codes and scales of a mixture of experts, and three copies of its weights: packed for all
// experts together, packed for each expert, and as plain memory to read. Each timed variant has its
// own weights, so that it does not find in a cache what another variant has just read.
class Experts {
 public:
  Experts(Context& context, const Mixture& mixture, std::uint64_t seed)
      : context_(context),
        shape_(mixture.shape),
        ends_(uneven_ends(mixture)),
        q_(context, DType::s8, shape_.batch, shape_.dim_in),
        y_(context, DType::f32, shape_.batch, shape_.dim_out),
        absmax_(context, DType::f32, 1, shape_.batch),
        absmax_w_(context, DType::f32, mixture.experts, shape_.dim_out),
        wide_y_(context, DType::f32, shape_.batch / mixture.experts,
                mixture.experts * shape_.dim_out),
        read_(context, DType::s8, used_by(ends_) * shape_.dim_out, shape_.dim_in) {
    const measure::Matrix x(context, DType::f32, shape_.batch, shape_.dim_in);
    measure::fill_normal(context, x.any(), seed);
    // Outputs are written once, so that their pages exist before they are timed.
    measure::fill_normal(context, y_.any(), seed + 1);
    measure::fill_normal(context, wide_y_.any(), seed + 1);
    quantize_rowwise(context, x.any(), q_.view<std::int8_t>(), absmax_.floats());
    const measure::Matrix w(context, DType::f32, shape_.dim_out, shape_.dim_in);
    measure::fill_normal(context, w.any(), seed + 2);
    const measure::Matrix codes(context, DType::s8, mixture.experts * shape_.dim_out,
                                shape_.dim_in);
    const auto one = codes.view<std::int8_t>();
    const auto size = static_cast<std::size_t>(shape_.dim_out * shape_.dim_in);
    quantize_rowwise(context, w.any(), {one.data, shape_.dim_out, shape_.dim_in},
                     absmax_w_.floats().first(static_cast<std::size_t>(shape_.dim_out)));
    // All experts have the same codes, but each expert's copy is in separate memory.
    for (std::int64_t e = 1; e < mixture.experts; ++e) {
      std::memcpy(one.data + static_cast<std::size_t>(e) * size, one.data, size);
      std::copy_n(absmax_w_.floats().data(), shape_.dim_out,
                  absmax_w_.floats().data() + e * shape_.dim_out);
    }
    std::memset(read_.data(), 1, read_.size_bytes());
    pack_weights(context, codes.view<const std::int8_t>(), mixture.experts, together_);
    if (wide_y_.any().rows > 0) pack_weight(context, codes.view<const std::int8_t>(), below_);
    for (std::int64_t e = 0; e < mixture.experts; ++e)
      if (rows_of(e) > 0) {
        alone_.emplace_back();
        pack_weight(context, {one.data, shape_.dim_out, shape_.dim_in}, alone_.back());
      }
  }

  [[nodiscard]] std::int64_t used() const { return static_cast<std::int64_t>(alone_.size()); }

  void grouped() {
    GroupedGemmArgs args;
    args.groups = Groups::packed(ends_);
    args.a = q_.view<const std::int8_t>();
    args.packed_b = &together_;
    args.d = y_.any();
    args.absmax_a = absmax_.floats();
    args.absmax_b = absmax_w_.floats();
    grouped_gemm(context_, args);
  }
  void loop() {
    std::size_t number = 0;
    for (std::size_t e = 0; e < ends_.size(); ++e)
      if (rows_of(static_cast<std::int64_t>(e)) > 0)
        product(e == 0 ? 0 : ends_[e - 1], rows_of(static_cast<std::int64_t>(e)), number++);
  }
  // A bound: multiplies all tokens by one expert's weight, which is the same number of operations.
  void one_product() { product(0, shape_.batch, 0); }
  // A bound: multiplies a share of the tokens by all experts' weights. This is the same number of
  // operations, and all weights are read.
  void one_product_of_all_weights() {
    const auto q = q_.view<const std::int8_t>();
    GemmArgs args;
    args.a = {q.data, wide_y_.any().rows, q.cols, q.stride};
    args.packed_b = &below_;
    args.d = wide_y_.any();
    args.absmax_a = absmax_.floats().first(static_cast<std::size_t>(args.a.rows));
    args.absmax_b = absmax_w_.floats();
    gemm(context_, args);
  }
  // A bound: only reads the weights of the experts that have tokens.
  void read() { read_lines(context_, read_.data(), static_cast<std::int64_t>(read_.size_bytes())); }

 private:
  [[nodiscard]] std::int64_t rows_of(std::int64_t expert) const {
    const auto at = static_cast<std::size_t>(expert);
    return ends_[at] - (at == 0 ? 0 : ends_[at - 1]);
  }

  void product(std::int64_t first, std::int64_t rows, std::size_t number) {
    const auto q = q_.view<const std::int8_t>();
    GemmArgs args;
    args.a = {q.data + first * q.stride, rows, q.cols, q.stride};
    args.packed_b = &alone_[number];
    args.d = y_.any();
    args.d.data = y_.floats().data() + first * shape_.dim_out;
    args.d.rows = rows;
    args.absmax_a =
        absmax_.floats().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
    args.absmax_b = absmax_w_.floats().first(static_cast<std::size_t>(shape_.dim_out));
    gemm(context_, args);
  }

  Context& context_;
  MicroShape shape_;
  std::vector<std::int32_t> ends_;
  measure::Matrix q_, y_, absmax_, absmax_w_, wide_y_, read_;
  PackedWeight together_;
  PackedWeight below_;               // the weights of all experts, stacked as one matrix
  std::vector<PackedWeight> alone_;  // the weight of each expert that has tokens
};

void race_of_mixture(Context& context, const MicroOptions& options, const Mixture& mixture,
                     const RaceSink& sink) {
  measure::Turns turns(options.cold_bytes);
  // Bytes that a call reads: about one for each code of all experts' weights.
  const double codes = static_cast<double>(mixture.experts * mixture.shape.dim_in) *
                       static_cast<double>(mixture.shape.dim_out);
  measure::TakenInTurns<std::unique_ptr<Experts>> experts(turns, codes, [&](std::size_t) {
    return std::make_unique<Experts>(context, mixture, options.seed);
  });
  std::vector<measure::Rival> rivals = {{"grouped", [&] { experts.next()->grouped(); }},
                                        {"loop of products", [&] { experts.next()->loop(); }}};
  const bool few = mixture.shape.batch <= mixture.experts;
  if (few)
    rivals.push_back({"reading the weights used", [&] { experts.next()->read(); }});
  else
    rivals.insert(rivals.end(), {{"one product", [&] { experts.next()->one_product(); }},
                                 {"one product of all weights",
                                  [&] { experts.next()->one_product_of_all_weights(); }},
                                 {"one product, then reading", [&] {
                                    Experts& next = *experts.next();
                                    next.one_product();
                                    next.read();
                                  }}});
  const std::vector<measure::Timed> timed =
      micro_race(context, options, turns, rivals, experts_min_time_s);
  for (std::size_t rival = 1; rival < timed.size(); ++rival) {
    RaceRow row("experts", "grouped", timed[0], timed[rival]);
    row.variant = fmt::format("{} of {} experts", experts.first()->used(), mixture.experts);
    row.dtype = DType::s8;
    row.shape = mixture.shape;
    sink(row);
  }
}

class ExpertsBench final : public RaceBench {
 public:
  using RaceBench::RaceBench;
  [[nodiscard]] std::string_view name() const override { return "experts"; }
  [[nodiscard]] std::string_view about() const override {
    return "the int8 product of a mixture of experts, compared with a loop and with its bounds";
  }
  [[nodiscard]] std::string_view explanation() const override {
    return "The int8 product of a mixture of experts, with unevenly routed tokens and packed\n"
           "weights. One call is compared with a loop of products. With many tokens it is also "
           "compared with one\n"
           "product of as many operations: all tokens with one expert's weight, the same followed "
           "by reading all\n"
           "weights, and a share of the tokens with all weights. With few tokens it is also "
           "compared with\n"
           "reading the weights that are used.";
  }
  [[nodiscard]] std::string refuses(const Context& context) const override {
    return context.state().on_cpu() ? "" : "it reads weights on the CPU";
  }
  [[nodiscard]] Table table() const override {
    return Table({"MxKxN", "experts", "ms", "rival", "rival ms", "ratio"}, {"experts", "rival"});
  }
  [[nodiscard]] std::size_t key_columns() const override { return 2; }
  std::vector<CasePlan> plan(Session& /*session*/) override {
    mixtures_ = mixtures_of(shared());
    std::vector<CasePlan> plans;
    for (const Mixture& mixture : mixtures_) {
      CasePlan plan;
      plan.id = fmt::format("{} experts {}", mixture.experts, shape_text(mixture.shape));
      plan.bytes = 3.0 * static_cast<double>(mixture.experts) *
                   static_cast<double>(mixture.shape.dim_in) *
                   static_cast<double>(mixture.shape.dim_out);
      plans.push_back(plan);
    }
    return plans;
  }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    race_of_mixture(session.context(), shared(), mixtures_[i], rows_to(sink));
    return {};
  }

 private:
  [[nodiscard]] std::vector<std::string> cells(const RaceRow& r) const override {
    return {shape_text(r.shape),   r.variant,    time_text(r.subject_ms), r.rival,
            time_text(r.rival_ms), ratio_text(r)};
  }

  std::vector<Mixture> mixtures_;
};

}  // namespace

void micro_experts(Context& context, const MicroOptions& options, const RaceSink& sink) {
  for (const Mixture& mixture : mixtures_of(options))
    race_of_mixture(context, options, mixture, sink);
}

std::unique_ptr<MicroBench> make_micro_experts(const MicroOptions& shared) {
  return std::make_unique<ExpertsBench>(shared);
}

}  // namespace switchback::bench
