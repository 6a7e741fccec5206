// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: argument structs of the bf16 attention kernels. Like the tile kernels of
// int8 products (src/gemm/int8/cpu/tiles), the kernels are compiled with flags for their own
// instruction sets, so this file has neither a standard header nor inline code.
#pragma once

#include <stdint.h>

namespace switchback::models::bf16 {

// Rows of one head in a larger matrix of bf16. Pointers point to the head's columns; strides and
// widths are in elements.
struct Rows {
  const uint16_t* data;
  int64_t stride;
};
struct Results {
  uint16_t* data;
  int64_t stride;
  bool streams;  // stores bypass the caches
};

// Rows that a core prefetches for the next task while it computes.
struct AheadPart {
  const uint16_t* data;
  int64_t stride, rows;
};
struct Ahead {
  AheadPart parts[5];
  int count;
};

// Times of a task by part, and the clock `now` in ns.
struct Times {
  int64_t (*now)();
  int64_t products_ns, softmax_ns;
};

// One head of one sequence. The query, key and value of a token are in one row, `width` elements
// apart.
struct Head {
  Rows qkv;
  int64_t width, length, dim;
  float scale;
};

// Arguments of a forward task, which computes out and logsumexp of the queries [begin, end) of a
// head; begin is a multiple of 256. The pointers to results point to those of the head's first
// query.
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

// The attention kernels for one instruction set. `scratch` must have the size that forward_bytes or
// backward_bytes returns, and must begin at a cache line.
struct Kernels {
  int64_t (*forward_bytes)(int64_t length, int64_t dim);
  int64_t (*backward_bytes)(int64_t length, int64_t dim);
  void (*forward)(const Forward& task, void* scratch, Times* times);
  void (*backward)(const Backward& head, void* scratch, Times* times);
};

// The kernels for each instruction set; null if this build does not have them.
const Kernels* kernels_of_amx();     // need CpuFeatures::amx_bf16
const Kernels* kernels_of_avx512();  // need CpuFeatures::avx512_bf16

}  // namespace switchback::models::bf16
