/* SPDX-License-Identifier: Apache-2.0 */
/* Entry zone: the C ABI. Compiles as C99 and as C++; needs nothing but this header.
 *
 * Conventions, for every function here:
 * - A function that can fail returns a status, 0 for success. switchback_last_error() says what was
 *   wrong with the last call that failed in the calling thread. No C++ exception crosses.
 * - A failed call leaves its outputs, *out included, as they were. (A failure of the machine in the
 *   middle of a call, SWITCHBACK_DEVICE_ERROR, is the exception: outputs are then undefined. So are
 *   they where a BLAS library finds no memory while it computes: oneDNN's dnnl_sgemm and
 *   dnnl_gemm_s8s8s32 ask for some then.)
 * - A pointer must not be NULL unless its name ends in _or_null or its comment says so.
 * - Matrices and scales are memory of the context's device that the caller owns. They need not be
 *   aligned. Outputs must not overlap inputs or each other.
 * - Shapes are given as [rows, cols]; counts and strides are in elements, *_bytes in bytes.
 * - Structs that begin with struct_size only grow at the end, and are told apart by it: set it to
 *   sizeof(the struct) and the rest to zero before filling it in. An older, smaller struct is taken
 *   with the defaults for what it lacks; a newer, larger one as long as what this library does not
 *   know is zero (up to 4096 bytes); any other size is refused.
 * - A context, and all that was made with it, is used by one thread at a time. Different contexts
 *   may be used at the same time.
 * - After fork() a child may use and destroy its parent's CPU contexts and what was made with them,
 *   and create its own. All its work is done by the calling thread, with the results of one thread
 *   (built without OpenMP, contexts it creates have threads again). A CUDA context does not
 *   survive: its calls return SWITCHBACK_INVALID_STATE; the child may only destroy it. Fork while
 *   no other thread is inside a call of this library: a lock that it holds (the tuner's, in its
 *   first look-up of a problem) stays locked in the child. Children of vfork() may only exec.
 *
 * Y[M,N] = X[M,K] . W[N,K]^T + b; dX = G . W; dW = G^T . X; db = column sums of G.
 */
#ifndef SWITCHBACK_SWITCHBACK_H
#define SWITCHBACK_SWITCHBACK_H

#include <stddef.h>
#include <stdint.h>

#include "switchback/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions ---------------------------------------------------------------------------------
 */

/* The ABI this header declares. A library of the same major version and of the same or a higher
 * minor version serves programs that were compiled with it. */
#define SWITCHBACK_ABI_VERSION_MAJOR 1
#define SWITCHBACK_ABI_VERSION_MINOR 5

/* The library's ABI version: major << 16 | minor. */
SWITCHBACK_API uint32_t switchback_abi_version(void);
/* The library's release, as "0.1.0". */
SWITCHBACK_API const char* switchback_version_string(void);

/* ---- Status -----------------------------------------------------------------------------------
 */

typedef int32_t switchback_status;
enum {
  SWITCHBACK_OK = 0,
  SWITCHBACK_INVALID_ARGUMENT =
      1,                        /* a shape, stride, pointer, dtype, name or value breaks a rule */
  SWITCHBACK_UNSUPPORTED = 2,   /* valid, but this build, machine or engine cannot do it */
  SWITCHBACK_OUT_OF_MEMORY = 3, /* memory could not be had; outputs are as they were */
  SWITCHBACK_DEVICE_ERROR = 4,  /* the device is missing or failed */
  SWITCHBACK_IO_ERROR = 5,      /* a file could not be read or written */
  SWITCHBACK_INVALID_STATE = 6, /* the object cannot do this now (backward before forward, ...) */
  SWITCHBACK_INTERNAL = 7       /* a defect of the library: please report it */
};

/* "ok", "invalid_argument", ...; "unknown" for a value that is none. */
SWITCHBACK_API const char* switchback_status_name(switchback_status status);

/* The message of the last call that failed in this thread: the argument, its value and the rule it
 * breaks. Never NULL; empty before the first failure. A call that succeeds leaves it as it is. The
 * text stays valid until the next failure in this thread; very long ones are cut. */
