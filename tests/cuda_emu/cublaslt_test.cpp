// SPDX-License-Identifier: Apache-2.0
// The emulated device's stand-in for cuBLASLt: what it accepts and what it refuses.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

/// A cuBLASLt product with its descriptors. Tests change the members before they call build().
struct Product {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32I;
  cudaDataType_t scale = CUDA_R_32I, ab = CUDA_R_8I, b = CUDA_R_8I, cd = CUDA_R_32I;
  std::int32_t transa = CUBLAS_OP_T, transb = CUBLAS_OP_N;
  std::uint64_t m = 32, n = 20, k = 48;
  std::int64_t lda = 48, ldb = 48, ldd = 32;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;
  std::int32_t order = CUBLASLT_ORDER_COL;
  const void* bias = nullptr;
  std::uint64_t max_workspace = 1 << 20;
  std::uint32_t alignment = 256;

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, d_layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

  void build() {
    ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescCreate(&desc, compute, scale), CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, transa);
    set(CUBLASLT_MATMUL_DESC_TRANSB, transb);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const bool ta = transa != CUBLAS_OP_N;
    const bool tb = transb != CUBLAS_OP_N;
    cublasLtMatrixLayoutCreate(&a_layout, ab, ta ? k : m, ta ? m : k, lda);
    cublasLtMatrixLayoutCreate(&b_layout, b, tb ? n : k, tb ? k : n, ldb);
    cublasLtMatrixLayoutCreate(&d_layout, cd, m, n, ldd);
    cublasLtMatrixLayoutSetAttribute(d_layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &max_workspace, sizeof max_workspace);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t heuristic(std::vector<cublasLtMatmulHeuristicResult_t>* results) const {
    results->resize(32);
    int returned = -1;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, desc, a_layout, b_layout, d_layout, d_layout,
                                       preference, 32, results->data(), &returned);
    results->resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(returned) : 0);
    return status;
  }
  [[nodiscard]] cublasStatus_t accepted() const {
    std::vector<cublasLtMatmulHeuristicResult_t> results;
    return heuristic(&results);
  }
  template <class Scalar>
  cublasStatus_t run(Scalar alpha, const void* a, const void* b_data, Scalar beta, const void* c,
                     void* d, const cublasLtMatmulAlgo_t* algo = nullptr, void* workspace = nullptr,
                     std::size_t workspace_bytes = 0) const {
    return cublasLtMatmul(handle, desc, &alpha, a, a_layout, b_data, b_layout, &beta, c, d_layout,
                          d, d_layout, algo, workspace, workspace_bytes, nullptr);
  }
};

using CudaEmuLt = CudaEmu;

TEST_F(CudaEmuLt, TheTableOfWhatIsTaken) {
  const auto floats = [](cudaDataType_t in, cudaDataType_t out) {
    return [in, out](Product& p) {
      p.compute = CUBLAS_COMPUTE_32F;
      p.scale = CUDA_R_32F;
      p.ab = p.b = in;
      p.cd = out;
    };
  };
  const auto with = [](auto first, auto second) {
    return [first, second](Product& p) {
      first(p);
      second(p);
    };
  };
  const auto bias = [](std::int32_t type) {
    return [type](Product& p) {
      p.epilogue = CUBLASLT_EPILOGUE_BIAS;
      p.bias_type = type;
    };
  };
  constexpr auto good = CUBLAS_STATUS_SUCCESS;
  constexpr auto unsupported = CUBLAS_STATUS_NOT_SUPPORTED;
  constexpr auto invalid = CUBLAS_STATUS_INVALID_VALUE;
  const struct {
    const char* name;
    cublasStatus_t status;
    std::function<void(Product&)> change;
  } table[] = {
      {"int8 to int32", good, [](Product&) {}},
      {"int8 to int32 with float scalars", unsupported, [](Product& p) { p.scale = CUDA_R_32F; }},
      {"int8 to bf16", unsupported, floats(CUDA_R_8I, CUDA_R_16BF)},
      {"int8 NN", unsupported, [](Product& p) { p.transa = CUBLAS_OP_N; }},
      {"int8 TT", unsupported, [](Product& p) { p.transb = CUBLAS_OP_T; }},
      {"int8, m 30", unsupported, [](Product& p) { p.m = 30; }},
      {"int8, k 46", unsupported, [](Product& p) { p.k = 46; }},
      {"int8, n 1", good, [](Product& p) { p.n = 1; }},
      {"int8, lda 50", unsupported, [](Product& p) { p.lda = 50; }},
      {"int8, ldb 49", unsupported, [](Product& p) { p.ldb = 49; }},
      {"int8, ldd 34", unsupported, [](Product& p) { p.ldd = 34; }},
      {"int8, ldd 36", good, [](Product& p) { p.ldd = 36; }},
      {"int8 with bias", unsupported, bias(-1)},
      {"ld below the rows", invalid, [](Product& p) { p.lda = 44; }},
      {"no rows", invalid, [](Product& p) { p.m = 0; }},
      {"row order", unsupported, [](Product& p) { p.order = CUBLASLT_ORDER_ROW; }},
      {"f32", good, floats(CUDA_R_32F, CUDA_R_32F)},
      {"bf16 to f32", good, floats(CUDA_R_16BF, CUDA_R_32F)},
      {"f16, odd n", good, with(floats(CUDA_R_16F, CUDA_R_16F), [](Product& p) { p.n = 3; })},
      {"f16 to bf16", unsupported, floats(CUDA_R_16F, CUDA_R_16BF)},
      {"f16 by bf16", unsupported,
       with(floats(CUDA_R_16F, CUDA_R_16F), [](Product& p) { p.b = CUDA_R_16BF; })},
      {"f32 with integer accumulation", unsupported,
       with(floats(CUDA_R_32F, CUDA_R_32F), [](Product& p) { p.compute = CUBLAS_COMPUTE_32I; })},
      {"bf16 with bf16 bias", good, with(floats(CUDA_R_16BF, CUDA_R_16BF), bias(CUDA_R_16BF))},
      {"bf16 with f32 bias", unsupported, with(floats(CUDA_R_16BF, CUDA_R_16BF), bias(CUDA_R_32F))},
      {"bf16 to f32 with bf16 bias", unsupported,
       with(floats(CUDA_R_16BF, CUDA_R_32F), bias(CUDA_R_16BF))},
  };
  for (const auto& row : table) {
    SCOPED_TRACE(row.name);
    Product p;
    row.change(p);
    p.build();
    EXPECT_EQ(p.accepted(), row.status);
  }
}

