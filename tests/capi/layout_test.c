/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the C ABI that must not change: values of enumerators, and the layout of every
 * struct, on 64-bit systems. */
#include <stddef.h>

#include "capi/harness.h"

_Static_assert(sizeof(switchback_status) == 4, "status is an int32_t");
_Static_assert(SWITCHBACK_OK == 0 && SWITCHBACK_INVALID_ARGUMENT == 1 &&
                   SWITCHBACK_UNSUPPORTED == 2 && SWITCHBACK_OUT_OF_MEMORY == 3 &&
                   SWITCHBACK_DEVICE_ERROR == 4 && SWITCHBACK_IO_ERROR == 5 &&
                   SWITCHBACK_INVALID_STATE == 6 && SWITCHBACK_INTERNAL == 7,
               "status values are pinned");
_Static_assert(SWITCHBACK_F32 == 0 && SWITCHBACK_F16 == 1 && SWITCHBACK_BF16 == 2 &&
                   SWITCHBACK_S8 == 3 && SWITCHBACK_S32 == 4,
               "dtype values are pinned");
_Static_assert(SWITCHBACK_STANDARD == 0 && SWITCHBACK_ROWWISE == 1 && SWITCHBACK_GLOBAL == 2 &&
                   SWITCHBACK_GLOBAL_MEM_EFFICIENT == 3 && SWITCHBACK_AUTO == 4,
               "mode values are pinned");
_Static_assert(SWITCHBACK_SAVE_NOTHING == 0 && SWITCHBACK_SAVE_COPY == 1 &&
                   SWITCHBACK_SAVE_BORROW == 2,
               "save values are pinned");
_Static_assert(SWITCHBACK_ENGINES_QUANTIZE == 0 && SWITCHBACK_ENGINES_GEMM == 1 &&
                   SWITCHBACK_ENGINES_GEMM_STANDARD == 2 && SWITCHBACK_ENGINES_GEMM_BLOCKWISE == 3,
               "operation values are pinned");

#define AT(type, field, offset) \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field " is pinned")
#define SIZE(type, size) \
  _Static_assert(sizeof(type) == (size), "grown? add the field and the first size")

#if UINTPTR_MAX == 0xFFFFFFFFFFFFFFFFu
/* Frozen. */
AT(switchback_matrix, data, 0);
AT(switchback_matrix, dtype, 8);
AT(switchback_matrix, rows, 16);
AT(switchback_matrix, cols, 24);
AT(switchback_matrix, stride, 32);
_Static_assert(sizeof(switchback_matrix) == 40, "switchback_matrix is frozen");

/* The structs below may only grow: no offset ever changes. struct_size comes first, which
 * src/capi/arguments.hpp asserts. */
AT(switchback_context_options, device, 8);
AT(switchback_context_options, threads, 16);
AT(switchback_context_options, stream, 24);
AT(switchback_context_options, isa, 32);
AT(switchback_context_options, allocate, 40);
AT(switchback_context_options, release, 48);
AT(switchback_context_options, allocator_user, 56);
AT(switchback_context_options, tune, 64);
AT(switchback_context_options, tune_cache, 72);
SIZE(switchback_context_options, 80);

AT(switchback_context_info, device, 8);
AT(switchback_context_info, isa, 16);
AT(switchback_context_info, threads, 24);
AT(switchback_context_info, workspace_bytes, 32);
AT(switchback_context_info, tune_hits, 40);
AT(switchback_context_info, tune_misses, 48);
AT(switchback_context_info, tune_refused, 56);
SIZE(switchback_context_info, 64);

AT(switchback_quantize_args, x, 8);
AT(switchback_quantize_args, g, 48);
AT(switchback_quantize_args, activation, 88);
AT(switchback_quantize_args, rotation, 92);
AT(switchback_quantize_args, column_scales, 96);
AT(switchback_quantize_args, q, 104);
AT(switchback_quantize_args, absmax, 144);
AT(switchback_quantize_args, q_scale, 152);
AT(switchback_quantize_args, q_t_scale, 156);
AT(switchback_quantize_args, q_t, 160);
AT(switchback_quantize_args, absmax_t, 200);
AT(switchback_quantize_args, block_rows, 208);
AT(switchback_quantize_args, accumulate, 212);
AT(switchback_quantize_args, column_sums, 216);
AT(switchback_quantize_args, value, 224);
AT(switchback_quantize_args, rotated, 264);
AT(switchback_quantize_args, stochastic, 304);
AT(switchback_quantize_args, rounding_stream, 308);
AT(switchback_quantize_args, rounding_step, 312);
AT(switchback_quantize_args, rounding_seed, 320);
AT(switchback_quantize_args, rounding_row0, 328);
SIZE(switchback_quantize_args, 336);

AT(switchback_gemm_args, a, 8);
AT(switchback_gemm_args, b, 48);
AT(switchback_gemm_args, d, 88);
AT(switchback_gemm_args, packed_b, 128);
AT(switchback_gemm_args, absmax_a, 136);
AT(switchback_gemm_args, absmax_b, 144);
AT(switchback_gemm_args, absmax_b_count, 152);
AT(switchback_gemm_args, bias, 160);
AT(switchback_gemm_args, bias_dtype, 168);
AT(switchback_gemm_args, groups, 176);
AT(switchback_gemm_args, d_column_stride, 184);
AT(switchback_gemm_args, engine, 192);
SIZE(switchback_gemm_args, 200);

AT(switchback_gemm_standard_args, a, 8);
AT(switchback_gemm_standard_args, b, 48);
AT(switchback_gemm_standard_args, d, 88);
AT(switchback_gemm_standard_args, transpose_a, 128);
AT(switchback_gemm_standard_args, transpose_b, 132);
AT(switchback_gemm_standard_args, accumulate, 136);
AT(switchback_gemm_standard_args, bias_dtype, 140);
AT(switchback_gemm_standard_args, bias, 144);
AT(switchback_gemm_standard_args, groups, 152);
AT(switchback_gemm_standard_args, engine, 160);
SIZE(switchback_gemm_standard_args, 168);

