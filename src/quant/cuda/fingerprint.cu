// SPDX-License-Identifier: Apache-2.0
// Device code: whether a weight has changed since its codes were made. The answer stays on the
// device, where the kernels that compute codes read it (Launch::changed).
//
// The hash is that of quant/fingerprint.hpp with two levels of NH and keys by Philox, whose words
// are assumed to be random:
// 1. A lane of a warp reduces up to 512 bytes, 16 of each 512 of a chunk, to three sums:
//      sum[t] = Σ_i (m[2i] + k[2i + 4·32·t]) · (m[2i+1] + k[2i+1 + 4·32·t])  mod 2^64.
//    Two that differ have the same three sums with a probability of at most 2^-96.
// 2. The six words of these are reduced in the same way, with twelve words of the key that belong
//    only to this position in the matrix. The results are added over all positions, so they do not
//    depend on the order.
// A change is missed with a probability of at most 2^-95.
#include <algorithm>

#include "core/cuda/philox.cuh"
#include "quant/cuda/kernels.hpp"
#include "quant/cuda/shapes.cuh"

namespace switchback::quant::cuda {

namespace {

using core::cuda::philox_words;

constexpr int threads = 256;
constexpr int turns = 32;  // packs of 16 bytes of a chunk that a lane processes
constexpr int sums = 3;
constexpr std::int64_t chunk_packs = turns * 32;

struct FingerprintArguments {
  const unsigned char* x;
  std::int64_t rows, row_bytes, stride;  // in bytes
  std::int64_t across, chunks;           // chunks of a row, and of all rows
  core::cuda::PhiloxKeys keys;
  std::uint64_t stream;
  WeightProof* proof;
  unsigned codes;  // the codes to check: bit i is proof->of[i]
  bool packed;     // rows begin at multiples of 16
};

__device__ __forceinline__ uint4 key_words(const FingerprintArguments& a, unsigned x, unsigned y) {
  return philox_words(a.keys, make_uint4(x, y, static_cast<unsigned>(a.stream),
                                         static_cast<unsigned>(a.stream >> 32)));
}

__device__ __forceinline__ std::uint64_t pair(unsigned a, unsigned b, unsigned key_a,
                                              unsigned key_b) {
  return static_cast<std::uint64_t>(a + key_a) * (b + key_b);
}
__device__ __forceinline__ std::uint64_t pairs(const uint4& m, const uint4& key) {
  return pair(m.x, m.y, key.x, key.y) + pair(m.z, m.w, key.z, key.w);
}

// Loads the bytes [at, at + 16) of a row, with zeros after its end.
__device__ __forceinline__ uint4 load_bytes(const unsigned char* row, std::int64_t at,
                                            const FingerprintArguments& a) {
  if (a.packed && at + 16 <= a.row_bytes) return __ldg(reinterpret_cast<const uint4*>(row + at));
  unsigned words[4] = {};
#pragma unroll
  for (int i = 0; i < 16; ++i)
    if (at + i < a.row_bytes) words[i / 4] |= static_cast<unsigned>(row[at + i]) << (8 * (i % 4));
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Called when the whole grid has added its sums: compares them with the stored ones, and clears
// them for the next check.
__device__ __forceinline__ void finish(WeightProof& proof, unsigned codes) {
  std::uint64_t now[sums];
  for (int t = 0; t < sums; ++t)
    now[t] = atomicExch(&proof.sums[t], 0ull);
  proof.tickets = 0;
  bool changed = false;
  for (unsigned i = 0; i < 2; ++i) {
    if ((codes >> i & 1u) == 0) continue;
    CodesProof& of = proof.of[i];
    changed |= of.known == 0;
    of.known = 1;
    for (int t = 0; t < sums; ++t) {
      changed |= of.sums[t] != now[t];
      of.sums[t] = now[t];
    }
  }
  proof.changed = changed ? 1 : 0;
}

// Computes the hash of a weight, and compares it. Lower bound: each byte is read once. A warp
// processes chunks of 16 KiB, with eight packs of a lane in flight. For each 16 bytes: six wide
// products, twelve additions, and one read of shared memory. Then, for each 512 bytes, 36
// instructions and three Philox words of four. At most 96 registers; 17 KiB of shared memory.
__global__ void __launch_bounds__(threads, 2) fingerprint_kernel(FingerprintArguments a) {
  constexpr int in_flight = 8;
  __shared__ __align__(16) uint4 keys[(turns + sums - 1) * 32];
  __shared__ unsigned long long of_warps[threads / 32][sums];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  for (int i = thread; i < (turns + sums - 1) * 32; i += threads)
    keys[i] = key_words(a, static_cast<unsigned>(i), 0);
  __syncthreads();
  std::uint64_t total[sums] = {};
  for (std::int64_t chunk = static_cast<std::int64_t>(blockIdx.x) * (threads / 32) + warp;
       chunk < a.chunks; chunk += static_cast<std::int64_t>(gridDim.x) * (threads / 32)) {
    const Place at = place_of(chunk, a.across);
    const unsigned char* const row = a.x + at.down * a.stride;
    const std::int64_t first = (at.across * chunk_packs + lane) * 16;
    std::uint64_t sum[sums] = {};
    uint4 key0 = keys[lane];
    uint4 key1 = keys[32 + lane];
#pragma unroll 1
    for (int turn = 0; turn < turns && first + turn * 512 < a.row_bytes; turn += in_flight) {
      uint4 m[in_flight];
#pragma unroll
      for (int i = 0; i < in_flight; ++i)
        m[i] = load_bytes(row, first + (turn + i) * 512, a);
#pragma unroll
      for (int i = 0; i < in_flight; ++i) {
        const uint4 key2 = keys[(turn + i + 2) * 32 + lane];
        sum[0] += pairs(m[i], key0);
        sum[1] += pairs(m[i], key1);
        sum[2] += pairs(m[i], key2);
        key0 = key1;
        key1 = key2;
      }
    }
    unsigned key[12];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const uint4 four =
          key_words(a, static_cast<unsigned>(chunk), static_cast<unsigned>(1 + lane * 3 + i));
      key[i * 4] = four.x;
      key[i * 4 + 1] = four.y;
      key[i * 4 + 2] = four.z;
      key[i * 4 + 3] = four.w;
    }
#pragma unroll
    for (int t = 0; t < sums; ++t)
#pragma unroll
      for (int i = 0; i < sums; ++i)
        total[t] += pair(static_cast<unsigned>(sum[i]), static_cast<unsigned>(sum[i] >> 32),
                         key[2 * (i + t)], key[2 * (i + t) + 1]);
  }
#pragma unroll
  for (int t = 0; t < sums; ++t) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      const unsigned low = __shfl_xor_sync(all_lanes, static_cast<unsigned>(total[t]), lanes);
      const unsigned high =
          __shfl_xor_sync(all_lanes, static_cast<unsigned>(total[t] >> 32), lanes);
      total[t] += static_cast<std::uint64_t>(high) << 32 | low;
    }
    if (lane == 0) of_warps[warp][t] = total[t];
  }
  __syncthreads();
  if (thread != 0) return;
  for (int t = 0; t < sums; ++t) {
    unsigned long long of_block = 0;
    for (int w = 0; w < threads / 32; ++w)
      of_block += of_warps[w][t];
    atomicAdd(&a.proof->sums[t], of_block);
  }
  __threadfence();
  if (atomicAdd(&a.proof->tickets, 1u) != gridDim.x - 1) return;
  __threadfence();
  finish(*a.proof, a.codes);
}

}  // namespace

