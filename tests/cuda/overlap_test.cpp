// SPDX-License-Identifier: Apache-2.0
// Which kernels begin before the previous kernel has ended: those that wait for it, on devices and
// with drivers that support such launches. (Cooperative launches are off, so that codes of rows and
// columns need two kernels.) The results equal those of kernels that run one after another.
#include <map>

#include "cuda/cuda_support.hpp"

namespace switchback::test {
namespace {

class CudaOverlap : public Cuda {
 protected:
  struct Results {
    Matrix<float> d;
    Matrix<std::int8_t> q, q_t;
    std::map<std::string, bool> overlaps;  // whether a kernel overlaps, by its name
  };
  static Results run(const switchback_cuda_emu::Options& machine, bool captured);

 private:
  static constexpr std::int64_t m = 130, n = 48, k = 64;
};

// Runs a rowwise quantization, a product, and quantizations by matrix and by rows and columns. With
// `captured`, a graph of these calls runs on other data.
CudaOverlap::Results CudaOverlap::run(const switchback_cuda_emu::Options& machine, bool captured) {
  switchback_cuda_emu::reset(machine);
  Context context(emulated());
  core::DeviceRuntime& runtime = *context.state().runtime;
  const DeviceMatrix<float> x(context, normal_matrix<float>(m, k, 1));
  const DeviceMatrix<float> w(context, normal_matrix<float>(n, k, 2));
  const DeviceMatrix<float> other(context, normal_matrix<float>(m, k, 3));
  const DeviceMatrix<std::int8_t> q(context, m, k), q_w(context, n, k), q_t(context, k, m);
  const DeviceMatrix<float> rows(context, 1, m), rows_w(context, 1, n), cols(context, 1, k);
  const DeviceMatrix<std::int8_t> q_one(context, m, k);
  const DeviceMatrix<float> one(context, 1, 1);
  const DeviceMatrix<float> d(context, m, n);
  quantize_rowwise(context, w.view(), q_w.view(), rows_w.span());
  const auto call = [&] {
    quantize_rowwise(context, x.view(), q.view(), rows.span());
    GemmArgs args;
    args.a = q.view();
    args.b = q_w.view();
    args.d = d.view();
    args.absmax_a = rows.span();
    args.absmax_b = rows_w.span();
    args.engine = "dp4a";
    gemm(context, args);
    quantize_global(context, x.view(), q_one.view(), one.span());
    quantize_rowwise_and_columnwise_transpose(context, x.view(), q.view(), rows.span(), q_t.view(),
                                              cols.span());
  };
  call();
  if (captured) {
    context.synchronize();
    runtime.begin_capture();
    call();
    const std::unique_ptr<core::DeviceGraph> graph = runtime.end_capture();
    const std::size_t bytes = m * k * sizeof(float);
    runtime.copy(x.data(), bytes, other.data(), bytes, bytes, 1);
    graph->launch();
    context.synchronize();
  }
  Results results{d.download(), q.download(), q_t.download(), {}};
  for (const auto& launch : switchback_cuda_emu::launches())
    results.overlaps[launch.name] = launch.overlaps;
  return results;
}

TEST_F(CudaOverlap, WhereTheyCan) {
  const std::map<std::string, bool> with = {
      {"quantize_rowwise", false}, {"dp4a", true},  {"epilogue", false},
      {"absmax", false},           {"codes", true}, {"absmax_columns", false},
      {"quantize_transpose", true}};
  std::map<std::string, bool> without = with;
  for (auto& [name, overlaps] : without)
    overlaps = false;
  for (const bool captured : {false, true}) {
    SCOPED_TRACE(captured ? "captured" : "queued");
    const Results want = run({.compute_capability = 80, .cooperative_launches = false}, captured);
    EXPECT_EQ(want.overlaps, without);
    EXPECT_EQ(
        run({.driver_version = 12020, .runtime_version = 12020, .cooperative_launches = false},
            captured)
            .overlaps,
        without);
    for (const std::uint64_t seed : {1, 5, 9}) {
      const Results got = run({.cooperative_launches = false, .schedule_seed = seed}, captured);
      EXPECT_EQ(got.overlaps, with);
      EXPECT_TRUE(got.d == want.d);
      EXPECT_TRUE(got.q == want.q);
      EXPECT_TRUE(got.q_t == want.q_t);
    }
  }
}

}  // namespace
}  // namespace switchback::test