SWITCHBACK_API const char* switchback_last_error(void);

/* ---- Matrices ---------------------------------------------------------------------------------
 */

/* Element types. */
enum {
  SWITCHBACK_F32 = 0,
  SWITCHBACK_F16 = 1,
  SWITCHBACK_BF16 = 2,
  SWITCHBACK_S8 = 3,
  SWITCHBACK_S32 = 4
};

/* A row-major matrix that the caller owns: element (r, c) is data[r * stride + c], stride >= cols.
 * data may be NULL when rows or cols is 0. The layout is frozen. */
typedef struct switchback_matrix {
  void* data;
  int32_t dtype; /* SWITCHBACK_F32, ... */
  int64_t rows;
  int64_t cols;
  int64_t stride; /* in elements */
} switchback_matrix;

/* ---- Contexts ---------------------------------------------------------------------------------
 */

/* One device with its threads or stream and a workspace that grows to the largest need. On a CUDA
 * device every pointer (matrices, scales, biases) is of that device, and calls are queued on the
 * stream and do not wait. */
typedef struct switchback_context switchback_context;

typedef struct switchback_context_options {
  size_t struct_size;
  const char* device; /* "cpu", "cuda", "cuda:0"; NULL or "" = the best there is */
  int32_t threads;    /* CPU threads; 0 = all cores this process may use. If they cannot be created:
                         SWITCHBACK_OUT_OF_MEMORY */
  void* stream;    /* CUDA stream to queue on, the caller's, which outlives the context; NULL = an
                      own one, ordered with the legacy default stream; NULL on the CPU */
  const char* isa; /* upper bound on the CPU's instruction set: "scalar", "sse4", "avx2",
                      "avx_vnni", "avx512", "avx512_vnni", "amx"; NULL or "" = none */
  /* Since 1.1. CUDA: where device memory comes from; both functions or none, none on the CPU.
   * allocate gives at least `bytes`, 256-byte aligned, for use in the order of the stream, or NULL;
   * release gets it back, with a NULL stream once the context is gone. */
  void* (*allocate)(void* user, size_t bytes, void* stream);
  void (*release)(void* user, void* data, size_t bytes, void* stream);
  void* allocator_user;
  /* Since 1.2. What is done with tuned configurations: "off", "read" (look them up in the cache of
   * this machine), "record" (and write down what is missing, for `switchback-bench tune`), "tune"
   * (measure what is missing when it is first met), "require" (what is missing is an error); NULL
   * or "" = $SWITCHBACK_TUNE, else "read". "record" and "tune" write under a lock; they wait at
   * most a second, in all, for another process that holds it. What is remembered of look-ups takes
   * below 2 MB and 350 bytes for each problem in the cache, however many distinct problems there
   * are. */
  const char* tune;
  /* The directory of the cache; NULL or "" = $SWITCHBACK_TUNE_CACHE, else the user's cache. */
  const char* tune_cache;
} switchback_context_options;

/* NULL options are the defaults. */
SWITCHBACK_API switchback_status switchback_context_create(
    const switchback_context_options* options_or_null, switchback_context** out);
/* Layers made with the context go on working; it lives until the last of them is destroyed. */
SWITCHBACK_API void switchback_context_destroy(switchback_context* or_null);

/* The device, as "cpu", and the instruction set in use; both live as long as the context. */
SWITCHBACK_API switchback_status switchback_context_device(const switchback_context* context,
                                                           const char** out);
SWITCHBACK_API switchback_status switchback_context_isa(const switchback_context* context,
                                                        const char** out);
SWITCHBACK_API switchback_status switchback_context_threads(const switchback_context* context,
                                                            int32_t* out);
/* Since 1.1. CUDA: waits until everything queued on the context's stream is done, and reports what
 * went wrong in it. Nothing on the CPU, where calls return when they are done. */
