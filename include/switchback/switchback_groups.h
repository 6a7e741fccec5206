/* SPDX-License-Identifier: Apache-2.0 */
/* Entry zone: the C ABI of groups of rows, a part of switchback.h, which includes this header and
 * has the conventions.
 */
#ifndef SWITCHBACK_SWITCHBACK_GROUPS_H
#define SWITCHBACK_SWITCHBACK_GROUPS_H

#include <stddef.h>
#include <stdint.h>

#include "switchback/export.h"
#include "switchback/switchback.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Rows of groups -------------------------------------------------------------------------- */

/* Quantizes the rows of x (f32, f16 or bf16) that the slots read: codes q[M,K] with one scale per
 * slot, absmax[M], as switchback_quantize_rowwise computes them. */
SWITCHBACK_API switchback_status switchback_grouped_quantize_rowwise(
    switchback_context* context, const switchback_matrix* x, const switchback_groups* groups,
    const switchback_matrix* q, float* absmax);

/* Computes out[T,N], whose row t is the sum of weights[t,i] * y[slots[t,i]] over i = 0, 1, ..., S-1
 * in this order; each product and each sum is rounded to f32, the last one then to the type of out.
 * y is [M,N], slots[T,S] s32 and weights[T,S] f32 (NULL: each is 1). A negative slot adds nothing;
 * a row without any slot is zero. This adds up the rows that the experts of a mixture computed for
 * each token. */
SWITCHBACK_API switchback_status switchback_combine(switchback_context* context,
                                                    const switchback_matrix* y,
                                                    const switchback_matrix* slots,
                                                    const switchback_matrix* weights_or_null,
                                                    const switchback_matrix* out);

/* ---- Linear layers with groups -----------------------------------------------------------------
 *
 * A switchback_linear with several groups is that many layers of one shape, each for its own group
 * of rows. Its weight is the groups' matrices stacked vertically, [G*N,K], and its bias is [G,N].
 * For each group every result has the bits of a layer with only that group's weight and rows.
 */

/* The forward of a layer for rows of groups: y[M,N] from the rows of x that the slots read.
 * groups->count is the layer's G. With SWITCHBACK_SAVE_COPY the arrays of groups are copied too;
 * with SWITCHBACK_SAVE_BORROW they and x must stay until backward has run. */
SWITCHBACK_API switchback_status switchback_linear_forward_groups(switchback_linear* linear,
                                                                  const switchback_groups* groups,
                                                                  const switchback_matrix* x,
                                                                  const switchback_matrix* y,
                                                                  int32_t save_for_backward);

/* Computes the gradients of a forward whose groups and input x the caller kept; saved forwards are
 * not used. (For a forward that saved, call switchback_linear_backward.) x may be NULL if grads
 * skips dw and the layer has no activation. If grads skips dx, the weight is not read. */
SWITCHBACK_API switchback_status switchback_linear_backward_groups(
    switchback_linear* linear, const switchback_linear_grads* grads,
    const switchback_groups* groups, const switchback_matrix* x_or_null);

/* ---- The fragmented linear layer ---------------------------------------------------------------
 *
 * x[B,K] is split into F fragments x_f of K/F columns. The logit of a fragment is the
 * inner product of x_f and s_f, and p is the softmax of a row's logits. There is no bias.
 *   soft: y = sum of p_f x_f W_f^T over f + ((1 - p) * x) C^T D^T
 *   hard: y = x_k W_k^T + (x without fragment k) C^T D^T, k: the largest logit
 * A layer trains soft and infers hard. The hard forward reads only the parts of W that some row has
 * selected. Scratch memory does not depend on F, nor on B except for vectors of K and N elements
 * per row.
 */

/* A fragmented layer. It borrows the caller's weights, and caches their codes. */
typedef struct switchback_fragmented_linear switchback_fragmented_linear;

/* The shape of a fragmented layer, and how it computes. */
typedef struct switchback_fragmented_linear_options {
  size_t struct_size;
  int64_t in_features;  /* K, a multiple of fragments */
  int64_t out_features; /* N */
  int64_t fragments;    /* F */
  int64_t rank;         /* R, the rank of C^T . D^T; 0: K/32, at least 1 */
  /* The mode of all products; not SWITCHBACK_GLOBAL_MEM_EFFICIENT or SWITCHBACK_ROWWISE_SHARED. */
  int32_t mode;
  int32_t dtype;      /* type of x, the weights and g: f32, f16 or bf16 */
  const char* engine; /* forces an engine by name; see switchback_linear_options */
  uint32_t allow;     /* what mode auto may use; see switchback_linear_options */
} switchback_fragmented_linear_options;

