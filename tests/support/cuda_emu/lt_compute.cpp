// SPDX-License-Identifier: Apache-2.0
// cuBLASLt stand-in: the arithmetic of a product. Compiled for speed in every build, without
// sanitizers: the operands have been checked against the allocations.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "lt_state.hpp"
#include "switchback_cuda_emu/half_bits.h"

namespace switchback_cuda_emu {

namespace {

float read_float(const void* base, std::uint32_t type, std::int64_t at) {
  const char* p =
      static_cast<const char*>(base) + at * static_cast<std::int64_t>(element_bytes(type));
  if (type == CUDA_R_32F) {
    float value = 0.0f;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, p, sizeof bits);
  return type == CUDA_R_16F ? half_to_float(bits) : bfloat16_to_float(bits);
}

void write_float(void* base, std::uint32_t type, std::int64_t at, float value) {
  char* p = static_cast<char*>(base) + at * static_cast<std::int64_t>(element_bytes(type));
  if (type == CUDA_R_32F) {
    std::memcpy(p, &value, sizeof value);
  } else {
    const std::uint16_t bits = type == CUDA_R_16F ? float_to_half(value) : float_to_bfloat16(value);
    std::memcpy(p, &bits, sizeof bits);
  }
}

// sum[i + j * m] = row i of op(A) times column j of op(B), in the TN layout: both are contiguous
// along k.
void int8_sums(const LtProblem& p, const std::int8_t* a, const std::int8_t* b, std::int32_t* sum) {
  for (std::int64_t j = 0; j < p.n; ++j)
    for (std::int64_t i = 0; i < p.m; ++i) {
      const std::int8_t* x = a + i * p.a.ld;
      const std::int8_t* y = b + j * p.b.ld;
      // Unsigned arithmetic wraps on overflow, as a GPU's sums do.
      std::uint32_t s = 0;
      for (std::int64_t k = 0; k < p.k; ++k)
        s += static_cast<std::uint32_t>(static_cast<std::int32_t>(x[k]) * y[k]);
      sum[i + j * p.m] = static_cast<std::int32_t>(s);
    }
}

float rounded_to(std::uint32_t type, float value) {
  float rounded = 0.0f;
  write_float(&rounded, type, 0, value);
  return read_float(&rounded, type, 0);
}

// An element as the instructions of the compute type read it: tf32 drops the last 13 bits.
float factor(std::int32_t compute, float value) {
  if (compute != CUBLAS_COMPUTE_32F_FAST_TF32) return value;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & ~0x1fffu);
}

// Floating point sums of a product: each in f32, in the order of k. The inner loop over i is
// vectorized. Parts of a split K are rounded to D's type if they are added up in that type.
void float_sums(const LtProblem& p, const LtAlgo& algo, const void* a, const void* b, float* sum) {
  std::vector<float> wide(static_cast<std::size_t>(p.m * p.k));  // [k][m]
  const bool ta = p.desc.transa != CUBLAS_OP_N;
  const bool tb = p.desc.transb != CUBLAS_OP_N;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t k = 0; k < p.k; ++k)
      wide[static_cast<std::size_t>(k * p.m + i)] =
          factor(p.desc.compute, read_float(a, p.a.type, ta ? i * p.a.ld + k : k * p.a.ld + i));
  std::fill(sum, sum + p.m * p.n, 0.0f);
  const bool in_place = algo.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE;
  const bool rounds_parts = p.rounds_to_16_bits() &&
                            (in_place || algo.reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
  const std::int64_t piece = rounds_parts ? (p.k + algo.split_k - 1) / algo.split_k : p.k;
  std::vector<float> part(static_cast<std::size_t>(p.m));
  for (std::int64_t j = 0; j < p.n; ++j)
    for (std::int64_t begin = 0; begin < p.k; begin += piece) {
      std::fill(part.begin(), part.end(), 0.0f);
      for (std::int64_t k = begin; k < std::min(begin + piece, p.k); ++k) {
        const float y =
            factor(p.desc.compute, read_float(b, p.b.type, tb ? k * p.b.ld + j : j * p.b.ld + k));
        const float* x = wide.data() + k * p.m;
        for (std::int64_t i = 0; i < p.m; ++i)
          part[static_cast<std::size_t>(i)] += x[i] * y;
      }
      float* out = sum + j * p.m;
      for (std::int64_t i = 0; i < p.m; ++i) {
        const float one = part[static_cast<std::size_t>(i)];
        out[i] += rounds_parts ? rounded_to(p.d.type, one) : one;
        if (rounds_parts && in_place) out[i] = rounded_to(p.d.type, out[i]);
      }
    }
}

// D = alpha * sums + beta * C, modulo 2^32 as on a GPU.
void store_integers(const LtProblem& p, LtScalars scalars, const std::vector<std::int32_t>& sums,
                    const void* c, void* d) {
  const auto word = [](auto number) {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(number));
  };
  for (std::int64_t j = 0; j < p.n; ++j)
    for (std::int64_t i = 0; i < p.m; ++i) {
      std::uint32_t value = word(scalars.alpha) * word(sums[static_cast<std::size_t>(i + j * p.m)]);
      if (scalars.beta != 0.0)
        value += word(scalars.beta) * word(static_cast<const std::int32_t*>(c)[i + j * p.c.ld]);
      static_cast<std::uint32_t*>(d)[i + j * p.d.ld] = value;
    }
}

void store_floats(const LtProblem& p, const LtAlgo& algo, LtScalars scalars,
                  const std::vector<float>& sums, const void* c, void* d) {
  const auto alpha = static_cast<float>(scalars.alpha);
  const auto beta = static_cast<float>(scalars.beta);
  for (std::int64_t j = 0; j < p.n; ++j)
    for (std::int64_t i = 0; i < p.m; ++i) {
      float value = alpha * sums[static_cast<std::size_t>(i + j * p.m)];
      // With beta = 0, C is not read: it may contain NaN.
      if (beta != 0.0f) value += beta * read_float(c, p.c.type, i + j * p.c.ld);
      // Observed in cuBLASLt 13.1 on 9.0: the sum over the parts of a split K is written in D's
      // type, and a bias is added to that.
      if (p.has_bias() && algo.split_k > 1) value = rounded_to(p.d.type, value);
      if (p.has_bias())
        value += read_float(p.desc.bias, static_cast<std::uint32_t>(p.bias_type), i);
      write_float(d, p.d.type, i + j * p.d.ld, value);
    }
}

}  // namespace

void compute_product(const LtProblem& p, const LtAlgo& algo, LtScalars scalars, const void* a,
                     const void* b, const void* c, void* d, bool corrupt) {
  const auto size = static_cast<std::size_t>(p.m * p.n);
  if (p.int8()) {
    std::vector<std::int32_t> sums(size);
    int8_sums(p, static_cast<const std::int8_t*>(a), static_cast<const std::int8_t*>(b),
              sums.data());
    store_integers(p, scalars, sums, c, d);
  } else {
    std::vector<float> sums(size);
    float_sums(p, algo, a, b, sums.data());
    store_floats(p, algo, scalars, sums, c, d);
  }
  if (corrupt) {
    const std::int64_t last = (p.m - 1) + (p.n - 1) * p.d.ld;
    static_cast<char*>(d)[last * static_cast<std::int64_t>(element_bytes(p.d.type))] ^= 1;
  }
}

}  // namespace switchback_cuda_emu
