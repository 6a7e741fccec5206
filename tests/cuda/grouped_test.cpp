// SPDX-License-Identifier: Apache-2.0
// Grouped operations on a device, where the host does not know the groups' boundaries: arrays with
// invalid values are clamped and reported, and no call waits for the arrays or copies them.
#include <functional>
#include <limits>

#include "cuda/grouped_support.hpp"
#include "grouped/dispatch.hpp"
#include "switchback/grouped.hpp"
#include "switchback/linear.hpp"

namespace switchback::test::grouped_on_device {
namespace {

using switchback_cuda_emu::calls;
using switchback_cuda_emu::options;

constexpr std::int32_t lowest = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t highest = std::numeric_limits<std::int32_t>::max();

/// An output in device memory, with guard rows around it that must not be written.
template <class T>
class Guarded {
 public:
  static constexpr std::int64_t guards = 9;
  Guarded(Context& context, std::int64_t rows, std::int64_t cols)
      : rows_(rows), cols_(cols), all_(context, untouched(rows, cols)) {}
  [[nodiscard]] MatrixView<T> view() const {
    return {all_.data() + guards * cols_, rows_, cols_, cols_};
  }
  [[nodiscard]] std::span<T> span() const {
    return {view().data, static_cast<std::size_t>(rows_ * cols_)};
  }
  [[nodiscard]] Matrix<T> download() const {
    const Matrix<T> all = all_.download();
    Matrix<T> inner(rows_, cols_);
    for (std::int64_t r = 0; r < all.rows(); ++r)
      for (std::int64_t c = 0; c < cols_; ++c) {
        const std::int64_t row = r - guards;
        if (row >= 0 && row < rows_)
          inner.set(row, c, all.get(r, c));
        else
          EXPECT_EQ(all.get_float(r, c), 77.0f) << "row " << row << " of " << rows_;
      }
    return inner;
  }