AT(switchback_gemm_blockwise_args, a, 8);
AT(switchback_gemm_blockwise_args, b, 48);
AT(switchback_gemm_blockwise_args, d, 88);
AT(switchback_gemm_blockwise_args, absmax_a, 128);
AT(switchback_gemm_blockwise_args, absmax_b, 136);
AT(switchback_gemm_blockwise_args, block_rows, 144);
AT(switchback_gemm_blockwise_args, accumulate, 148);
AT(switchback_gemm_blockwise_args, m, 152);
AT(switchback_gemm_blockwise_args, engine, 160);
SIZE(switchback_gemm_blockwise_args, 168);

AT(switchback_linear_options, in_features, 8);
AT(switchback_linear_options, out_features, 16);
AT(switchback_linear_options, groups, 24);
AT(switchback_linear_options, mode, 32);
AT(switchback_linear_options, dtype, 36);
AT(switchback_linear_options, engine, 40);
AT(switchback_linear_options, allow, 48);
AT(switchback_linear_options, activation, 52);
AT(switchback_linear_options, overlap_dw, 56);
AT(switchback_linear_options, dw, 60);
AT(switchback_linear_options, dw_block_rows, 64);
AT(switchback_linear_options, rotation, 68);
AT(switchback_linear_options, transposed_weight, 72);
SIZE(switchback_linear_options, 80);

AT(switchback_kept_input, x, 8);
AT(switchback_kept_input, absmax, 48);
AT(switchback_kept_input, in_blocks, 56);
SIZE(switchback_kept_input, 64);

AT(switchback_linear_grads, g, 8);
AT(switchback_linear_grads, dx, 48);
AT(switchback_linear_grads, dw, 88);
AT(switchback_linear_grads, db, 128);
AT(switchback_linear_grads, accumulate, 168);
AT(switchback_linear_grads, y_activation, 172);
AT(switchback_linear_grads, y, 176);
AT(switchback_linear_grads, dx_of_activation, 216);
AT(switchback_linear_grads, stochastic, 220);
AT(switchback_linear_grads, rounding_stream, 224);
AT(switchback_linear_grads, rounding_step, 228);
AT(switchback_linear_grads, rounding_seed, 232);
AT(switchback_linear_grads, rounding_row0, 240);
SIZE(switchback_linear_grads, 248);

AT(switchback_layer_info, saved_for_backward_bytes, 8);
AT(switchback_layer_info, cached_weight_bytes, 16);
SIZE(switchback_layer_info, 24);

AT(switchback_groups, count, 8);
AT(switchback_groups, on_device, 12);
AT(switchback_groups, ends, 16);
AT(switchback_groups, rows_of, 24);
AT(switchback_groups, row_stride, 32);
AT(switchback_groups, column_stride, 40);
AT(switchback_groups, row_index, 48);
SIZE(switchback_groups, 56);

AT(switchback_fragmented_linear_options, in_features, 8);
AT(switchback_fragmented_linear_options, out_features, 16);
AT(switchback_fragmented_linear_options, fragments, 24);
AT(switchback_fragmented_linear_options, rank, 32);
AT(switchback_fragmented_linear_options, mode, 40);
AT(switchback_fragmented_linear_options, dtype, 44);
AT(switchback_fragmented_linear_options, engine, 48);
AT(switchback_fragmented_linear_options, allow, 56);
SIZE(switchback_fragmented_linear_options, 64);

AT(switchback_fragmented_weights, weight, 8);
AT(switchback_fragmented_weights, selector, 48);
AT(switchback_fragmented_weights, down, 88);
AT(switchback_fragmented_weights, up, 128);
SIZE(switchback_fragmented_weights, 168);

AT(switchback_fragmented_linear_grads, g, 8);
AT(switchback_fragmented_linear_grads, dx, 48);
AT(switchback_fragmented_linear_grads, dweight, 88);
AT(switchback_fragmented_linear_grads, dselector, 128);
AT(switchback_fragmented_linear_grads, ddown, 168);
AT(switchback_fragmented_linear_grads, dup, 208);
AT(switchback_fragmented_linear_grads, accumulate, 248);
SIZE(switchback_fragmented_linear_grads, 256);

AT(switchback_engine_info, name, 0);
AT(switchback_engine_info, available, 8);
AT(switchback_engine_info, reason, 16);
_Static_assert(sizeof(switchback_engine_info) == 24, "rows of an array: frozen");
#endif

void layout_tests(void) {
  static const char* const names[] = {
      "ok",           "invalid_argument", "unsupported",   "out_of_memory",
      "device_error", "io_error",         "invalid_state", "internal"};
  for (int32_t s = 0; s < (int32_t)COUNT(names); ++s)
    CHECK(strcmp(switchback_status_name(s), names[s]) == 0);
  CHECK(strcmp(switchback_status_name(8), "unknown") == 0);
  CHECK(strcmp(switchback_status_name(-1), "unknown") == 0);
  CHECK(strcmp(switchback_status_name(INT32_MIN), "unknown") == 0);

  CHECK(switchback_abi_version() ==
        ((uint32_t)SWITCHBACK_ABI_VERSION_MAJOR << 16 | SWITCHBACK_ABI_VERSION_MINOR));
  CHECK(switchback_abi_version() >> 16 == 1);
  int major = -1, minor = -1, patch = -1;
  CHECK(sscanf(switchback_version_string(), "%d.%d.%d", &major, &minor, &patch) == 3);
}
