// SPDX-License-Identifier: Apache-2.0
// Bench: `verify` of the matrix products, engine by engine.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "bench/verify/suite.hpp"
#include "core/context_state.hpp"
#include "gemm/floating/engine.hpp"
#include "measure/data.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

namespace {

constexpr std::string_view sum_rule = "equal: int32 sums are exact for any order";
constexpr std::string_view epilogue_rule =
    "equal: absmax_b · (absmax_a · (sum · c)) + bias, each step rounded to f32, then once to the "
    "output";
constexpr std::string_view blockwise_rule =
    "equal: p = fma(f32(sum) · absmax_b, absmax_a, p) of each block in order, d = fma(p, c, d)";

// Random codes, and codes that saturate any kernel which adds pairs in 16 bits.
enum class CodePattern { random, extreme };

void fill_pattern(Context& context, const measure::Matrix& codes, CodePattern pattern,
                  std::uint64_t seed) {
  measure::fill_codes(context, codes.view<std::int8_t>(), seed);
  if (pattern == CodePattern::random) return;
  for (std::int8_t& code : codes.values<std::int8_t>())
    code = code % 4 == 1 ? std::int8_t{-127} : std::int8_t{127};
}

// One way to finish a product.
struct Epilogue {
  DType output;
  bool global;
  bool bias;
};
constexpr Epilogue epilogues[] = {{DType::f32, false, true},
                                  {DType::f32, true, false},
                                  {DType::f16, false, false},
                                  {DType::bf16, true, true}};

class Int8Checks {
 public:
  Int8Checks(Suite& suite, const VerifyShape& shape, CodePattern pattern)
      : suite_(suite),
        shape_(shape),
        data_(pattern == CodePattern::random ? Data::normal : Data::outliers),
        rows_(suite.rows_for(shape.batch, shape.dim_out, shape.dim_in)),
        a_(suite.matrix(DType::s8, shape.batch, shape.dim_in)),
        b_(suite.matrix(DType::s8, shape.dim_out, shape.dim_in)),
        absmax_a_(suite.matrix(DType::f32, 1, shape.batch)),
        absmax_b_(suite.matrix(DType::f32, 1, shape.dim_out)),
        bias_(suite.matrix(DType::f32, 1, shape.dim_out)) {
    Context& context = suite.context();
    const std::uint64_t seed = suite.options().seed;
    fill_pattern(context, a_, pattern, seed + 2);
    fill_pattern(context, b_, pattern, seed + 3);
    measure::fill_normal(context, absmax_a_.any(), seed + 4);
    measure::fill_normal(context, absmax_b_.any(), seed + 5);
    measure::fill_normal(context, bias_.any(), seed + 6);
    // Scales are never negative; one is 0, and one says that its row was not finite.
    const std::span<float> scales_a = absmax_a_.floats();
    const std::span<float> scales_b = absmax_b_.floats();
    for (float& scale : scales_a)
      scale = std::abs(scale) + 0.01f;
    for (float& scale : scales_b)
      scale = std::abs(scale) + 0.01f;
    if (scales_a.size() > 2) {
      scales_a[1] = 0;
      scales_a[2] = std::numeric_limits<float>::quiet_NaN();
    }
    if (scales_b.size() > 2) scales_b[2] = std::numeric_limits<float>::infinity();
    sums_ = measure::integer_product(context, a(), b(), rows_);
  }

  /// Empty: the engine the library chooses.
  void with_engine(const std::string& engine) {
    sum(engine, nullptr);
    for (const Epilogue& epilogue : epilogues)
      dequantized(engine, epilogue, nullptr);
    PackedWeight packed;
    if (!suite_.attempt(check("pack_weight", "call", engine),
                        [&] { pack_weight(suite_.context(), b(), packed, engine); }))
      return;
    sum(engine, &packed);
    for (const Epilogue& epilogue : epilogues)
      dequantized(engine, epilogue, &packed);
  }