SWITCHBACK_API switchback_status switchback_context_synchronize(switchback_context* context);
/* Since 1.3. CUDA: queues on another stream of the device from here on, the caller's, behind what
 * was queued before; both streams must exist. NULL is refused: name the legacy default stream as
 * cudaStreamLegacy, (void*)1. Refused on the CPU too, where there is none, and while the present
 * stream is being captured. The other stream may be one that is being captured: its graph does not
 * wait for what was queued before, so the caller sees to that, by waiting for the stream or the
 * device before the capture, as torch.cuda.graph does. */
SWITCHBACK_API switchback_status switchback_context_set_stream(switchback_context* context,
                                                               void* stream);
/* Bytes of scratch memory held now. */
SWITCHBACK_API switchback_status
switchback_context_workspace_bytes(const switchback_context* context, size_t* out);

/* Since 1.2. Look-ups of tuned configurations so far; refused: misses among them for which there is
 * an entry that cannot be used here. All zero where tune is "off". */
typedef struct switchback_tune_counters {
  int64_t hits;
  int64_t misses;
  int64_t refused;
} switchback_tune_counters;
SWITCHBACK_API switchback_status switchback_context_tune_counters(const switchback_context* context,
                                                                  switchback_tune_counters* out);
/* Since 1.2. What a person should know of the cache: entries that cannot be used, with the reason,
 * lines that cannot be read, a cache that cannot be written; one a line, "" if there is nothing.
 * The text stays valid until the next call with this context. */
SWITCHBACK_API switchback_status switchback_context_tune_warnings(switchback_context* context,
                                                                  const char** out);

/* An engine: one implementation of an operation, and whether it can run on this context. */
typedef struct switchback_engine_info {
  const char* name;
  int32_t available;  /* 1 or 0 */
  const char* reason; /* why not; "" when available */
} switchback_engine_info;

/* The operations that have engines to choose from. */
enum {
  SWITCHBACK_ENGINES_QUANTIZE = 0,
  SWITCHBACK_ENGINES_GEMM = 1,         /* the int8 products */
  SWITCHBACK_ENGINES_GEMM_STANDARD = 2 /* the floating point products */
};

/* The engines of an operation in order of preference: *out points at *count of them, which live as
 * long as the context. */
SWITCHBACK_API switchback_status switchback_engines(switchback_context* context, int32_t operation,
                                                    const switchback_engine_info** out,
                                                    size_t* count);

/* ---- Quantization -----------------------------------------------------------------------------
 *
 * absmax is the largest |x| of a row, a column or the matrix, in f32; the code of an element is
 * round_half_even(127 * (x / absmax)), from -127 to 127. A group of zeros has absmax 0 and codes 0.
 * A group that holds a NaN has absmax NaN, else one that holds an Inf has absmax Inf, and its codes
 * are 0: what is computed from it is NaN. Inputs are f32, f16 or bf16; codes are s8.
 */

/* q[M,K] and absmax[M] from x[M,K]. */
SWITCHBACK_API switchback_status switchback_quantize_rowwise(switchback_context* context,
                                                             const switchback_matrix* x,
                                                             const switchback_matrix* q,
                                                             float* absmax);
/* The same of g[M,N], and column_sums[N] of g in f32, from one read of g. accumulate: 1 adds to
 * what column_sums holds, 0 overwrites. */
SWITCHBACK_API switchback_status switchback_quantize_rowwise_column_sums(
    switchback_context* context, const switchback_matrix* g, const switchback_matrix* q,
    float* absmax, float* column_sums, int32_t accumulate);
/* column_sums[N] of g[M,N] alone, equal to those above bit for bit. */
SWITCHBACK_API switchback_status switchback_column_sums(switchback_context* context,
                                                        const switchback_matrix* g,
                                                        float* column_sums, int32_t accumulate);
/* q_t[K,N] and absmax[K] from w[N,K]: one scale per column of w, codes stored transposed. */
SWITCHBACK_API switchback_status
switchback_quantize_columnwise_transpose(switchback_context* context, const switchback_matrix* w,
                                         const switchback_matrix* q_t, float* absmax);
/* q[N,K] and absmax[1] from w[N,K]. */
SWITCHBACK_API switchback_status switchback_quantize_global(switchback_context* context,
                                                            const switchback_matrix* w,
                                                            const switchback_matrix* q,
                                                            float* absmax);
