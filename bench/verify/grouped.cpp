// SPDX-License-Identifier: Apache-2.0
// Bench: `verify` of the grouped operations: each row must have the result that its group gives
// when the group is computed alone.
#include <cmath>
#include <iterator>

#include "bench/verify/suite.hpp"
#include "core/matrix_rows.hpp"
#include "measure/data.hpp"
#include "switchback/gemm.hpp"
#include "switchback/grouped.hpp"

namespace switchback::bench {

namespace {

constexpr std::int64_t group_count = 4;

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

class GroupedChecks {
 public:
  GroupedChecks(Suite& suite, const VerifyShape& shape, DType dtype, Data data)
      : suite_(suite),
        shape_(shape),
        dtype_(dtype),
        data_(data),
        x_(suite.matrix(dtype, shape.batch, shape.dim_in)),
        g_(suite.matrix(dtype, shape.batch, shape.dim_out)),
        w_(suite.matrix(dtype, group_count * shape.dim_out, shape.dim_in)),
        bias_(suite.matrix(DType::f32, group_count, shape.dim_out)),
        ends_(suite.matrix(DType::s32, 1, group_count)) {
    Context& context = suite.context();
    const std::uint64_t seed = suite.options().seed;
    fill(context, x_.any(), data, seed + 18);
    fill(context, g_.any(), data, seed + 19);
    fill(context, w_.any(), data == Data::nonfinite ? Data::normal : data, seed + 20);
    measure::fill_normal(context, bias_.any(), seed + 21);
    // The ends of the groups' rows. The second group has no rows.
    const auto m = static_cast<std::int32_t>(shape.batch);
    const std::int32_t ends[group_count] = {m / 3, m / 3, m / 3 + m / 2, m};
    std::copy(std::begin(ends), std::end(ends), ends_.values<std::int32_t>().begin());
  }

  void all() {
    quantize();
    for (const std::string& engine : names(gemm_standard_engines(suite_.context()))) {
      standard("forward", x_, w_, true, engine);
      standard("dx", g_, w_, false, engine);
      weight_gradient(engine);
    }
    combined();
  }

 private:
  // The engines to check. An empty name is the library's choice; with normal data each engine is
  // also checked by name.
  [[nodiscard]] std::vector<std::string> names(const std::vector<EngineInfo>& infos) const {
    std::vector<std::string> engines;
    if (data_ == Data::normal) engines = suite_.engines(infos);
    if (suite_.options().engine.empty()) engines.emplace_back();
    return engines;
  }
  [[nodiscard]] Check check(const char* op, const char* part,
                            const std::string& engine = {}) const {
    Check c = suite_.check(op, part, dtype_, data_, shape_);
    if (!engine.empty()) c.engine = engine;
    return c;
  }
  [[nodiscard]] Groups groups() const { return Groups::packed(ends_.values<std::int32_t>()); }
  [[nodiscard]] std::int64_t begin_of(std::int64_t group) const {
    return group == 0 ? 0 : ends_.values<std::int32_t>()[static_cast<std::size_t>(group - 1)];
  }
  [[nodiscard]] std::int64_t rows_of(std::int64_t group) const {
    return ends_.values<std::int32_t>()[static_cast<std::size_t>(group)] - begin_of(group);
  }
  // Those of the given rows that belong to the group.
  [[nodiscard]] Rows within(const Rows& rows, std::int64_t group) const {
    Rows found;
    for (const std::int64_t row : rows)
      if (row >= begin_of(group) && row < begin_of(group) + rows_of(group)) found.push_back(row);
    return found;
  }

  // Checks grouped_quantize_rowwise with slots that read the rows of x in reverse order.
  void quantize() {
    const measure::Matrix q = suite_.filled(x_.rows(), x_.cols(), std::int8_t{-128});
    const measure::Matrix absmax = suite_.filled(1, x_.rows(), unwritten_float);
    const measure::Matrix index = suite_.matrix(DType::s32, 1, x_.rows());
    Rows order;
    for (std::int64_t r = 0; r < x_.rows(); ++r) {
      order.push_back(x_.rows() - 1 - r);
      index.values<std::int32_t>()[static_cast<std::size_t>(r)] =
          static_cast<std::int32_t>(order.back());
    }
    const char* op = "grouped_quantize_rowwise";
    if (!suite_.attempt(check(op, "call"), [&] {
          grouped_quantize_rowwise(
              suite_.context(), groups(),
              {.data = x_.any(), .index = index.values<std::int32_t>(), .column_stride = 0},
              q.view<std::int8_t>(), absmax.floats());
        }))
      return;
    const measure::Matrix read = in_dtype(rows_as_floats(x_.any(), order), x_.cols(), dtype_);
    const oracle::Codes want = oracle::quantize(read.any(), Group::row);
    constexpr std::string_view rule = "equal: quantize_rowwise of the row that each slot reads";
    suite_.exact(check(op, "codes"), q.any(), want.view(), rule);
    suite_.exact(check(op, "absmax"), absmax.any(), as_row(want.absmax), rule);
  }

