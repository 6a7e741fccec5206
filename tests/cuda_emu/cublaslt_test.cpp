// SPDX-License-Identifier: Apache-2.0
// The stand-in for cuBLASLt: what it takes, what it refuses, what it computes.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

/// A product with its descriptors; the members are changed before build().
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

std::int32_t get_id(const cublasLtMatmulAlgo_t& algo) {
  std::int32_t id = -1;
  EXPECT_EQ(
      cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, nullptr),
      CUBLAS_STATUS_SUCCESS);
  return id;
}

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
      {"int8 to int8", good,
       [](Product& p) {
         p.scale = CUDA_R_32F;
         p.cd = CUDA_R_8I;
       }},
      {"int8 to int32 with float scalars", unsupported, [](Product& p) { p.scale = CUDA_R_32F; }},
      {"int8 to bf16", unsupported,
       [](Product& p) {
         p.scale = CUDA_R_32F;
         p.cd = CUDA_R_16BF;
       }},
      {"int8 NN", unsupported,
       [](Product& p) {
         p.transa = CUBLAS_OP_N;
         p.lda = 32;
       }},
      {"int8 TT", unsupported,
       [](Product& p) {
         p.transb = CUBLAS_OP_T;
         p.ldb = 20;
       }},
      {"int8, m 30", unsupported, [](Product& p) { p.m = 30; }},
      {"int8, k 46", unsupported, [](Product& p) { p.k = 46; }},
      {"int8, n 19", good, [](Product& p) { p.n = 19; }},
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
      {"tf32", good,
       with(floats(CUDA_R_32F, CUDA_R_32F),
            [](Product& p) { p.compute = CUBLAS_COMPUTE_32F_FAST_TF32; })},
      {"bf16", good, floats(CUDA_R_16BF, CUDA_R_16BF)},
      {"bf16 to f32", good, floats(CUDA_R_16BF, CUDA_R_32F)},
      {"f16", good, floats(CUDA_R_16F, CUDA_R_16F)},
      {"f16 to bf16", unsupported, floats(CUDA_R_16F, CUDA_R_16BF)},
      {"f16 by bf16", unsupported,
       with(floats(CUDA_R_16F, CUDA_R_16F), [](Product& p) { p.b = CUDA_R_16BF; })},
      {"f32 with integer accumulation", unsupported,
       with(floats(CUDA_R_32F, CUDA_R_32F), [](Product& p) { p.compute = CUBLAS_COMPUTE_32I; })},
      {"bf16, odd sizes", good,
       with(floats(CUDA_R_16BF, CUDA_R_16BF),
            [](Product& p) {
              p.m = 7;
              p.n = 3;
              p.k = 5;
            })},
      {"bf16 with bias", good, with(floats(CUDA_R_16BF, CUDA_R_16BF), bias(-1))},
      {"bf16 with bf16 bias", good, with(floats(CUDA_R_16BF, CUDA_R_16BF), bias(CUDA_R_16BF))},
      {"bf16 with f32 bias", unsupported, with(floats(CUDA_R_16BF, CUDA_R_16BF), bias(CUDA_R_32F))},
      {"bf16 to f32 with f32 bias", good, with(floats(CUDA_R_16BF, CUDA_R_32F), bias(CUDA_R_32F))},
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