cudaError_t launch_fingerprint(const Launch& launch, ConstAnyMatrix x,
                               const std::uint64_t (&seed)[2], WeightProof* proof, unsigned codes) {
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(x.dtype));
  FingerprintArguments a{};
  a.x = static_cast<const unsigned char*>(x.data);
  a.rows = x.rows;
  a.row_bytes = x.cols * element;
  a.stride = x.stride * element;
  if (a.stride == a.row_bytes) {  // one long row
    a.rows = 1;
    a.row_bytes = a.stride = x.rows * a.row_bytes;
  }
  a.across = divide_up<std::int64_t>(a.row_bytes, chunk_packs * 16);
  a.chunks = a.across * a.rows;
  a.keys = core::cuda::PhiloxKeys(seed[0]);
  a.stream = seed[1];
  a.proof = proof;
  a.codes = codes;
  a.packed = is_multiple(x.data, 16) && (a.rows == 1 || a.stride % 16 == 0);
  const std::int64_t blocks = std::min<std::int64_t>(
      divide_up<std::int64_t>(a.chunks, threads / 32), launch.multiprocessors * std::int64_t{4});
  return core::cuda::launch("fingerprint", fingerprint_kernel, dim3(grid_of(blocks)), dim3(threads),
                            0, launch.stream, a);
}

}  // namespace switchback::quant::cuda