 private:
  static Matrix<T> untouched(std::int64_t rows, std::int64_t cols) {
    Matrix<T> all(rows + 2 * guards, cols);
    for (std::int64_t r = 0; r < all.rows(); ++r)
      for (std::int64_t c = 0; c < cols; ++c)
        all.set(r, c, T(77));
    return all;
  }
  std::int64_t rows_, cols_;
  DeviceMatrix<T> all_;
};

/// The report of invalid values in the arrays of groups at the next synchronization; "" if there is
/// none.
std::string report_of(Context& context) {
  return message_of(Status::invalid_argument, [&] { context.synchronize(); });
}

/// The arrays that describe the groups of one call. An empty array is not passed.
struct Arrays {
  std::vector<std::int32_t> ends = {}, used = {}, index = {};
};

constexpr Mode every_mode[] = {Mode::standard, Mode::rowwise, Mode::global,
                               Mode::global_mem_efficient};
constexpr std::int64_t m = GroupedOnDevice::m, n = GroupedOnDevice::n, k = GroupedOnDevice::k,
                       groups = GroupedOnDevice::groups, x_rows = GroupedOnDevice::x_rows;

/// Everything that a grouped layer and the grouped operations write when they get such arrays of
/// groups.
struct Results {
  Matrix<float> y, dx, dw, db, combined;
  Matrix<std::int32_t> sums;
  friend bool operator==(const Results&, const Results&) = default;
};

Results run(const Arrays& arrays, Mode mode) {
  Context context(emulated());
  const DeviceMatrix<std::int32_t> ends = on_device(context, arrays.ends);
  const DeviceMatrix<std::int32_t> used = on_device(context, arrays.used);
  const DeviceMatrix<std::int32_t> index = on_device(context, arrays.index);
  const Groups some = arrays.ends.empty() ? Groups::strided(groups, m / groups, used.span())
                                          : Groups::packed(ends.span());
  const std::int64_t rows = arrays.index.empty() ? m : x_rows;
  const DeviceMatrix<float> x(context, normal_matrix<float>(rows, k, 1));
  const DeviceMatrix<float> w(context, normal_matrix<float>(groups * n, k, 2));
  const DeviceMatrix<float> bias(context, normal_matrix<float>(groups, n, 3));
  const DeviceMatrix<float> g(context, normal_matrix<float>(m, n, 4));
  const Guarded<float> y(context, m, n), dx(context, m, k), dw(context, groups * n, k),
      db(context, groups, n);
  SwitchbackLinear layer(context,
                         {.groups = groups, .in_features = k, .out_features = n, .mode = mode});
  layer.set_weight(w.view(), bias.view());
  layer.forward(some, {.data = x.view(), .index = index.span()}, y.view(), Save::copy);
  layer.backward({.g = g.view(), .dx = dx.view(), .dw = dw.view(), .db = db.view()});

  Matrix<std::int8_t> codes(m, k);
  Random random(5);
  fill_codes(codes, random);
  Matrix<std::int8_t> codes_b(groups * n, k);
  fill_codes(codes_b, random);
  const DeviceMatrix<std::int8_t> a(context, codes), b(context, codes_b);
  const Guarded<std::int32_t> sums(context, m, n);
  grouped_gemm(context, {.groups = some, .a = a.view(), .b = b.view(), .d = sums.view()});

  // The operation `combine` takes the index as its slots; without an index, the ends.
  const DeviceMatrix<std::int32_t>& numbers =
      arrays.index.empty() ? (arrays.ends.empty() ? used : ends) : index;
  const std::int64_t tokens = static_cast<std::int64_t>(numbers.span().size());
  const Guarded<float> combined(context, tokens, k);
  combine(context, {.y = x.view(), .slots = {numbers.data(), tokens, 1}, .out = combined.view()});
  (void)report_of(context);
  return {y.download(),  dx.download(),       dw.download(),
          db.download(), combined.download(), sums.download()};
}

// Values of a groups' array that are out of range are clamped to the valid range.
TEST_F(Cuda, ValuesOfGroupsAreClamped) {
  for (const Mode mode : every_mode) {
    SCOPED_TRACE(mode_name(mode));
    const auto same = [&](const Arrays& lie, const Arrays& truth) {
      Results got = run(lie, mode);
      const Results want = run(truth, mode);
      // combine() reads the arrays as slots, so its results may differ.
      got.combined = want.combined;
      EXPECT_TRUE(got == want);
    };
    same({.ends = {4, 6, 13}}, {.ends = {4, 6, m}});
    same({.ends = {4, highest, highest}}, {.ends = {4, m, m}});
    same({.ends = {-1, 6, 11}}, {.ends = {0, 6, 11}});
    same({.ends = {lowest, lowest, 3}}, {.ends = {0, 0, 3}});
    same({.used = {-1, 5, 2}}, {.used = {0, 4, 2}});
    same({.used = {highest, 0, lowest}}, {.used = {4, 0, 0}});
    const std::vector<std::int32_t> lies = {0, 9, -4, 4, 5, lowest, highest, 1, 2, 3, -1, 6};
    const std::vector<std::int32_t> truth = {0, 4, 0, 4, 4, 0, 4, 1, 2, 3, 0, 4};
    same({.ends = {5, 5, m}, .index = lies}, {.ends = {5, 5, m}, .index = truth});
  }
}

// If the ends of groups decrease, it is not specified which group has which slot, but nothing
// outside the outputs is touched.
TEST_F(Cuda, EndsThatFallTouchNothingOutside) {
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global_mem_efficient})
    for (const std::vector<std::int32_t>& ends :
         std::vector<std::vector<std::int32_t>>{{12, 0, 12},
                                                {9, 2, 5},
                                                {5, 3, -1},
                                                {highest, lowest, highest},
                                                {lowest, highest, lowest},
                                                {12, 12, 0}})
      (void)run({.ends = ends}, mode);
}

TEST_F(Cuda, SlotsOfCombineAreClamped) {
  Context context(emulated());
  const Matrix<float> y = normal_matrix<float>(4, k, 1);
  const DeviceMatrix<float> rows(context, y);
  const DeviceMatrix<std::int32_t> slots = on_device(context, {4, 2, highest, lowest, -1, 0});
  const Guarded<float> out(context, 3, k);
  combine(context, {.y = rows.view(), .slots = {slots.data(), 3, 2}, .out = out.view()});
  EXPECT_EQ(report_of(context),
            "a grouped operation that was queued before this synchronization read an invalid value "
            "from the device's memory and clamped it: slots[0] = 4; it must be at most the last "
            "row of y (a negative value means no slot)");
  const Matrix<float> got = out.download();
  for (std::int64_t c = 0; c < k; ++c) {
    EXPECT_EQ(got.get(0, c), y.get(3, c) + y.get(2, c));
    EXPECT_EQ(got.get(1, c), y.get(3, c));
    EXPECT_EQ(got.get(2, c), y.get(0, c));
  }
}