TEST_F(CudaEmuLt, FewRowsCanBeRefused) {
  Product p;
  p.n = 16;
  p.build();
  EXPECT_EQ(p.accepted(), CUBLAS_STATUS_SUCCESS);
  emu::options().refuse_rows_up_to_16 = true;
  EXPECT_EQ(p.accepted(), CUBLAS_STATUS_NOT_SUPPORTED);
  Product larger;
  larger.n = 17;
  larger.build();
  EXPECT_EQ(larger.accepted(), CUBLAS_STATUS_SUCCESS);
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

TEST_F(CudaEmuLt, IntegersAreExact) {
  Product p;
  p.lda = 52;
  p.ldd = 36;
  p.build();
  std::vector<std::int8_t> a(52 * 32);
  std::vector<std::int8_t> b(48 * 20);
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = static_cast<std::int8_t>(static_cast<int>(i * 37 % 256) - 128);
  for (std::size_t i = 0; i < b.size(); ++i)
    b[i] = static_cast<std::int8_t>(static_cast<int>(i * 91 % 256) - 128);
  std::vector<std::int32_t> c(36 * 20);
  for (std::size_t i = 0; i < c.size(); ++i)
    c[i] = static_cast<std::int32_t>(i * 1000);
  const DeviceArray<std::int8_t> da(a);
  const DeviceArray<std::int8_t> db(b);
  const DeviceArray<std::int32_t> dd(c);
  ASSERT_EQ(p.run(3, da.data(), db.data(), -2, dd.data(), dd.data()), CUBLAS_STATUS_SUCCESS);
  const std::vector<std::int32_t> d = dd.read();
  for (std::size_t j = 0; j < 20; ++j)
    for (std::size_t i = 0; i < 36; ++i) {
      std::int32_t expected = c[i + j * 36];
      if (i < 32) {
        std::int32_t sum = 0;
        for (std::size_t k = 0; k < 48; ++k)
          sum += a[i * 52 + k] * b[j * 48 + k];
        expected = 3 * sum - 2 * expected;
      }
      ASSERT_EQ(d[i + j * 36], expected) << i << ' ' << j;
    }
}

TEST_F(CudaEmuLt, FloatsInEveryOrientation) {
  for (const std::int32_t transa : {CUBLAS_OP_N, CUBLAS_OP_T})
    for (const std::int32_t transb : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      emu::reset();
      constexpr std::size_t m = 5;
      constexpr std::size_t n = 4;
      constexpr std::size_t k = 3;
      const bool ta = transa == CUBLAS_OP_T;
      const bool tb = transb == CUBLAS_OP_T;
      Product p;
      p.compute = CUBLAS_COMPUTE_32F;
      p.scale = CUDA_R_32F;
      p.ab = p.b = p.cd = CUDA_R_32F;
      p.transa = transa;
      p.transb = transb;
      p.m = m;
      p.n = n;
      p.k = k;
      p.lda = ta ? 3 : 5;
      p.ldb = tb ? 4 : 3;
      p.ldd = 5;
      p.epilogue = CUBLASLT_EPILOGUE_BIAS;
      const std::vector<float> bias = {1, 2, 3, 4, 5};
      const DeviceArray<float> device_bias(bias);
      p.bias = device_bias.data();
      p.build();
      std::vector<float> a(m * k);
      std::vector<float> b(k * n);
      for (std::size_t i = 0; i < a.size(); ++i)
        a[i] = static_cast<float>(i) - 6;
      for (std::size_t i = 0; i < b.size(); ++i)
        b[i] = static_cast<float>(i * i % 7);
      const DeviceArray<float> da(a);
      const DeviceArray<float> db(b);
      const DeviceArray<float> dd(m * n);  // NaN: with beta 0 it is not read
      ASSERT_EQ(p.run(0.5f, da.data(), db.data(), 0.0f, dd.data(), dd.data()),
                CUBLAS_STATUS_SUCCESS);
      const std::vector<float> d = dd.read();
      for (std::size_t j = 0; j < n; ++j)
        for (std::size_t i = 0; i < m; ++i) {
          float sum = 0;
          for (std::size_t l = 0; l < k; ++l)
            sum += a[ta ? i * k + l : l * m + i] * b[tb ? l * n + j : j * k + l];
          EXPECT_EQ(d[i + j * m], 0.5f * sum + bias[i]);
        }
    }
}

TEST_F(CudaEmuLt, SixteenBitResultsAreRounded) {
  Product p;
  p.compute = CUBLAS_COMPUTE_32F;
  p.scale = CUDA_R_32F;
  p.ab = p.b = p.cd = CUDA_R_16BF;
  p.m = p.n = 1;
  p.k = 2;
  p.lda = p.ldb = 2;
  p.ldd = 1;
  p.build();
  const DeviceArray<std::uint16_t> a(std::vector<std::uint16_t>{0x3f80, 0x3f80});  // 1, 1
  const DeviceArray<std::uint16_t> b(std::vector<std::uint16_t>{0x4380, 0x3f80});  // 256, 1
  const DeviceArray<std::uint16_t> d(std::vector<std::uint16_t>{0x4000});          // 2
  ASSERT_EQ(p.run(1.0f, a.data(), b.data(), 1.0f, d.data(), d.data()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.read()[0], 0x4382) << "259 lies between 258 and 260: to even";
}

TEST_F(CudaEmuLt, PreferencesFilter) {
  Product p;
  p.max_workspace = 0;
  p.build();
  std::vector<cublasLtMatmulHeuristicResult_t> results;
  ASSERT_EQ(p.heuristic(&results), CUBLAS_STATUS_SUCCESS);
  for (const auto& result : results)
    EXPECT_EQ(result.workspaceSize, 0u);
  Product q;
  q.alignment = 4;
  q.build();
  ASSERT_EQ(q.heuristic(&results), CUBLAS_STATUS_SUCCESS);
  for (const auto& result : results)
    EXPECT_TRUE(get_id(result.algo) == 21 || get_id(result.algo) == 0)
        << "the others want 16 bytes";
  Product r;
  r.alignment = 2;
  r.build();
  EXPECT_EQ(r.accepted(), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CudaEmuLt, AnAlgorithmCanRefuseOrBeWrong) {
  Product p;
  p.max_workspace = 0;
  p.build();
  const DeviceArray<std::int8_t> a(std::vector<std::int8_t>(48 * 32, 1));
  const DeviceArray<std::int8_t> b(std::vector<std::int8_t>(48 * 20, 1));
  const DeviceArray<std::int32_t> d(32 * 20);
  std::vector<cublasLtMatmulHeuristicResult_t> results;
  ASSERT_EQ(p.heuristic(&results), CUBLAS_STATUS_SUCCESS);
  emu::options().refuse_algo = get_id(results[0].algo);
  EXPECT_EQ(p.run(1, a.data(), b.data(), 0, d.data(), d.data(), &results[0].algo),
            CUBLAS_STATUS_NOT_SUPPORTED);
  emu::options().refuse_algo = -1;
  emu::options().corrupt_algo = get_id(results[0].algo);
  ASSERT_EQ(p.run(1, a.data(), b.data(), 0, d.data(), d.data(), &results[0].algo),
            CUBLAS_STATUS_SUCCESS);
  std::vector<std::int32_t> expected(32 * 20, 48);
  EXPECT_NE(d.read(), expected);
  expected.back() ^= 1;
  EXPECT_EQ(d.read(), expected);
}

// One configuration of an algorithm, its others left alone.
TEST_F(CudaEmuLt, OneConfigurationCanBeRefusedOrWrong) {
  Product p;
  p.max_workspace = 0;
  p.build();
  const DeviceArray<std::int8_t> a(std::vector<std::int8_t>(48 * 32, 1));
  const DeviceArray<std::int8_t> b(std::vector<std::int8_t>(48 * 20, 1));
  const DeviceArray<std::int32_t> d(32 * 20);
  const std::vector<std::int32_t> expected(32 * 20, 48);
  const auto configured = [&](std::uint32_t custom) {
    cublasLtMatmulAlgo_t algo{};
    EXPECT_EQ(
        cublasLtMatmulAlgoInit(p.handle, p.compute, p.scale, p.ab, p.b, p.cd, p.cd, 31, &algo),
        CUBLAS_STATUS_SUCCESS);
    const auto set = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, std::uint32_t value) {
      EXPECT_EQ(cublasLtMatmulAlgoConfigSetAttribute(&algo, attribute, &value, sizeof value),
                CUBLAS_STATUS_SUCCESS);
    };
    set(CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_MATMUL_TILE_128x128);
    set(CUBLASLT_ALGO_CONFIG_STAGES_ID, CUBLASLT_MATMUL_STAGES_128x3);
    set(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, custom);
    return algo;
  };
  const auto check = [&](const cublasLtMatmulAlgo_t& algo) {
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(p.handle, p.desc, p.a_layout, p.b_layout, p.d_layout, p.d_layout,
                                   &algo, &result);
  };
  const auto run = [&](const cublasLtMatmulAlgo_t& algo) {
    return p.run(1, a.data(), b.data(), 0, d.data(), d.data(), &algo);
  };
  const cublasLtMatmulAlgo_t one = configured(1);
  const cublasLtMatmulAlgo_t other = configured(2);
  emu::AlgoPattern pattern;
  pattern.custom = 1;
  emu::options().refuse_at_check = pattern;
  EXPECT_EQ(check(one), CUBLAS_STATUS_SUCCESS) << "without an id it is nobody";
  pattern.id = 31;
  emu::options().refuse_at_check = pattern;
  EXPECT_EQ(check(one), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(run(one), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(check(other), CUBLAS_STATUS_SUCCESS);
  emu::options().refuse_at_check = {};
  emu::options().refuse_at_run = pattern;
  EXPECT_EQ(check(one), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run(one), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(run(other), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.read(), expected);
  emu::options().refuse_at_run = {};
  emu::options().corrupt = pattern;
  EXPECT_EQ(run(one), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(d.read(), expected);
  EXPECT_EQ(run(other), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(d.read(), expected);

  // The bytes are one version's.
  emu::options().cublaslt_version += 1;
  EXPECT_EQ(cublasLtGetVersion(), 130101u);
  EXPECT_EQ(check(other), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(other), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(check(configured(2)), CUBLAS_STATUS_SUCCESS);
}

TEST_F(CudaEmuLt, TheCheckKnowsDevicesTypesAndLeadingDimensions) {
  Product p;
  p.lda = 52;
  p.build();
  const auto check = [&](const Product& made_for, int id, std::uint32_t tile,
                         std::uint32_t stages) {
    cublasLtMatmulAlgo_t algo{};
    EXPECT_EQ(cublasLtMatmulAlgoInit(p.handle, made_for.compute, made_for.scale, made_for.ab,
                                     made_for.b, made_for.cd, made_for.cd, id, &algo),
              CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile);
    cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages,
                                         sizeof stages);
    cublasLtMatmulHeuristicResult_t result{};
    result.algo.data[0] = 5;
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(p.handle, p.desc, p.a_layout, p.b_layout,
                                                          p.d_layout, p.d_layout, &algo, &result);
    EXPECT_EQ(result.algo.data[0], 5u) << "never updated";
    return status;
  };
  EXPECT_EQ(check(p, 21, CUBLASLT_MATMUL_TILE_64x64, CUBLASLT_MATMUL_STAGES_64x3),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(check(p, 31, CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_STAGES_64x4),
            CUBLAS_STATUS_NOT_SUPPORTED)
      << "rows of 52 bytes";
  EXPECT_EQ(check(p, 0, 0, 0), CUBLAS_STATUS_SUCCESS) << "neither tiles nor stages";
  EXPECT_EQ(check(p, 0, CUBLASLT_MATMUL_TILE_64x64, 0), CUBLAS_STATUS_NOT_SUPPORTED);
  Product floats;
  floats.compute = CUBLAS_COMPUTE_32F;
  floats.scale = CUDA_R_32F;
  floats.ab = floats.b = floats.cd = CUDA_R_32F;
  EXPECT_EQ(check(floats, 21, CUBLASLT_MATMUL_TILE_64x64, CUBLASLT_MATMUL_STAGES_64x3),
            CUBLAS_STATUS_INVALID_VALUE)
      << "made for another product";
  emu::options().compute_capability = 80;
  EXPECT_EQ(check(p, 66, CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_STAGES_128xAUTO),
            CUBLAS_STATUS_ARCH_MISMATCH);
  cublasLtMatmulAlgo_t algo{};
  EXPECT_EQ(cublasLtMatmulAlgoInit(p.handle, p.compute, p.scale, p.ab, p.b, p.cd, p.cd, 999, &algo),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CudaEmuLt, ProductsAreQueuedAndCaptured) {
  Product p;
  p.build();
  const DeviceArray<std::int8_t> a(std::vector<std::int8_t>(48 * 32, 1));
  const DeviceArray<std::int8_t> b(std::vector<std::int8_t>(48 * 20, 1));
  const DeviceArray<std::int32_t> d(std::vector<std::int32_t>(32 * 20, 0));
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  const std::int32_t one = 1;
  ASSERT_EQ(cublasLtMatmul(p.handle, p.desc, &one, a.data(), p.a_layout, b.data(), p.b_layout, &one,
                           d.data(), p.d_layout, d.data(), p.d_layout, nullptr, nullptr, 0, stream),
            CUBLAS_STATUS_SUCCESS);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(d.read(), std::vector<std::int32_t>(32 * 20, 3 * 48));
}

TEST_F(CudaEmuLt, FunctionsByName) {
  EXPECT_EQ(emu::library_symbol("cublasLt", "cublasLtMatmul"),
            reinterpret_cast<void*>(&cublasLtMatmul));
  EXPECT_NE(emu::library_symbol("libcublasLt.so.13", "cublasLtCreate"), nullptr);
  EXPECT_EQ(emu::library_symbol("cublasLt", "cublasLtNoSuchThing"), nullptr);
  EXPECT_EQ(emu::library_symbol("cudnn", "cublasLtMatmul"), nullptr);
  emu::options().cublaslt_missing_function = "cublasLtMatmul";
  EXPECT_EQ(emu::library_symbol("cublasLt", "cublasLtMatmul"), nullptr);
  EXPECT_NE(emu::library_symbol("cublasLt", "cublasLtMatmulAlgoInit"), nullptr);
  emu::options().cublaslt_missing_function.clear();
  emu::options().cublaslt_missing = true;
  EXPECT_EQ(emu::library_symbol("cublasLt", "cublasLtMatmul"), nullptr);
}

TEST_F(CudaEmuLt, HandlesAreCountedAndCallsCanFail) {
  emu::options().fail_call_after = 0;
  emu::options().fail_call_error = cudaErrorMemoryAllocation;
  emu::options().fail_call_name = "cublasLtCreate";
  cublasLtHandle_t handle = nullptr;
  EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(emu::usage().library_handles, 1u);
  emu::options().device_count = 2;
  Product p;
  p.build();
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const DeviceArray<std::int32_t> d(4096);
  EXPECT_EQ(p.run(1, d.data(), d.data(), 0, d.data(), d.data()), CUBLAS_STATUS_INVALID_VALUE)
      << "the handle is the other device's";
}

}  // namespace
}  // namespace switchback::test
