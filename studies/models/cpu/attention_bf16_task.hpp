// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: the arguments of the kernels of bf16 attention. Like the tile kernels of
// products (src/gemm/int8/cpu/tiles), their sources are compiled for their own instruction sets, so
// this file has neither a standard header nor inline code.
#pragma once

#include <stdint.h>

namespace switchback::models::bf16 {

// Elements are bf16, strides and widths are in elements, and pointers are to the columns of a head.
struct Rows {
  const uint16_t* data;
  int64_t stride;
};
struct Results {
  uint16_t* data;
  int64_t stride;
  bool streams;  // stores bypass the caches
};

// Rows that a core prefetches while it computes.
struct AheadPart {
  const uint16_t* data;
  int64_t stride, rows;
};
struct Ahead {
  AheadPart parts[5];
  int count;
};

// Time spent, if `now` is given.
struct Times {
  int64_t (*now)();
  int64_t products_ns, softmax_ns;
};

// A head of one sequence: the queries, keys and values of a token are `width` apart.
struct Head {
  Rows qkv;
  int64_t width, length, dim;
  float scale;
};

// out and logsumexp of the queries [begin, end) of a head; begin is a multiple of 256. Pointers to
// results are those of the head's first query.
struct Forward {
  Head head;
  int64_t begin, end;
  Results out;
  float* logsumexp;
  Ahead ahead;
};
struct Backward {
  Head head;
  Rows out, dout;
  const float* logsumexp;
  Results dqkv;
  Ahead ahead;
};

// The kernels of one instruction set. `scratch` has the size that forward_bytes or backward_bytes
// returns, and begins at a cache line.
struct Kernels {
  int64_t (*forward_bytes)(int64_t length, int64_t dim);
  int64_t (*backward_bytes)(int64_t length, int64_t dim);
  void (*forward)(const Forward& task, void* scratch, Times* times);
  void (*backward)(const Backward& head, void* scratch, Times* times);
};

// Null if this build does not have them.
const Kernels* kernels_of_amx();     // they need CpuFeatures::amx_bf16
const Kernels* kernels_of_avx512();  // they need CpuFeatures::avx512_bf16

}  // namespace switchback::models::bf16