constexpr std::string_view report_head =
    "a grouped operation that was queued before this synchronization read an invalid value from "
    "the device's memory and clamped it: ";

// Each operation reports which element of which array is invalid. Of several invalid elements it
// reports the first, once.
TEST_F(Cuda, ValuesThatLieAreReportedByTheNextSynchronization) {
  Context context(emulated());
  const DeviceMatrix<float> x(context, normal_matrix<float>(x_rows, k, 1));
  const DeviceMatrix<float> b(context, normal_matrix<float>(groups * n, k, 2));
  const DeviceMatrix<std::int8_t> codes(context, m, k), codes_b(context, groups * n, k);
  const DeviceMatrix<std::int8_t> q(context, m, k);
  const DeviceMatrix<float> absmax(context, 1, m), slots(context, m, k), y(context, m, n);
  const DeviceMatrix<float> sums(context, groups, n);
  const DeviceMatrix<std::int32_t> d(context, m, n);
  const std::vector<std::int32_t> in_order = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1};
  const auto each = [&](const Arrays& arrays, const std::string& want) {
    const DeviceMatrix<std::int32_t> ends = on_device(context, arrays.ends);
    const DeviceMatrix<std::int32_t> used = on_device(context, arrays.used);
    const DeviceMatrix<std::int32_t> index =
        on_device(context, arrays.index.empty() ? in_order : arrays.index);
    const Groups some = arrays.ends.empty() ? Groups::strided(groups, m / groups, used.span())
                                            : Groups::packed(ends.span());
    const GroupedRows rows = {.data = x.view(), .index = index.span()};
    const auto expect = [&](const char* operation) {
      EXPECT_EQ(report_of(context).substr(0, report_head.size() + want.size()),
                want.empty() ? "" : std::string(report_head) + want)
          << operation;
      EXPECT_EQ(report_of(context), "") << operation << ", once more";
    };
    grouped_quantize_rowwise(context, some, rows, q.view(), absmax.span());
    expect("quantize");
    grouped::gather(context.state(), some, rows, slots.view());
    expect("gather");
    if (!arrays.index.empty()) return;
    grouped_gemm(context, {.groups = some, .a = codes.view(), .b = codes_b.view(), .d = d.view()});
    expect("int8 product");
    GroupedStandardGemmArgs args;
    args.groups = some;
    args.a = slots.view();
    args.b = b.view();
    args.d = y.view();
    args.transpose_b = true;
    grouped_gemm_standard(context, args);
    expect("floating product");
    args.a = y.view();
    args.b = slots.view();
    args.d = b.view();
    args.transpose_a = true;
    args.transpose_b = false;
    grouped_gemm_standard(context, args);
    expect("dW");
    grouped::run(context.state(), some, m, {.data = y.view()}, {.column_sums = sums.span()});
    expect("column sums");
  };
  each({.ends = {4, 4, m}}, "");
  each({.ends = {4, 3, 13}},
       "groups.ends[1] = 3; ends must not decrease, and must be from 0 to the number");
  each({.ends = {4, 6, 13}}, "groups.ends[2] = 13; ");
  each({.ends = {-1, 6, 11}}, "groups.ends[0] = -1; ");
  each({.ends = {lowest, highest, 3}}, "groups.ends[0] = -2147483648; ");
  each({.used = {4, 0, 2}}, "");
  each({.used = {4, 5, -1}}, "groups.used[1] = 5; it must be from 0 to groups.rows");
  each({.used = {4, 4, -1}}, "groups.used[2] = -1; ");
  // The index is not read at slots that no group uses.
  each({.ends = {4, 4, 11}, .index = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 99}}, "");
  each({.ends = {4, 4, m}, .index = {0, 1, 2, 3, 4, 0, 1, -7, 3, 4, 0, 99}},
       "x.index[7] = -7; it must be from 0 to the last row of x");
}

