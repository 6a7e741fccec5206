// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: causal attention of bf16 on AMX tiles. Like the tile kernels of products
// (src/gemm/int8/cpu/tiles), its source is compiled for its own instruction set, so this has
// neither a standard header nor inline code.
#pragma once

#include <stdint.h>

namespace switchback::models::amx {

// Elements are bf16, strides and widths in elements, and pointers at the columns of a head.
struct Rows {
  const uint16_t* data;
  int64_t stride;
};
struct Results {
  uint16_t* data;
  int64_t stride;
  bool streams;  // past the caches
};

// Rows that a core is told to read while it computes.
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

// A head of one sequence: queries, keys and values of a token lie `width` apart.
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

// `scratch` has so many bytes and begins a cache line.
int64_t forward_bytes(int64_t length, int64_t dim);
int64_t backward_bytes(int64_t length, int64_t dim);
void forward(const Forward& task, void* scratch, Times* times);
void backward(const Backward& head, void* scratch, Times* times);

// Whether this build has them. They need CpuFeatures::amx_bf16.
bool is_built();

}  // namespace switchback::models::amx