  [[nodiscard]] oracle::SumBound sum_bound() const {
    return data_ == Data::normal ? oracle::SumBound::random_data : oracle::SumBound::any_data;
  }
  // Appends the expected result of one group's product to that of all groups.
  void add(Reference& all, const measure::Product& product) const {
    const Reference one = oracle::reference_of(product, sum_bound(), dtype_, {}, {});
    all.cols = one.cols;
    append(all.values, one.values);
    append(all.bounds, one.bounds);
  }
  // Runs a grouped floating point product and compares it with the expected result.
  void run_standard(const char* part, const std::string& engine, GroupedStandardGemmArgs args,
                    const Rows& rows, const Reference& reference) {
    const measure::Matrix d = suite_.unwritten(dtype_, args.d.rows, args.d.cols);
    args.groups = groups();
    args.d = d.any();
    args.engine = engine;
    const Check c = check("grouped_gemm_standard", part, engine);
    if (!suite_.attempt(c, [&] { grouped_gemm_standard(suite_.context(), args); })) return;
    suite_.bounded(c, d.any(), rows, reference, oracle::sum_rule(sum_bound(), 0));
  }

  // Checks the product of each group's rows with the group's own matrix.
  void standard(const char* part, const measure::Matrix& a, const measure::Matrix& b,
                bool transpose_b, const std::string& engine) {
    const std::int64_t cols = transpose_b ? shape_.dim_out : shape_.dim_in;
    const Rows rows = suite_.rows_for(shape_.batch, cols, a.cols());
    Reference reference{cols, {}, {}};
    for (std::int64_t group = 0; group < group_count; ++group)
      add(reference,
          measure::product(suite_.context(), a.any(), false,
                           core::rows_of(b.any(), group * shape_.dim_out, shape_.dim_out),
                           transpose_b, within(rows, group)));
    GroupedStandardGemmArgs args;
    args.a = a.any();
    args.b = b.any();
    args.transpose_b = transpose_b;
    args.d = {nullptr, dtype_, shape_.batch, cols, cols};
    run_standard(part, engine, args, rows, reference);
  }

  void weight_gradient(const std::string& engine) {
    const Rows own = suite_.rows_for(shape_.dim_out, shape_.dim_in, shape_.batch);
    Rows rows;
    Reference reference{shape_.dim_in, {}, {}};
    for (std::int64_t group = 0; group < group_count; ++group) {
      for (const std::int64_t row : own)
        rows.push_back(group * shape_.dim_out + row);
      const auto slots = [&](const measure::Matrix& m) {
        return core::rows_of(ConstAnyMatrix(m.any()), begin_of(group), rows_of(group));
      };
      add(reference, measure::product(suite_.context(), slots(g_), true, slots(x_), false, own));
    }
    GroupedStandardGemmArgs args;
    args.a = g_.any();
    args.b = x_.any();
    args.transpose_a = true;
    args.d = {nullptr, dtype_, group_count * shape_.dim_out, shape_.dim_in, shape_.dim_in};
    run_standard("dw", engine, args, rows, reference);
  }

  // Checks combine() with two slots for each row: the row itself and the row before it, each with a
  // weight. The first row has only one slot.
  void combined() {
    constexpr std::int64_t slots_of_row = 2;
    const measure::Matrix slots = suite_.matrix(DType::s32, x_.rows(), slots_of_row);
    const measure::Matrix weights = suite_.matrix(DType::f32, x_.rows(), slots_of_row);
    const measure::Matrix out = suite_.unwritten(dtype_, x_.rows(), x_.cols());
    measure::fill_normal(suite_.context(), weights.any(), suite_.options().seed + 22);
    std::vector<float> values;
    for (std::int64_t r = 0; r < x_.rows(); ++r) {
      const auto first = static_cast<std::size_t>(r * slots_of_row);
      slots.values<std::int32_t>()[first] = static_cast<std::int32_t>(r);
      slots.values<std::int32_t>()[first + 1] = static_cast<std::int32_t>(r - 1);  // -1: nothing
      for (std::int64_t c = 0; c < x_.cols(); ++c) {
        const auto weighed = [&](std::int64_t row, std::size_t slot) {
          return static_cast<float>(static_cast<double>(weights.floats()[slot]) *
                                    element(x_.any(), row, c));
        };
        float sum = weighed(r, first);
        if (r > 0)
          sum = static_cast<float>(static_cast<double>(sum) +
                                   static_cast<double>(weighed(r - 1, first + 1)));
        values.push_back(sum);
      }
    }
    const Check c = check("combine", "two slots");
    if (!suite_.attempt(c, [&] {
          combine(suite_.context(), {.y = x_.any(),
                                     .slots = slots.view<const std::int32_t>(),
                                     .weights = weights.view<const float>(),
                                     .out = out.any()});
        }))
      return;
    const measure::Matrix want = in_dtype(oracle::rounded(values, dtype_), x_.cols(), dtype_);
    suite_.exact(c, out.any(), want.any(),
                 "equal: products and sums in the order of the slots, each rounded to f32");
  }

  Suite& suite_;
  VerifyShape shape_;
  DType dtype_;
  Data data_;
  measure::Matrix x_, g_, w_, bias_, ends_;
};

}  // namespace

void verify_grouped(Suite& suite, const VerifyShape& shape) {
  for (const DType dtype : suite.options().dtypes)
    for (const Data data : {Data::normal, Data::outliers, Data::nonfinite})
      if (suite.wants(data, shape)) GroupedChecks(suite, shape, dtype, data).all();
}

}  // namespace switchback::bench