/* q_t[K,N] and absmax[1] from w[N,K], codes stored transposed. */
SWITCHBACK_API switchback_status switchback_quantize_global_transpose(switchback_context* context,
                                                                      const switchback_matrix* w,
                                                                      const switchback_matrix* q_t,
                                                                      float* absmax);
/* Both layouts from one read of w[N,K]: q[N,K] with absmax_rows[N], q_t[K,N] with absmax_cols[K].
 */
SWITCHBACK_API switchback_status switchback_quantize_rowwise_and_columnwise_transpose(
    switchback_context* context, const switchback_matrix* w, const switchback_matrix* q,
    float* absmax_rows, const switchback_matrix* q_t, float* absmax_cols);
/* Both layouts from one read of w[N,K]: q[N,K] and q_t[K,N] with absmax[1]. */
SWITCHBACK_API switchback_status switchback_quantize_global_and_transpose(
    switchback_context* context, const switchback_matrix* w, const switchback_matrix* q,
    const switchback_matrix* q_t, float* absmax);
/* x[M,K] = absmax[M] * (q[M,K] / 127), rounded once to the type of x. */
SWITCHBACK_API switchback_status switchback_dequantize_rowwise(switchback_context* context,
                                                               const switchback_matrix* q,
                                                               const float* absmax,
                                                               const switchback_matrix* x);
/* q[M,K] = x[M,K] without a scale: truncated toward zero, clamped to [-128, 127], NaN to 0. */
SWITCHBACK_API switchback_status switchback_cast_to_int8(switchback_context* context,
                                                         const switchback_matrix* x,
                                                         const switchback_matrix* q);

/* Since 1.4. What is done to each element between two layers: x/2 . (1 + tanh(sqrt(2/pi) . (x +
 * 0.044715 x^3))), and x/2 . (1 + erf(x/sqrt(2))). */
enum { SWITCHBACK_NO_ACTIVATION = 0, SWITCHBACK_GELU_TANH = 1, SWITCHBACK_GELU_ERF = 2 };

/* Since 1.4. y[M,K] = activation(x[M,K]), in the type of x: computed in f32, within 2^-22 .
 * max(1, |x|), and rounded once. */
SWITCHBACK_API switchback_status switchback_activation_forward(switchback_context* context,
                                                               const switchback_matrix* x,
                                                               int32_t activation,
                                                               const switchback_matrix* y);
/* Since 1.4. dx[M,K] = g[M,K] . activation'(x[M,K]); g and dx in one type, that of x or f32. */
SWITCHBACK_API switchback_status switchback_activation_backward(switchback_context* context,
                                                                const switchback_matrix* g,
                                                                const switchback_matrix* x,
                                                                int32_t activation,
                                                                const switchback_matrix* dx);
/* Since 1.4. q[M,K], absmax[M] of activation(x[M,K]), and that itself too unless y is NULL: in one
 * pass what switchback_activation_forward and then switchback_quantize_rowwise give. */
SWITCHBACK_API switchback_status switchback_activation_forward_quantize(
    switchback_context* context, const switchback_matrix* x, int32_t activation,
    const switchback_matrix* q, float* absmax, const switchback_matrix* y_or_null);
/* Since 1.4. dx[M,N] = g[M,N] . activation'(x[M,N]), all in one type, its q[M,N] and absmax[M], and
 * (unless NULL) its column_sums[N], added to what they hold if accumulate is 1. */
SWITCHBACK_API switchback_status switchback_activation_backward_quantize(
    switchback_context* context, const switchback_matrix* g, const switchback_matrix* x,
    int32_t activation, const switchback_matrix* dx, const switchback_matrix* q, float* absmax,
    float* column_sums_or_null, int32_t accumulate);

/* Since 1.5. A fingerprint of x[rows,cols], of any dtype: of shape, dtype and the bits of the
 * elements. Within a process equal matrices have equal ones, and two given matrices that differ
 * have the same one with a probability of at most 2^-95 (up to 1 TiB each), over a key that the
 * process draws at its first call. It reads x once, a fraction of what quantizing x costs, and so
 * tells whether codes made of x are still those of x. CPU only: SWITCHBACK_UNSUPPORTED elsewhere,
 * where it would have to wait for the stream. */