 private:
  [[nodiscard]] MatrixView<const std::int8_t> a() const { return a_.view<const std::int8_t>(); }
  [[nodiscard]] MatrixView<const std::int8_t> b() const { return b_.view<const std::int8_t>(); }
  [[nodiscard]] Check check(const char* op, std::string part, const std::string& engine) const {
    Check c = suite_.check(op, std::move(part), DType::s8, data_, shape_);
    if (!engine.empty()) c.engine = engine;
    return c;
  }

  void sum(const std::string& engine, const PackedWeight* packed) {
    const measure::Matrix d =
        suite_.filled(shape_.batch, shape_.dim_out, std::numeric_limits<std::int32_t>::min());
    GemmS8S8S32Args args;
    args.a = a();
    if (packed == nullptr) args.b = b();
    args.packed_b = packed;
    args.d = d.view<std::int32_t>();
    args.engine = engine;
    const Check c = check("gemm_s8s8s32", packed != nullptr ? "packed" : "plain", engine);
    if (!suite_.attempt(c, [&] { gemm_s8s8s32(suite_.context(), args); })) return;
    const std::vector<std::int32_t> want(sums_.begin(), sums_.end());
    suite_.exact(c, args.d, rows_, as_matrix(want, shape_.dim_out), sum_rule);
  }

  void dequantized(const std::string& engine, const Epilogue& epilogue,
                   const PackedWeight* packed) {
    const measure::Matrix d = suite_.unwritten(epilogue.output, shape_.batch, shape_.dim_out);
    GemmArgs args;
    args.a = a();
    if (packed == nullptr) args.b = b();
    args.packed_b = packed;
    args.d = d.any();
    args.absmax_a = absmax_a_.floats();
    args.absmax_b = absmax_b_.floats();
    if (epilogue.global) args.absmax_b = args.absmax_b.first(1);
    if (epilogue.bias) args.bias = bias_.any();
    args.engine = engine;
    const Check c = check(
        "gemm",
        fmt::format("{} scales{}{}", epilogue.global ? "row x global" : "row x row",
                    epilogue.bias ? ", bias" : "", packed != nullptr ? ", packed" : ", plain"),
        engine);
    if (!suite_.attempt(c, [&] { gemm(suite_.context(), args); })) return;
    const std::vector<float> values = oracle::epilogue(
        sums_, rows_, args.absmax_a, args.absmax_b,
        epilogue.bias ? std::span<const float>(bias_.floats()) : std::span<const float>(),
        shape_.dim_out, epilogue.output);
    const measure::Matrix want = in_dtype(values, shape_.dim_out, epilogue.output);
    suite_.exact(c, d.any(), rows_, want.any(), epilogue_rule);
  }

  Suite& suite_;
  VerifyShape shape_;
  Data data_;
  Rows rows_;
  measure::Matrix a_, b_, absmax_a_, absmax_b_, bias_;
  std::vector<std::int64_t> sums_;
};

// dW from codes that have a scale for each column of a block of rows.
class BlockwiseChecks {
 public:
  BlockwiseChecks(Suite& suite, const VerifyShape& shape)
      : suite_(suite),
        shape_(shape),
        rows_(suite.rows_for(shape.dim_out, shape.dim_in, shape.batch)),
        g_(codes_of(shape.dim_out, 15)),
        x_(codes_of(shape.dim_in, 16)) {}

  void with_engine(const std::string& engine) {
    for (const DType output : {DType::f32, DType::f16, DType::bf16})
      run(engine, output, false);
    run(engine, DType::f32, true);
  }