// With more groups than slots, the ends of groups after the last slot are checked too.
TEST_F(Cuda, GroupsWithoutSlotsAreLookedAt) {
  Context context(emulated());
  const DeviceMatrix<float> x(context, normal_matrix<float>(2, k, 1));
  const DeviceMatrix<std::int8_t> q(context, 2, k);
  const DeviceMatrix<float> absmax(context, 1, 2);
  const DeviceMatrix<std::int32_t> ends = on_device(context, {1, 2, 2, 2, 3});
  grouped_quantize_rowwise(context, Groups::packed(ends.span()), {.data = x.view()}, q.view(),
                           absmax.span());
  EXPECT_EQ(report_of(context).substr(report_head.size(), 19), "groups.ends[4] = 3;");
}

// A replayed graph reports invalid values as the captured call does, at every replay.
TEST_F(Cuda, GraphsReportValuesThatLie) {
  Context context(emulated());
  core::DeviceRuntime& runtime = *context.state().runtime;
  const DeviceMatrix<std::int8_t> a(context, m, k), b(context, groups * n, k);
  const DeviceMatrix<std::int32_t> d(context, m, n);
  const DeviceMatrix<std::int32_t> ends = on_device(context, {4, 6, m});
  const auto multiply = [&] {
    grouped_gemm(
        context,
        {.groups = Groups::packed(ends.span()), .a = a.view(), .b = b.view(), .d = d.view()});
  };
  multiply();
  context.synchronize();
  runtime.begin_capture();
  multiply();
  const auto graph = runtime.end_capture();
  graph->launch();
  context.synchronize();
  const std::int32_t late = 13;
  runtime.copy(ends.data() + 2, sizeof late, &late, sizeof late, sizeof late, 1);
  for (int i = 0; i < 2; ++i) {
    graph->launch();
    EXPECT_EQ(report_of(context).substr(report_head.size(), 20), "groups.ends[2] = 13;");
  }
}

// A repeated step does not copy the groups' boundaries or any other data to the host.
TEST_F(Cuda, AStepOfGroupsNeitherCopiesNorWaitsNorAllocates) {
  for (const Mode mode : every_mode) {
    SCOPED_TRACE(mode_name(mode));
    Context context(emulated());
    GroupedOnDevice step(context, mode);
    for (int i = 0; i < 2; ++i) {
      step.forward(Save::borrow);
      step.backward();
    }
    context.synchronize();
    expect_no_calls_of(
        {"cudaMemcpy", "cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaStreamSynchronize",
         "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMalloc", "cudaMallocAsync"},
        [&] {
          step.forward(Save::borrow);
          step.backward();
        });
    context.synchronize();
  }
}

// A grouped operation takes one launch, whatever the number of groups.
TEST_F(Cuda, AnOperationOnGroupsIsOneLaunch) {
  Context context(emulated());
  GroupedOnDevice step(context, Mode::rowwise);
  step.forward(Save::nothing);  // this first forward quantizes the weights
  EXPECT_EQ(kernels_of([&] { step.forward(Save::nothing); }),
            (std::vector<std::string>{"grouped_quantize_rowwise", "grouped_dp4a"}));
  context.synchronize();
}

// Making the codes of all groups' weights takes the same number of launches for any number of
// groups. They are made for the forward alone or for dX too. The shapes pack with room between
// groups and without.
TEST_F(Cuda, CodesOfWeightsTakeAsManyLaunchesForAnyNumberOfGroups) {
  const auto queued_for = [](Mode mode, std::int64_t count, std::int64_t outs, std::int64_t ins,
                             Save save) {
    Context context(emulated());
    const DeviceMatrix<float> w(context, normal_matrix<float>(count * outs, ins, 1));
    const DeviceMatrix<float> x(context, normal_matrix<float>(count, ins, 2));
    const DeviceMatrix<float> y(context, count, outs);
    SwitchbackLinear layer(
        context, {.groups = count, .in_features = ins, .out_features = outs, .mode = mode});
    layer.set_weight(w.view());
    const auto queued = [] {
      std::size_t work = switchback_cuda_emu::launches().size();
      for (const char* name : {"cudaMemsetAsync", "cudaMemcpyAsync", "cudaMemcpy2DAsync"})
        work += calls(name);
      return work;
    };
    const std::size_t before = queued();
    layer.forward(Groups::strided(count, 1), {.data = x.view()}, y.view(), save);
    const std::size_t after = queued();
    context.synchronize();
    return after - before;
  };
  struct Shape {
    std::int64_t outs, ins;
  };
  for (const Mode mode : {Mode::rowwise, Mode::global})
    for (const Save save : {Save::nothing, Save::borrow})
      for (const auto& [outs, ins] : {Shape{16, 32}, Shape{7, 33}}) {
        SCOPED_TRACE(testing::Message() << mode_name(mode) << " " << outs << " by " << ins);
        const std::size_t many = queued_for(mode, 40, outs, ins, save);
        EXPECT_EQ(many, queued_for(mode, 2, outs, ins, save));
        EXPECT_LE(many, 9u);  // including zeros for padded codes, codes of x, and the product
      }
}