/* *out is a new layer. It needs weights before its first forward. */
SWITCHBACK_API switchback_status switchback_fragmented_linear_create(
    switchback_context* context, const switchback_fragmented_linear_options* options,
    switchback_fragmented_linear** out);
/* Frees the layer; the caller's weights stay. */
SWITCHBACK_API void switchback_fragmented_linear_destroy(switchback_fragmented_linear* or_null);

/* The four weights of a fragmented layer, all in its dtype. They are the caller's memory, borrowed
 * until replaced. */
typedef struct switchback_fragmented_weights {
  size_t struct_size;
  switchback_matrix weight;   /* W[N,K]: W_f are the columns of fragment f */
  switchback_matrix selector; /* s[F,K/F]: row f gives the logits of fragment f */
  switchback_matrix down;     /* C[R,K]: the first matrix of the product of low rank */
  switchback_matrix up;       /* D[N,R]: the second matrix of the product of low rank */
} switchback_fragmented_weights;

/* Sets the weights. After each change of their elements call
 * switchback_fragmented_linear_weights_updated, as for switchback_linear_set_weight. Leaves eval
 * mode. */
SWITCHBACK_API switchback_status switchback_fragmented_linear_set_weights(
    switchback_fragmented_linear* linear, const switchback_fragmented_weights* weights);
/* Tells the layer that elements of the weights have changed. Leaves eval mode. */
SWITCHBACK_API switchback_status
switchback_fragmented_linear_weights_updated(switchback_fragmented_linear* linear);
/* Quantizes and packs the weights for switchback_fragmented_linear_forward_hard. In the int8 modes
 * the caller's weights may be freed afterwards. The soft forward and backward are refused until
 * _weights_updated or _set_weights. */
SWITCHBACK_API switchback_status
switchback_fragmented_linear_prepare_for_eval(switchback_fragmented_linear* linear);

/* The soft forward: y[B,N] (the layer's dtype or f32) from x[B,K] (the layer's dtype).
 * save_for_backward is SWITCHBACK_SAVE_NOTHING, ...; only x is kept. */
SWITCHBACK_API switchback_status switchback_fragmented_linear_forward(
    switchback_fragmented_linear* linear, const switchback_matrix* x, const switchback_matrix* y,
    int32_t save_for_backward);
/* The hard forward. Of equal logits the first fragment is taken; NaN is less than any number. */
SWITCHBACK_API switchback_status switchback_fragmented_linear_forward_hard(
    switchback_fragmented_linear* linear, const switchback_matrix* x, const switchback_matrix* y);

/* What backward of a fragmented layer reads (g) and computes, in the layer's dtype; outputs may
 * also be f32. An output with NULL data is skipped. */
typedef struct switchback_fragmented_linear_grads {
  size_t struct_size;
  switchback_matrix g;         /* [B,N], the layer's dtype: the gradient of y */
  switchback_matrix dx;        /* [B,K]: the gradient of x */
  switchback_matrix dweight;   /* [N,K]: the gradient of W */
  switchback_matrix dselector; /* [F,K/F]: the gradient of s */
  switchback_matrix ddown;     /* [R,K]: the gradient of C */
  switchback_matrix dup;       /* [N,R]: the gradient of D */
  int32_t accumulate;          /* 1: add to the values in the outputs; dx is always overwritten */
} switchback_fragmented_linear_grads;

/* Computes the gradients of the last soft forward that saved; may be called more than once for one
 * forward. With x_or_null: of a soft forward whose x the caller kept; saved forwards are not
 * used. */
SWITCHBACK_API switchback_status switchback_fragmented_linear_backward(
    switchback_fragmented_linear* linear, const switchback_fragmented_linear_grads* grads,
    const switchback_matrix* x_or_null);

/* Writes the memory that the layer holds now to *out, whose struct_size the caller has set. */
SWITCHBACK_API switchback_status switchback_fragmented_linear_get_info(
    const switchback_fragmented_linear* linear, switchback_layer_info* out);

#ifdef __cplusplus
}
#endif

#endif