SWITCHBACK_API switchback_status switchback_fingerprint(switchback_context* context,
                                                        const switchback_matrix* x,
                                                        uint64_t out[2]);

/* ---- Products ---------------------------------------------------------------------------------
 */

/* An int8 matrix b[N,K] arranged once for the engine that reads it many times. It owns its memory.
 */
typedef struct switchback_packed_weight switchback_packed_weight;

/* A new one holds nothing until switchback_pack_weight. */
SWITCHBACK_API switchback_status switchback_packed_weight_create(switchback_packed_weight** out);
SWITCHBACK_API void switchback_packed_weight_destroy(switchback_packed_weight* or_null);
/* Packs b[N,K] (s8) into packed, in place of what that held. engine_or_null forces an engine by
 * name. b is not needed afterwards. */
SWITCHBACK_API switchback_status switchback_pack_weight(switchback_context* context,
                                                        const switchback_matrix* b,
                                                        switchback_packed_weight* packed,
                                                        const char* engine_or_null);
SWITCHBACK_API switchback_status
switchback_packed_weight_bytes(const switchback_packed_weight* packed, size_t* out);

/* d[M,N] (s32) = a[M,K] . b[N,K]^T of int8 matrices, exact: up to K = 131071 whatever the codes, up
 * to K = 133144 of codes from -127 to 127, which all quantizers make. A larger K is refused. So is
 * a code of -128 between the two, by the CPU (in packed weights, when they are packed); a CUDA
 * device does not look, and its sums could overflow there. This holds for
 * switchback_gemm_dequantize too.
 */
SWITCHBACK_API switchback_status switchback_gemm_s8s8s32(switchback_context* context,
                                                         const switchback_matrix* a,
                                                         const switchback_matrix* b,
                                                         const switchback_matrix* d);
/* The same with b packed. */
SWITCHBACK_API switchback_status switchback_gemm_s8s8s32_packed(
    switchback_context* context, const switchback_matrix* a,
    const switchback_packed_weight* packed_b, const switchback_matrix* d);

/* d[M,N] = absmax_b * (absmax_a * ((a[M,K] . b[N,K]^T) / 127^2)) + bias, rounded once to d's type.
 */
typedef struct switchback_gemm_args {
  size_t struct_size;
  switchback_matrix a, b, d;                /* a, b: s8; d: f32, f16 or bf16 */
  const float* absmax_a;                    /* [M] */
  const float* absmax_b;                    /* [N] or [1] */
  int64_t absmax_b_count;                   /* N or 1 */
  const void* bias;                         /* [N] or NULL */
  int32_t bias_dtype;                       /* f32, f16 or bf16 */
  const switchback_packed_weight* packed_b; /* takes the place of b, whose data is then NULL */
  const char* engine;                       /* forces an engine by name; NULL = chosen */
} switchback_gemm_args;

SWITCHBACK_API switchback_status switchback_gemm_dequantize(switchback_context* context,
                                                            const switchback_gemm_args* args);

/* d[M,N] (+)= op(a) . op(b) (+ bias) in floating point, op transposing where asked; sums in f32. */
typedef struct switchback_gemm_standard_args {
  size_t struct_size;
  switchback_matrix a, b; /* both f32, both f16 or both bf16 */
  switchback_matrix d;    /* that type or f32 */
  int32_t transpose_a;    /* 0 or 1, as the two below */
  int32_t transpose_b;
  int32_t accumulate; /* add to what d holds */
  int32_t bias_dtype; /* f32, f16 or bf16 */
  const void* bias;   /* [N] or NULL */
  const char* engine; /* forces an engine by name; NULL = chosen */
} switchback_gemm_standard_args;

SWITCHBACK_API switchback_status
switchback_gemm_standard(switchback_context* context, const switchback_gemm_standard_args* args);

/* ---- The linear layer -------------------------------------------------------------------------
 */