// A pass of a grouped layer that runs out of memory writes nothing, and can be repeated.
TEST_F(Cuda, AStepOfGroupsThatRunsOutOfMemoryChangesNothing) {
  struct Step {
    explicit Step(Mode mode) : on_device(context, mode) {}
    [[nodiscard]] std::vector<Matrix<float>> outputs() const { return on_device.outputs(); }
    Context context{emulated()};
    GroupedOnDevice on_device;
  };
  for (const Mode mode : every_mode) {
    SCOPED_TRACE(mode_name(mode));
    expect_all_or_nothing([&] { return std::make_unique<Step>(mode); },
                          [](Step& step) { step.on_device.forward(Save::copy); });
    const auto after_forward = [&] {
      auto step = std::make_unique<Step>(mode);
      step->on_device.forward(Save::copy);
      return step;
    };
    expect_all_or_nothing(after_forward, [](Step& step) { step.on_device.backward(); });
  }
}

template <class T>
void expect_gathered(std::int64_t cols, std::int64_t column_stride) {
  Context context(emulated());
  const Matrix<T> x = normal_matrix<T>(x_rows, cols + (groups - 1) * column_stride, 1);
  const DeviceMatrix<T> from(context, x);
  const Guarded<T> to(context, m, cols);
  const std::vector<std::int32_t> rows = {4, 0, 1, 2, 3, 0, 4, 1, 1, 2, 0, 0};
  const DeviceMatrix<std::int32_t> index = on_device(context, rows);
  const DeviceMatrix<std::int32_t> ends = on_device(context, {3, 3, 10});
  grouped::gather(context.state(), Groups::packed(ends.span()),
                  {.data = from.view(), .index = index.span(), .column_stride = column_stride},
                  to.view());
  const Matrix<T> got = to.download();
  for (std::int64_t slot = 0; slot < m; ++slot)
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t column = (slot < 3 ? 0 : 2 * column_stride) + c;
      const T want = slot < 10 ? x.get(rows[static_cast<std::size_t>(slot)], column) : T(77);
      ASSERT_EQ(got.get_float(slot, c), static_cast<float>(want))
          << slot << "," << c << " of " << cols << " stride " << column_stride;
    }
}

TEST_F(Cuda, GathersRowsOfEveryType) {
  // These shapes are copied in packs of 16 bytes, in single elements, or in rows that begin at
  // packs but do not consist of them.
  for (const auto& [cols, column_stride] :
       {std::pair{40, 0}, {40, 48}, {41, 0}, {40, 44}, {1, 1}, {1200, 1200}}) {
    expect_gathered<float>(cols, column_stride);
    expect_gathered<half>(cols, column_stride);
    expect_gathered<bfloat16>(cols, column_stride);
  }
}

TEST_F(Cuda, AFloatingProductOfGroupsTakesNoEngineByName) {
  Context context(emulated());
  const DeviceMatrix<float> a(context, m, k), b(context, groups * n, k), d(context, m, n);
  GroupedStandardGemmArgs args;
  args.groups = Groups::strided(groups, m / groups);
  args.a = a.view();
  args.b = b.view();
  args.d = d.view();
  args.transpose_b = true;
  args.engine = "cublaslt";
  EXPECT_EQ(message_of(Status::unsupported, [&] { grouped_gemm_standard(context, args); }),
            "grouped_gemm_standard: engine = 'cublaslt'; on a device it must be empty, because "
            "there is only one engine");
}

}  // namespace
}  // namespace switchback::test::grouped_on_device