TEST_F(CudaEmuLt, ArgumentsAreChecked) {
  Product p;
  p.build();
  const DeviceArray<std::int8_t> a(std::vector<std::int8_t>(48 * 40, 1));
  const DeviceArray<std::int8_t> b(std::vector<std::int8_t>(48 * 24, 1));
  const DeviceArray<std::int32_t> d(32 * 24);
  const DeviceArray<char> workspace(1 << 16);
  EXPECT_EQ(p.run(1, a.data(), b.data(), 0, d.data(), d.data()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(p.run(1, nullptr, b.data(), 0, d.data(), d.data()), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(p.run(1, a.data(), b.data(), 0, nullptr, d.data()), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(p.run(1, a.data() + 2, b.data(), 0, d.data(), d.data()), CUBLAS_STATUS_NOT_SUPPORTED)
      << "4 bytes of alignment are the least";
  EXPECT_EQ(p.run(1, a.data() + 4, b.data() + 4, 0, d.data() + 1, d.data() + 1),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(
      p.run(1, a.data(), b.data(), 0, d.data(), d.data(), nullptr, workspace.data() + 16, 1024),
      CUBLAS_STATUS_INVALID_VALUE)
      << "a workspace at less than 256 bytes of alignment";

  std::vector<cublasLtMatmulHeuristicResult_t> results;
  ASSERT_EQ(p.heuristic(&results), CUBLAS_STATUS_SUCCESS);
  ASSERT_GT(results[0].workspaceSize, 0u);
  EXPECT_EQ(p.run(1, a.data(), b.data(), 0, d.data(), d.data(), &results[0].algo, workspace.data(),
                  results[0].workspaceSize - 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(p.run(1, a.data(), b.data(), 0, d.data(), d.data(), &results[0].algo, workspace.data(),
                  results[0].workspaceSize),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(p.run(1, a.data() + 4, b.data(), 0, d.data(), d.data(), &results[0].algo,
                  workspace.data(), results[0].workspaceSize),
            CUBLAS_STATUS_NOT_SUPPORTED)
      << "less aligned than was promised to the heuristic";
  const cublasLtMatmulAlgo_t empty{};
  EXPECT_EQ(p.run(1, a.data(), b.data(), 0, d.data(), d.data(), &empty),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << emu::last_fault();

  const std::int64_t wrong_size = CUBLAS_OP_T;
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &wrong_size,
                                           sizeof wrong_size),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulDescDestroy(p.desc), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(p.accepted(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtDestroy(p.handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(p.accepted(), CUBLAS_STATUS_NOT_INITIALIZED);
}

TEST_F(CudaEmuLt, OperandsMustBeDeviceMemoryOfTheirSize) {
  for (int kind = 0; kind < 3; ++kind) {
    emu::reset();
    Product p;
    p.build();
    const DeviceArray<std::int8_t> a(48 * 32 - (kind == 1 ? 1 : 0));
    const DeviceArray<std::int8_t> b(48 * 20);
    const DeviceArray<std::int32_t> d(32 * 20);
    alignas(16) static std::int8_t host[48 * 20];
    ASSERT_EQ(p.run(1, a.data(), kind == 2 ? host : b.data(), 0, d.data(), d.data()),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaDeviceSynchronize(), kind == 0 ? cudaSuccess : cudaErrorIllegalAddress);
    EXPECT_EQ(emu::last_fault().empty(), kind == 0) << emu::last_fault();
  }
}

TEST_F(CudaEmuLt, AnAlgorithmBelongsToItsTypes) {
  Product integers, floats;
  floats.compute = CUBLAS_COMPUTE_32F;
  floats.scale = floats.ab = floats.b = floats.cd = CUDA_R_32F;
  integers.build();
  floats.build();
  std::vector<cublasLtMatmulHeuristicResult_t> results;
  ASSERT_EQ(floats.heuristic(&results), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t result{};
  const auto check = [&](const Product& p) {
    return cublasLtMatmulAlgoCheck(p.handle, p.desc, p.a_layout, p.b_layout, p.d_layout, p.d_layout,
                                   &results[0].algo, &result);
  };
  EXPECT_EQ(check(floats), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(check(integers), CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace switchback::test