/* How a layer computes. */
enum {
  SWITCHBACK_STANDARD = 0,             /* no int8 */
  SWITCHBACK_ROWWISE = 1,              /* SwitchBack Q: X per row, W per row, per column for dX */
  SWITCHBACK_GLOBAL = 2,               /* SwitchBack: X per row, one scale for W */
  SWITCHBACK_GLOBAL_MEM_EFFICIENT = 3, /* SwitchBack M: as global, saves int8 X for backward */
  SWITCHBACK_AUTO = 4                  /* chosen by the library */
};

typedef struct switchback_linear switchback_linear;

typedef struct switchback_linear_options {
  size_t struct_size;
  int64_t in_features;  /* K */
  int64_t out_features; /* N */
  int32_t mode;         /* SWITCHBACK_ROWWISE, ... */
  int32_t dtype;        /* of x, weight and g: f32, f16 or bf16 */
  const char* engine;   /* forces an engine by name; NULL = chosen; NULL in mode auto */
  /* Since 1.2. Mode auto: the modes it may use for a pass, 1 << SWITCHBACK_STANDARD | 1 <<
   * SWITCHBACK_ROWWISE | 1 << SWITCHBACK_GLOBAL or some of them; 0 = all three. It takes the
   * fastest of them as it was tuned, and standard, if allowed, where nothing was. */
  uint32_t allow;
  uint32_t reserved; /* not read */
  /* Since 1.4. What x goes through first, SWITCHBACK_GELU_TANH, ...: y = activation(x) . W^T + b.
   * dx stays the gradient of x, dw is that of activation(x). */
  int32_t activation;
  /* Since 1.4. 1: on a device, backward computes dw on a stream of its own, beside the passes of
   * dx. The results are the same. */
  int32_t overlap_dw;
} switchback_linear_options;

SWITCHBACK_API switchback_status switchback_linear_create(switchback_context* context,
                                                          const switchback_linear_options* options,
                                                          switchback_linear** out);
SWITCHBACK_API void switchback_linear_destroy(switchback_linear* or_null);

/* weight[N,K] in the layer's dtype and bias[1,N] (f32, f16 or bf16; NULL or NULL data: none): the
 * caller's memory, borrowed until replaced. Leaves eval mode. The layer does not see changes of the
 * elements: until switchback_linear_weight_updated, forwards and backwards use int8 codes of what
 * the weight was, and the results are wrong without an error. Compare values of
 * switchback_fingerprint where others may write to the weight unseen. */
SWITCHBACK_API switchback_status
switchback_linear_set_weight(switchback_linear* linear, const switchback_matrix* weight,
                             const switchback_matrix* bias_or_null);
/* To be called when the elements of the weight or the bias have changed. Leaves eval mode. */
SWITCHBACK_API switchback_status switchback_linear_weight_updated(switchback_linear* linear);
/* Since 1.2. The mode in which a forward over `rows` rows (save_for_backward as below) and its dX
 * would run now: the layer's own, or what mode auto takes. */
SWITCHBACK_API switchback_status switchback_linear_pass_modes(const switchback_linear* linear,
                                                              int64_t rows,
                                                              int32_t save_for_backward,
                                                              int32_t* forward, int32_t* dx);
/* Quantizes and packs the weight and drops what only training needs. In the int8 modes the caller's
 * weight may be freed afterwards. backward is refused until the weight is set or updated again. */
SWITCHBACK_API switchback_status switchback_linear_prepare_for_eval(switchback_linear* linear);

/* Since 1.3. The weight as codes[N,K] (s8, from -127 to 127) and their scales: absmax[N], one a
 * row, in mode rowwise, absmax[1] in the modes global and global_mem_efficient; refused in the
 * others. What switchback_quantize_rowwise and switchback_quantize_global make of a weight gives
 * the layer that prepare_for_eval gives. Everything is copied and may be freed afterwards (on a
 * CUDA device once the stream is there). The layer is then prepared for eval; it trains again after
 * set_weight. A code of -128 is refused on the CPU; a CUDA device does not check, because the call
 * would have to wait for it. */