 private:
  [[nodiscard]] oracle::Codes codes_of(std::int64_t cols, std::uint64_t seed) const {
    const measure::Matrix m = suite_.matrix(DType::f32, shape_.batch, cols);
    fill(suite_.context(), m.any(), Data::outliers, suite_.options().seed + seed);
    oracle::Codes codes = oracle::quantize_blocks(m.any(), verified_block_rows);
    // A column of zeros, and one that was not finite.
    if (cols > 2) codes.absmax[1] = 0;
    if (cols > 2 && seed % 2 == 0) codes.absmax[2] = std::numeric_limits<float>::quiet_NaN();
    return codes;
  }

  void run(const std::string& engine, DType output, bool accumulate) {
    const measure::Matrix g = suite_.copied(g_.rows, g_.cols, g_.q);
    const measure::Matrix x = suite_.copied(x_.rows, x_.cols, x_.q);
    const auto scales_of = [&](const oracle::Codes& codes) {
      return suite_.copied(1, static_cast<std::int64_t>(codes.absmax.size()), codes.absmax);
    };
    const measure::Matrix absmax_g = scales_of(g_);
    const measure::Matrix absmax_x = scales_of(x_);
    const measure::Matrix d = suite_.unwritten(output, g_.rows, x_.rows);
    std::vector<float> before;
    if (accumulate) {
      measure::fill_normal(suite_.context(), d.any(), suite_.options().seed + 17);
      before = rows_as_floats(d.any(), rows_);
    }
    BlockwiseGemmArgs args;
    args.a = g.view<const std::int8_t>();
    args.b = x.view<const std::int8_t>();
    args.d = d.any();
    args.absmax_a = absmax_g.floats();
    args.absmax_b = absmax_x.floats();
    args.block_rows = verified_block_rows;
    args.accumulate = accumulate;
    args.engine = engine;
    args.m = shape_.batch;
    Check c = suite_.check("gemm_blockwise", accumulate ? "dw, accumulated" : "dw", DType::s8,
                           Data::outliers, shape_);
    if (!engine.empty()) c.engine = engine;
    if (!suite_.attempt(c, [&] { gemm_blockwise(suite_.context(), args); })) return;
    const measure::Matrix want =
        in_dtype(oracle::blockwise_product(g_, x_, verified_block_rows, rows_, before, output),
                 x_.rows, output);
    suite_.exact(c, d.any(), rows_, want.any(), blockwise_rule);
  }

  Suite& suite_;
  VerifyShape shape_;
  Rows rows_;
  oracle::Codes g_, x_;
};

// The three products of a layer.
struct Pass {
  const char* name;
  bool transpose_a;
  bool transpose_b;
};
constexpr Pass passes[] = {{"forward", false, true}, {"dx", false, false}, {"dw", true, false}};

class StandardChecks {
 public:
  StandardChecks(Suite& suite, const VerifyShape& shape, DType dtype, Data data, const Pass& pass)
      : suite_(suite), shape_(shape), dtype_(dtype), data_(data), pass_(pass) {
    // X[batch, dim_in], W[dim_out, dim_in], G[batch, dim_out] in the places the pass has for them.
    const std::int64_t m = shape.batch;
    const std::int64_t k = shape.dim_in;
    const std::int64_t n = shape.dim_out;
    const bool forward = pass.transpose_b;
    a_ = suite.matrix(dtype, m, forward ? k : n);
    b_ = suite.matrix(dtype, pass.transpose_a ? m : n, k);
    rows_count_ = pass.transpose_a ? n : m;
    cols_ = forward ? n : k;
    Context& context = suite.context();
    const std::uint64_t seed = suite.options().seed;
    fill(context, a_.any(), data, seed + 7);
    // Only one side is poisoned: both would leave nothing finite.
    fill(context, b_.any(), data == Data::nonfinite ? Data::normal : data, seed + 8);
    bias_ = suite.matrix(DType::f32, 1, cols_);
    measure::fill_normal(context, bias_.any(), seed + 9);
    const std::int64_t inner = pass.transpose_a || forward ? b_.cols() : n;
    rows_ = suite.rows_for(rows_count_, cols_, pass.transpose_a ? m : inner);
    product_ =
        measure::product(context, a_.any(), pass.transpose_a, b_.any(), pass.transpose_b, rows_);
  }

