// SPDX-License-Identifier: Apache-2.0
// Engine zone: the shapes of the fused products; each tile size is compiled in its own file. Beside
// each: threads per block, registers per thread and shared memory per block, as ptxas reports them
// (CUDA 13.0, CUTLASS 4.2.0), the same for the three output types; those of 8.x are of code
// for 8.0. None spills.
#pragma once

#include "gemm/int8/cuda/fused/fused.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

// 8.x and 12.x. Two blocks of the first fit on a multiprocessor of any of them, so that one's
// epilogue hides behind the other's products; the large ones read less of a and b for each product.
extern const FusedVariant fused_sm80_128x128x64;    // 128 threads, 246 registers, 48 KiB
extern const FusedVariant fused_sm80_128x128x64_5;  // the same with five stages, 80 KiB
extern const FusedVariant fused_sm80_256x128x64;    // 256 threads, 226 registers, 96 KiB
extern const FusedVariant fused_sm80_128x256x64;    // 256 threads, 226 registers, 96 KiB
// For few rows, where reading b takes the time: narrow tiles, so that more blocks read it.
extern const FusedVariant fused_sm80_64x128x64;  // 128 threads, 150 registers, 48 KiB
extern const FusedVariant fused_sm80_64x256x64;  // 128 threads, 228 registers, 80 KiB
extern const FusedVariant fused_sm80_32x64x128;  // 128 threads, 72 registers, 72 KiB
// The same with deep stages: half the barriers, and more on the way.
extern const FusedVariant fused_sm80_64x128x128;  // 128 threads, 154 registers, 96 KiB
extern const FusedVariant fused_sm80_64x64x128;   // 128 threads, 96 registers, 64 KiB
extern const FusedVariant fused_sm80_16x64x128;   // 64 threads, 72 registers, 50 KiB
// Half the barriers per product, on devices whose blocks may have this much shared
// memory: 8.0, 8.7.
extern const FusedVariant fused_sm80_256x128x128;  // 256 threads, 242 registers, 144 KiB
extern const FusedVariant fused_sm80_128x256x128;  // 256 threads, 242 registers, 144 KiB

// Hopper: large tiles by two groups of warps that work on one tile together; smaller ones by groups
// that take turns, so that one's epilogue hides behind the other's products. In clusters of two
// blocks that share b (2x1) or a (1x2), or alone: an odd number of tiles leaves half a cluster
// idle. All have 384 threads with 168 registers each before the groups of warps redistribute them.
extern const FusedVariant fused_sm90_128x256_2x1;  // 210.5 KiB
extern const FusedVariant fused_sm90_128x256_1x2;
extern const FusedVariant fused_sm90_128x256_1x1;
extern const FusedVariant fused_sm90_256x128_2x1;  // 226 KiB
extern const FusedVariant fused_sm90_256x128_1x2;
extern const FusedVariant fused_sm90_128x128_2x1;  // 210 KiB
extern const FusedVariant fused_sm90_128x128_1x2;
extern const FusedVariant fused_sm90_128x128_1x1;
extern const FusedVariant fused_sm90_128x192_2x1;  // 205.8 KiB; its tiles of f32 by both groups
extern const FusedVariant fused_sm90_64x128_1x1;   // 225.5 KiB
extern const FusedVariant fused_sm90_64x128_2x1;
extern const FusedVariant fused_sm90_64x128_1x4;
extern const FusedVariant fused_sm90_64x256_1x1;  // 219 KiB
extern const FusedVariant fused_sm90_64x256_2x1;
// Stages twice as deep, for few rows: twice as many bytes of b in one copy.
extern const FusedVariant fused_sm90_64x64x256_1x1;
extern const FusedVariant fused_sm90_64x64x256_1x4;
// For very few rows, by transposing: sm90_swapped.cuh.
extern const FusedVariant fused_sm90_16x64x256;
// For fewer tiles than multiprocessors: blocks share the products of a tile, and add up the sums.
extern const FusedVariant fused_sm90_128x128_stream_k;
extern const FusedVariant fused_sm90_32x128_stream_k;  // by transposing

// Compute capability 10.0: an epilogue reads the sums of one tile while the next are made. By
// single blocks, or by pairs (2x1) that multiply one tile together, of whose columns each loads
// half. All have 256 threads.
extern const FusedVariant fused_sm100_128x256_2x1;  // 162 to 168 registers, 210.5 KiB
extern const FusedVariant fused_sm100_128x256_1x1;
extern const FusedVariant fused_sm100_128x128_2x1;  // 162 to 164 registers, 226 KiB
extern const FusedVariant fused_sm100_128x128_1x1;
extern const FusedVariant fused_sm100_128x64_2x1;  // 160 to 164 registers, 217 KiB
extern const FusedVariant fused_sm100_128x64_1x1;  // 226 KiB
extern const FusedVariant fused_sm100_64x64_1x1;   // 127 or 128 registers, 226 KiB

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