SWITCHBACK_API switchback_status switchback_linear_set_quantized_weight(
    switchback_linear* linear, const switchback_matrix* codes, const float* absmax,
    int64_t absmax_count, const switchback_matrix* bias_or_null);

/* What forward keeps for backward. */
enum {
  SWITCHBACK_SAVE_NOTHING = 0, /* inference; an earlier saved forward stays saved */
  SWITCHBACK_SAVE_COPY = 1,    /* what backward needs of x is copied into the layer */
  /* x stays the caller's and must not change until backward has run; a forward whose output takes
   * its memory forgets the one that borrowed it. */
  SWITCHBACK_SAVE_BORROW = 2,
  /* Since 1.3. The caller keeps x, or its codes, for switchback_linear_backward_from; an earlier
   * saved forward stays saved. */
  SWITCHBACK_SAVE_CALLER = 3
};

/* y[M,N] (the layer's dtype or f32) from x[M,K] (the layer's dtype). A saving forward that
 * runs out of memory drops what an earlier one saved. */
SWITCHBACK_API switchback_status switchback_linear_forward(switchback_linear* linear,
                                                           const switchback_matrix* x,
                                                           const switchback_matrix* y,
                                                           int32_t save_for_backward);

typedef struct switchback_linear_grads {
  size_t struct_size;
  switchback_matrix g;  /* [M,N], the layer's dtype: the gradient of y */
  switchback_matrix dx; /* [M,K]; this and the two below: the layer's dtype or f32, */
  switchback_matrix dw; /* [N,K]                          NULL data = skip */
  switchback_matrix db; /* [1,N] */
  int32_t accumulate;   /* 1: add into dw and db; dx is always overwritten */
  int32_t reserved;     /* not read */
  /* Since 1.4. Where g is the gradient of y_activation(y): y[M,N] in the layer's dtype, what
   * forward wrote, and what it went through. g . y_activation'(y), rounded to g's type, takes the
   * place of g, in the pass that quantizes it. */
  switchback_matrix y;
  int32_t y_activation; /* SWITCHBACK_NO_ACTIVATION: y has NULL data */
  /* Since 1.4. 1: dx of a layer with an activation is the gradient of activation(x), not of x: for
   * the layer that made x, as its g with y_activation. The only one there is where codes are all
   * that was kept of x (global_mem_efficient). */
  int32_t dx_of_activation;
} switchback_linear_grads;

/* Gradients of the last forward that saved; may be called more than once for it. */
SWITCHBACK_API switchback_status switchback_linear_backward(switchback_linear* linear,
                                                            const switchback_linear_grads* grads);

/* Since 1.3. A forward with SWITCHBACK_SAVE_CALLER that also hands out what it made of x:
 * codes[M,K] (s8) and absmax[M]. A caller who keeps these instead of x needs a quarter or half of
 * the memory. For the int8 modes. */
SWITCHBACK_API switchback_status switchback_linear_forward_codes(switchback_linear* linear,
                                                                 const switchback_matrix* x,
                                                                 const switchback_matrix* y,
                                                                 const switchback_matrix* codes,
                                                                 float* absmax);
/* Since 1.3. Gradients of a forward whose input the caller kept, whatever forwards ran since:
 * x[M,K] in the layer's dtype with NULL absmax; or its codes (s8) and absmax[M], from which dw is
 * that of the dequantized input. x may be NULL where grads skips dw; where it skips dx, no weight
 * need be set, and the one that is need not exist any more. Saved forwards are not looked at. */
SWITCHBACK_API switchback_status
switchback_linear_backward_from(switchback_linear* linear, const switchback_linear_grads* grads,
                                const switchback_matrix* x_or_null, const float* absmax_or_null);

/* Bytes kept for backward (a borrowed x counts), and bytes of quantized and packed weights cached.
 */
SWITCHBACK_API switchback_status
switchback_linear_saved_for_backward_bytes(const switchback_linear* linear, size_t* out);
SWITCHBACK_API switchback_status
switchback_linear_cached_weight_bytes(const switchback_linear* linear, size_t* out);

#ifdef __cplusplus
}
#endif

#endif