  void with_engine(const std::string& engine) {
    const bool forward = pass_.transpose_b;
    run(engine, dtype_, forward, false);
    if (dtype_ != DType::f32) run(engine, DType::f32, false, false);
    if (pass_.transpose_a) run(engine, DType::f32, false, true);
  }

 private:
  void run(const std::string& engine, DType output, bool bias, bool accumulate) {
    const measure::Matrix d = suite_.unwritten(output, rows_count_, cols_);
    if (accumulate) measure::fill_normal(suite_.context(), d.any(), suite_.options().seed + 10);
    std::vector<float> before;
    if (accumulate) before = rows_as_floats(d.any(), rows_);
    StandardGemmArgs args;
    args.a = a_.any();
    args.b = b_.any();
    args.d = d.any();
    args.transpose_a = pass_.transpose_a;
    args.transpose_b = pass_.transpose_b;
    args.accumulate = accumulate;
    if (bias) args.bias = bias_.any();
    args.engine = engine;
    Check c = suite_.check(
        "gemm_standard",
        fmt::format("{}{}{}", pass_.name, bias ? ", bias" : "", accumulate ? ", accumulated" : ""),
        dtype_, data_, shape_);
    if (!engine.empty()) c.engine = engine;
    if (!suite_.attempt(c, [&] { gemm_standard(suite_.context(), args); })) return;
    const auto kind =
        data_ == Data::normal ? oracle::SumBound::random_data : oracle::SumBound::any_data;
    const double factor_error =
        floating::factor_error(suite_.context().state().device.kind, engine);
    const Reference reference = oracle::reference_of(
        product_, kind, output,
        bias ? std::span<const float>(bias_.floats()) : std::span<const float>(), before,
        factor_error);
    suite_.bounded(c, d.any(), rows_, reference, oracle::sum_rule(kind, factor_error));
  }

  Suite& suite_;
  VerifyShape shape_;
  DType dtype_;
  Data data_;
  Pass pass_;
  measure::Matrix a_, b_, bias_;
  std::int64_t rows_count_ = 0;
  std::int64_t cols_ = 0;
  Rows rows_;
  measure::Product product_;
};

}  // namespace

void verify_gemm_int8(Suite& suite, const VerifyShape& shape) {
  std::vector<std::string> engines = suite.engines(gemm_engines(suite.context()));
  if (suite.options().engine.empty()) engines.emplace_back();
  for (const CodePattern pattern : {CodePattern::random, CodePattern::extreme}) {
    Int8Checks checks(suite, shape, pattern);
    for (const std::string& engine : engines)
      checks.with_engine(engine);
  }
}

void verify_gemm_blockwise(Suite& suite, const VerifyShape& shape) {
  std::vector<std::string> engines = suite.engines(gemm_blockwise_engines(suite.context()));
  if (suite.options().engine.empty()) engines.emplace_back();
  if (engines.empty()) return;
  BlockwiseChecks checks(suite, shape);
  for (const std::string& engine : engines)
    checks.with_engine(engine);
}

void verify_gemm_standard(Suite& suite, const VerifyShape& shape) {
  std::vector<std::string> engines = suite.engines(gemm_standard_engines(suite.context()));
  if (suite.options().engine.empty()) engines.emplace_back();
  if (engines.empty()) return;
  for (const DType dtype : suite.options().dtypes)
    for (const Data data : {Data::normal, Data::outliers, Data::zeros, Data::nonfinite}) {
      if (!suite.wants(data, shape)) continue;
      for (const Pass& pass : passes) {
        StandardChecks checks(suite, shape, dtype, data, pass);
        for (const std::string& engine : engines)
          checks.with_engine(engine);
      }
    }
}

}  // namespace switchback::bench
