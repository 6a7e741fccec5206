/* SPDX-License-Identifier: Apache-2.0 */
/* Entry zone: the C ABI. Compiles as C99 and as C++; needs nothing but this header.
 *
 * Conventions, for every function here:
 * - A function that can fail returns a status, 0 for success. switchback_last_error() gives the
 *   message of the last call that failed in the calling thread. No C++ exception leaves a call.
 * - A failed call leaves its outputs, *out included, unchanged. Two failures leave them undefined:
 *   of the device in the middle of a call (SWITCHBACK_DEVICE_ERROR), and of a BLAS library that
 *   runs out of memory while it computes: OpenBLAS, or oneDNN's matmul where it calls an older
 *   product. (Where dnnl_sgemm or dnnl_gemm_s8s8s32 does, this library computes the product
 *   without memory, slowly.)
 * - A pointer must not be NULL unless its name ends in _or_null or its comment says so.
 * - Matrices and scales are memory of the context's device that the caller owns. They need not be
 *   aligned. Outputs must not overlap inputs or each other.
 * - Shapes are given as [rows, cols]; counts and strides are in elements, *_bytes in bytes.
 * - Structs that begin with struct_size grow only at the end. Zero the struct, then set struct_size
 *   to its sizeof; a member that is zero has its default. A smaller struct, of an older header,
 *   gets defaults for the members it lacks. A larger one, of a newer header and of at most 4096
 *   bytes, is accepted if the members unknown to this library are zero. Any other size is refused.
 * - A context and the objects made with it are used by one thread at a time. Different contexts may
 *   be used at the same time.
 * - After fork() a child may use and destroy its parent's CPU contexts and the objects made with
 *   them, and may create its own. The calling thread then does all the work, and results are those
 *   of one thread. (In a build without OpenMP, contexts created by the child have threads again.) A
 *   CUDA context does not survive: its calls return SWITCHBACK_INVALID_STATE, and the child may
 *   only destroy it. Fork while no other thread is inside a call of this library: a lock which that
 *   thread holds (the tuner's, during its first look-up of a problem) stays locked in the child. A
 *   child of vfork() may only exec.
 *
 * Y[M,N] = X[M,K] . W[N,K]^T + b; dX = G . W; dW = G^T . X; db = column sums of G.
 */
#ifndef SWITCHBACK_SWITCHBACK_H
#define SWITCHBACK_SWITCHBACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "switchback/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions -------------------------------------------------------------------------------- */

/* The ABI that this header declares. A program compiled with it runs with every library of the same
 * major version and the same or a higher minor version. */
#define SWITCHBACK_ABI_VERSION_MAJOR 1
/* Functions, constants and members at the end of structs are added with a higher minor version. */
#define SWITCHBACK_ABI_VERSION_MINOR 0

/* The library's ABI version: major << 16 | minor. */
SWITCHBACK_API uint32_t switchback_abi_version(void);
/* The library's release, as "0.1.0". */
SWITCHBACK_API const char* switchback_version_string(void);

/* ---- Status ---------------------------------------------------------------------------------- */

typedef int32_t switchback_status; /* SWITCHBACK_OK, ... */
/* What a call returns: success, or the kind of failure. */
enum {
  SWITCHBACK_OK = 0,               /* success */
  SWITCHBACK_INVALID_ARGUMENT = 1, /* a shape, pointer, dtype, name or value breaks a rule */
  SWITCHBACK_UNSUPPORTED = 2,      /* a valid call that this build, machine or engine cannot do */
  SWITCHBACK_OUT_OF_MEMORY = 3,    /* an allocation failed; outputs are unchanged */
  SWITCHBACK_DEVICE_ERROR = 4,     /* the device is missing or failed */
  SWITCHBACK_IO_ERROR = 5,         /* a file could not be read or written */
  SWITCHBACK_INVALID_STATE = 6, /* the object cannot do this now (backward before forward, ...) */
  SWITCHBACK_INTERNAL = 7       /* a bug in the library: please report it */
};

/* The name of a status: "ok", "invalid_argument", ...; "unknown" for any other value. */
SWITCHBACK_API const char* switchback_status_name(switchback_status status);

/* The message of the last call that failed in this thread: the argument, its value and the rule it
 * breaks. Never NULL; empty before the first failure. A call that succeeds does not change it. The
 * text stays valid until the next failure in this thread; a very long message is cut. */
SWITCHBACK_API const char* switchback_last_error(void);

/* ---- Matrices -------------------------------------------------------------------------------- */

/* Element types of matrices. */
enum {
  SWITCHBACK_F32 = 0,  /* float */
  SWITCHBACK_F16 = 1,  /* IEEE 754 binary16 */
  SWITCHBACK_BF16 = 2, /* the upper half of a float */
  SWITCHBACK_S8 = 3,   /* int8: quantized codes */
  SWITCHBACK_S32 = 4   /* int32: exact sums of int8 products */
};

/* A row-major matrix that the caller owns: element (r, c) is data[r * stride + c], stride >= cols.
 * data may be NULL when rows or cols is 0. The layout is frozen. */
typedef struct switchback_matrix {
  void* data;     /* element (0, 0) */
  int32_t dtype;  /* SWITCHBACK_F32, ... */
  int64_t rows;   /* the number of rows */
  int64_t cols;   /* the number of columns */
  int64_t stride; /* elements from the start of one row to that of the next */
} switchback_matrix;

/* ---- Contexts -------------------------------------------------------------------------------- */

/* One device with its threads or stream, and a workspace that grows to the largest size needed. On
 * a CUDA device every pointer (matrices, scales, biases) refers to memory of that device, and calls
 * are queued on the stream and do not wait. */
typedef struct switchback_context switchback_context;

/* The device of a context, and where its memory and its configurations come from. */
typedef struct switchback_context_options {
  size_t struct_size;
  const char* device; /* "cpu", "cuda", "cuda:0"; NULL or "" = the best device of this machine */
  int32_t threads;    /* CPU threads; 0 = all cores this process may use. If they cannot be created:
                         SWITCHBACK_OUT_OF_MEMORY */
  void* stream; /* CUDA: the caller's stream, which must outlive the context. NULL = create one,
                   ordered with the legacy default stream. On the CPU: NULL */
  /* Upper bound on the CPU's instruction set: "scalar", or of x86 "sse4", "avx2", "avx_vnni",
   * "avx512", "avx512_vnni", "amx", or of 64-bit Arm "neon", "neon_dotprod", "neon_i8mm"; NULL or
   * "" = no bound. The error for an unknown name lists all. */
  const char* isa;
  /* CUDA: supplies device memory. Set allocate and release, or neither; neither on the CPU.
   * allocate returns at least `bytes`, 256-byte aligned, for use in the order of the stream, or
   * NULL on failure. */
  void* (*allocate)(void* user, size_t bytes, void* stream);
  /* Takes back what allocate returned; the stream is NULL once the context is destroyed. */
  void (*release)(void* user, void* data, size_t bytes, void* stream);
  void* allocator_user; /* the first argument of allocate and release */
  /* How to look up tuned configurations: "off": not at all; "read": in the cache of this machine;
   * "record": also write missing problems to a file, for `switchback-bench tune`; "tune": measure a
   * missing problem when it is first met; "require": a missing problem is an error. NULL or "" =
   * $SWITCHBACK_TUNE, else "read". "record" and "tune" write under a lock and wait at most one
   * second in total for another process that holds it. The memory for look-ups stays below 2 MB
   * plus 380 bytes for each problem in the cache, however many distinct problems there are. */
  const char* tune;
  /* The directory of the cache; NULL or "" = $SWITCHBACK_TUNE_CACHE, else the user's cache. */
  const char* tune_cache;
} switchback_context_options;

/* Creates a context in *out; without options it has the defaults. */
SWITCHBACK_API switchback_status switchback_context_create(
    const switchback_context_options* options_or_null, switchback_context** out);
/* Destroys a context. Layers made with it go on working: it is freed with the last of them. */
SWITCHBACK_API void switchback_context_destroy(switchback_context* or_null);

/* What a context is and what it holds now. */
typedef struct switchback_context_info {
  size_t struct_size;
  const char* device;     /* "cpu", "cuda:0"; this text and isa live as long as the context */
  const char* isa;        /* the instruction set in use */
  int32_t threads;        /* CPU threads; 1 on a CUDA device */
  size_t workspace_bytes; /* scratch memory held */
  int64_t tune_hits;      /* look-ups that found a tuned configuration; 0 if tune is "off" */
  int64_t tune_misses;    /* look-ups that found no tuned configuration */
  int64_t tune_refused;   /* misses that found an entry which cannot be used here */
} switchback_context_info;

/* Fills in *out, whose struct_size the caller has set. */
SWITCHBACK_API switchback_status switchback_context_get_info(const switchback_context* context,
                                                             switchback_context_info* out);
/* CUDA: waits until everything queued on the context's stream is done. Reports an error if any of
 * it failed, or if arrays of a grouped operation in the device's memory had invalid values
 * (SWITCHBACK_INVALID_ARGUMENT). Does nothing on the CPU, where calls return when they are done. */
SWITCHBACK_API switchback_status switchback_context_synchronize(switchback_context* context);
/* CUDA: queues calls on `stream`, the caller's, from now on. They run after what was
 * queued on the previous stream; both streams must exist. Refused: NULL (the legacy default stream
 * is cudaStreamLegacy, (void*)1), a CPU context, and a previous stream that is being captured. The
 * new stream may be one that is being captured. A graph cannot wait for work queued before its
 * capture, so the caller must ensure that order: wait for the stream or the device before the
 * capture, as torch.cuda.graph does. */
SWITCHBACK_API switchback_status switchback_context_set_stream(switchback_context* context,
                                                               void* stream);
/* Warnings about the cache: entries that cannot be used, with the reason, lines that
 * cannot be read, a cache that cannot be written. One per line; "" if there are none. The text
 * stays valid until the next call with this context. */
SWITCHBACK_API switchback_status switchback_context_tune_warnings(switchback_context* context,
                                                                  const char** out);

/* An engine: one implementation of an operation, and whether it can run on this context. */
typedef struct switchback_engine_info {
  const char* name;   /* selects this engine in members `engine` */
  int32_t available;  /* 1 if the engine can run on the context, else 0 */
  const char* reason; /* why the engine cannot run; "" when available */
} switchback_engine_info;

/* The operations that have engines to choose from. */
enum {
  SWITCHBACK_ENGINES_QUANTIZE = 0,      /* switchback_quantize */
  SWITCHBACK_ENGINES_GEMM = 1,          /* the int8 products */
  SWITCHBACK_ENGINES_GEMM_STANDARD = 2, /* the floating point products */
  SWITCHBACK_ENGINES_GEMM_BLOCKWISE = 3 /* switchback_gemm_blockwise */
};

/* The engines of an operation in order of preference. *out points to *count of them; they live as
 * long as the context. */
SWITCHBACK_API switchback_status switchback_engines(switchback_context* context, int32_t operation,
                                                    const switchback_engine_info** out,
                                                    size_t* count);

/* ---- Quantization -----------------------------------------------------------------------------
 *
 * absmax is the largest |x| of a row, a column or the matrix, in f32; the code of an element is
 * round_half_even(127 * (x / absmax)), from -127 to 127. A group of zeros has absmax 0 and codes 0.
 * A group that holds a NaN has absmax NaN, otherwise one that holds an Inf has absmax Inf; its
 * codes are 0, and everything computed from it is NaN. Inputs are f32, f16 or bf16; codes are s8.
 */

/* An elementwise function between two layers. Computed in f32, within 2^-22 . max(1, |x|), and
 * rounded once. */
enum {
  SWITCHBACK_NO_ACTIVATION = 0, /* x */
  SWITCHBACK_GELU_TANH = 1,     /* x/2 . (1 + tanh(sqrt(2/pi) . (x + 0.044715 x^3))) */
  SWITCHBACK_GELU_ERF = 2       /* x/2 . (1 + erf(x/sqrt(2))) */
};

/* Which codes share a scale. */
enum {
  SWITCHBACK_SCALE_PER_ROW = 0, /* one scale for each row of the codes */
  SWITCHBACK_SCALE_GLOBAL = 1,  /* one scale for the whole matrix */
  SWITCHBACK_SCALE_NONE = 2 /* for q: x truncated toward zero, clamped to [-128, 127], NaN to 0 */
};

/* What switchback_quantize computes from one read of x[M,K]. Results are made from v[M,K], which is
 * x, activation(x) or g . activation'(x), rounded once to the type of x (of g). A result whose
 * pointers are all NULL is not computed. */
typedef struct switchback_quantize_args {
  size_t struct_size;
  switchback_matrix x; /* f32, f16 or bf16 */
  switchback_matrix g; /* the gradient that v = g . activation'(x) reads, or NULL data: of x's type,
                          or f32 if no codes are wanted */
  int32_t activation;  /* SWITCHBACK_GELU_TANH, ... */
  /* 0 = no rotation, or 4, 16, 64, 256 or 1024, of which K is a multiple: codes are those of
   * rotate(v), in which each group of that many neighbouring elements of a row is multiplied by the
   * Hadamard matrix of that size. It is its own inverse, except for roundings. */
  int32_t rotation;
  const float* column_scales; /* [K] or NULL: q is made from v with each column times its scale, in
                                 f32; other results from v itself */

  switchback_matrix q; /* [M,K] s8, the codes of v */
  float* absmax; /* the scales of q: [M] or [1], as q_scale says; NULL with SWITCHBACK_SCALE_NONE */
  int32_t q_scale; /* SWITCHBACK_SCALE_PER_ROW, ... */

  int32_t q_t_scale;     /* SWITCHBACK_SCALE_PER_ROW (one for each column of v) or ..._GLOBAL */
  switchback_matrix q_t; /* [K,M] s8, the codes of v's transpose */
  float* absmax_t;       /* the scales of q_t: [K] or [1]; NULL if absmax has one scale for both */
  /* 0, or 128, 256, 512 or 1024: q_t has one scale for each column of a block of that many rows,
   * for products that sum over rows. B = ceil(M / block_rows); q_t is [K, B . block_rows], with 0
   * after the last row, and absmax_t is [B,K]. */
  int32_t block_rows;

  int32_t accumulate;        /* 1: column_sums are added to the values there; 0: they overwrite */
  float* column_sums;        /* [K] in f32: the sums of the columns of v */
  switchback_matrix value;   /* [M,K]: v itself; only with an activation */
  switchback_matrix rotated; /* [M,K]: rotate(v), rounded once to its type: that of v, f32, or any
                                of f32, f16 and bf16 if v is f32. It may be x */

  /* 1: codes are rounded stochastically: those of rows, or those of blocks. The random bits of an
   * element are Philox4x32-10 of the key rounding_seed and the counter {column / 8, rounding_row0 +
   * row, rounding_stream, rounding_step}. 0: to nearest, and the members below are not read. */
  int32_t stochastic;
  uint32_t rounding_stream; /* a counter word, for example the number of a layer */
  uint32_t rounding_step;   /* a counter word, for example the number of the training step */
  uint64_t rounding_seed;   /* the key of Philox4x32-10 */
  int64_t rounding_row0;    /* the number of row 0 in the whole batch; row numbers are below 2^32 */
} switchback_quantize_args;

/* Computes the wanted results in one pass. SWITCHBACK_UNSUPPORTED: no pass computes all of them;
 * use several calls. The passes for each kind of v, with what each can add in brackets:
 * - x: q per row [column_sums] [column_scales] [q_t of blocks]; q per row and q_t per column; q and
 *   q_t global; one of q, q_t, column_sums and rotated; with a rotation q per row
 * - activation(x): value; q per row [value], also with a rotation
 * - g . activation'(x): value; q per row [value] [column_sums]
 * - x, stochastic: q per row [column_scales]; q_t of blocks
 */
SWITCHBACK_API switchback_status switchback_quantize(switchback_context* context,
                                                     const switchback_quantize_args* args);
/* x[M,K] = absmax[M] * (q[M,K] / 127), rounded once to the type of x. */
SWITCHBACK_API switchback_status switchback_dequantize_rowwise(switchback_context* context,
                                                               const switchback_matrix* q,
                                                               const float* absmax,
                                                               const switchback_matrix* x);

/* The fingerprint of x[rows,cols], of any dtype: a hash of shape, dtype and the bits of the
 * elements. Within a process equal matrices have equal fingerprints. Two given matrices that differ
 * have equal fingerprints with a probability of at most 2^-95 (up to 1 TiB each), over a random key
 * that the process draws at its first call. A fingerprint reads x once, at a fraction of the cost
 * of quantizing it, so it can tell whether codes of x are still valid. CPU only: on a CUDA
 * device it would have to wait for the stream, so it returns SWITCHBACK_UNSUPPORTED. */
SWITCHBACK_API switchback_status switchback_fingerprint(switchback_context* context,
                                                        const switchback_matrix* x,
                                                        uint64_t out[2]);

/* The common cases of switchback_quantize, as functions of this header. */

/* Arguments that name x and no results yet. A NULL x becomes a matrix of an invalid dtype. */
static inline switchback_quantize_args switchback_quantize_args_of(const switchback_matrix* x) {
  switchback_quantize_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.x.dtype = -1;
  if (x != NULL) args.x = *x;
  return args;
}
/* q[M,K] and absmax[M] from x[M,K]: one scale per row. */
static inline switchback_status switchback_quantize_rowwise(switchback_context* context,
                                                            const switchback_matrix* x,
                                                            const switchback_matrix* q,
                                                            float* absmax) {
  switchback_quantize_args args = switchback_quantize_args_of(x);
  if (q != NULL) args.q = *q;
  args.absmax = absmax;
  return switchback_quantize(context, &args);
}
/* q[N,K] and absmax[1] from w[N,K]: one scale for the matrix. */
static inline switchback_status switchback_quantize_global(switchback_context* context,
                                                           const switchback_matrix* w,
                                                           const switchback_matrix* q,
                                                           float* absmax) {
  switchback_quantize_args args = switchback_quantize_args_of(w);
  if (q != NULL) args.q = *q;
  args.absmax = absmax;
  args.q_scale = SWITCHBACK_SCALE_GLOBAL;
  return switchback_quantize(context, &args);
}
/* q_t[K,N] and absmax[K] from w[N,K]: one scale per column of w, codes stored transposed. */
static inline switchback_status switchback_quantize_columnwise_transpose(
    switchback_context* context, const switchback_matrix* w, const switchback_matrix* q_t,
    float* absmax) {
  switchback_quantize_args args = switchback_quantize_args_of(w);
  if (q_t != NULL) args.q_t = *q_t;
  args.absmax_t = absmax;
  return switchback_quantize(context, &args);
}
/* q_t[K,N] and absmax[1] from w[N,K]: one scale for the matrix, codes stored transposed. */
static inline switchback_status switchback_quantize_global_transpose(switchback_context* context,
                                                                     const switchback_matrix* w,
                                                                     const switchback_matrix* q_t,
                                                                     float* absmax) {
  switchback_quantize_args args = switchback_quantize_args_of(w);
  if (q_t != NULL) args.q_t = *q_t;
  args.absmax_t = absmax;
  args.q_t_scale = SWITCHBACK_SCALE_GLOBAL;
  return switchback_quantize(context, &args);
}

/* ---- Products ---------------------------------------------------------------------------------
 *
 * With groups a call computes many products: experts of a mixture, linear layers side by side,
 * fragments of a layer. Group g multiplies its rows with its matrix [N,K]; N and K are the same for
 * all groups, the number of rows differs and may be zero. Each row has the bits that a call for its
 * group alone gives. Nothing is padded. The rows of the operands are called slots, numbered from 0
 * to M - 1. A slot that no group uses is neither read nor written.
 */

/* Which slots each group has, and which rows of a matrix they read.
 *
 * Packed: `ends` is given, and group g has the slots from ends[g-1] (0 for the first group) to
 * ends[g] - 1. The ends never decrease; the last is at most M. torch's `offs` is such an array.
 * Strided: `ends` is NULL, and group g has the slots from g * row_stride to g * row_stride +
 * rows_of[g] - 1. M is count * row_stride.
 *
 * The last two members say where a slot finds its row in x, for switchback_grouped_quantize_rowwise
 * and for layers. Products do not read them: the rows of their operands are slots. */
typedef struct switchback_groups {
  size_t struct_size;
  int32_t count; /* G, the number of groups */
  /* 1: the arrays are memory of the context's CUDA device. They are read there, and no call waits
   * for them. 0: of the host; a CUDA context refuses that. On the CPU both mean the same. */
  int32_t on_device;
  const int32_t* ends;    /* [G], or NULL if groups are strided */
  const int32_t* rows_of; /* [G], each from 0 to row_stride; NULL: all are row_stride */
  int64_t row_stride;     /* the slots of each strided group; 0 with ends */
  /* Above zero: group g reads the K columns of x from column g * column_stride. Strided groups
   * without row_index then all read the same rows: slot g * row_stride + r reads row r. */
  int64_t column_stride;
  /* [M] or NULL: slot s reads row row_index[s] of x; NULL: row s. The index of a slot that no group
   * uses is not read. The CPU refuses an index outside of x; a CUDA device reads the nearest. */
  const int32_t* row_index;
} switchback_groups;

/* An int8 matrix b[N,K], or the matrices of several groups, rearranged once for the engine that
 * will read them many times. It owns its memory. */
typedef struct switchback_packed_weight switchback_packed_weight;

/* Creates a packed weight, which is empty until switchback_pack_weight. */
SWITCHBACK_API switchback_status switchback_packed_weight_create(switchback_packed_weight** out);
/* Frees a packed weight and its memory. */
SWITCHBACK_API void switchback_packed_weight_destroy(switchback_packed_weight* or_null);
/* Packs the matrices [N,K] of `groups` groups, stacked vertically as b[groups*N,K] (s8), into
 * packed, replacing its contents; groups is 1 for a product without groups. engine_or_null forces
 * an engine by name. b is not needed afterwards. */
SWITCHBACK_API switchback_status switchback_pack_weight(switchback_context* context,
                                                        const switchback_matrix* b, int64_t groups,
                                                        switchback_packed_weight* packed,
                                                        const char* engine_or_null);
/* *out is the memory that the packed weight holds, in bytes. */
SWITCHBACK_API switchback_status
switchback_packed_weight_bytes(const switchback_packed_weight* packed, size_t* out);

/* Arguments of switchback_gemm. If d is s32: d[M,N] = a[M,K] . b[N,K]^T, the int32 sums. Otherwise
 * d = absmax_b * (absmax_a * ((a . b^T) / 127^2)) + bias, rounded once to d's type. With groups
 * each slot of a group uses the group's b, absmax_b and bias.
 *
 * The int32 sums are exact up to K = 131071 for any codes, and up to K = 133144 for codes from -127
 * to 127, which is what switchback_quantize produces. A larger K is refused. For a K between the
 * two limits the CPU also refuses codes of -128 (for a packed weight, when it is packed); a CUDA
 * device does not check, and its sums could overflow. */
typedef struct switchback_gemm_args {
  size_t struct_size;
  switchback_matrix a;                      /* [M,K] s8 */
  switchback_matrix b;                      /* [N,K] s8; with groups [G*N,K], stacked vertically */
  switchback_matrix d;                      /* [M,N] s32, f32, f16 or bf16 */
  const switchback_packed_weight* packed_b; /* used instead of b, whose data is then NULL */
  const float* absmax_a;                    /* [M]: the scales of a */
  const float* absmax_b;           /* the scales of b: [N] or [1]; with groups [G*N] or [G] */
  int64_t absmax_b_count;          /* the number of elements of absmax_b */
  const void* bias;                /* the bias: [N], with groups [G*N], or NULL */
  int32_t bias_dtype;              /* the type of bias: f32, f16 or bf16 */
  const switchback_groups* groups; /* the groups, or NULL */
  /* Above zero, with strided groups: d is [row_stride, G * d_column_stride], and slot g *
   * row_stride + r writes N columns of row r of d, from column g * d_column_stride. */
  int64_t d_column_stride;
  const char* engine; /* forces an engine by name; NULL = the library chooses */
} switchback_gemm_args;
/* Computes args->d from the members of args. */
SWITCHBACK_API switchback_status switchback_gemm(switchback_context* context,
                                                 const switchback_gemm_args* args);

/* d[M,N] (s32) = a[M,K] . b[N,K]^T: switchback_gemm without scales. */
static inline switchback_status switchback_gemm_s8s8s32(switchback_context* context,
                                                        const switchback_matrix* a,
                                                        const switchback_matrix* b,
                                                        const switchback_matrix* d) {
  switchback_gemm_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a.dtype = args.b.dtype = args.d.dtype = -1; /* stays -1 (refused) if the pointer is NULL */
  if (a != NULL) args.a = *a;
  if (b != NULL) args.b = *b;
  if (d != NULL) args.d = *d;
  return switchback_gemm(context, &args);
}

/* Arguments of switchback_gemm_standard: d[M,N] (+)= op(a) . op(b) (+ bias), with sums in f32. op
 * transposes if transpose_a or transpose_b is 1. With groups, and without transpose_a, the rows of
 * a and d are slots, and b holds the groups' matrices, stacked: Y = X . W_g^T with transpose_b and
 * b[G*N,K]; dX = G . W_g without transpose_b and with b[G*K,N]. With transpose_a the rows of a and
 * b are slots, and d holds the groups' results: dW_g = G_g^T . X_g, d[G*M,N] for a with M columns
 * and b with N. A group without rows has a dW of zeros. */
typedef struct switchback_gemm_standard_args {
  size_t struct_size;
  switchback_matrix a; /* [M,K], or [K,M] with transpose_a; f32, f16 or bf16 */
  switchback_matrix b; /* [K,N], or [N,K] with transpose_b; the type of a */
  switchback_matrix d; /* [M,N]; the type of a or f32 */
  int32_t transpose_a; /* 1: use the transpose of a */
  int32_t transpose_b; /* 1: use b's transpose; with groups not together with transpose_a */
  int32_t accumulate;  /* 1: add the product to the values in d */
  int32_t bias_dtype;  /* the type of bias: f32, f16 or bf16 */
  const void* bias; /* the bias: [N], with groups [G*N], or NULL; not with transpose_a of groups */
  const switchback_groups* groups; /* the groups, or NULL */
  const char* engine;              /* forces an engine by name; NULL = the library chooses */
} switchback_gemm_standard_args;
/* Computes args->d from the members of args. */
SWITCHBACK_API switchback_status
switchback_gemm_standard(switchback_context* context, const switchback_gemm_standard_args* args);

/* Arguments of switchback_gemm_blockwise: d[N,K] (+)= G^T . X from codes of blocks of rows of
 * G[M,N] and X[M,K], as switchback_quantize writes them. S_b is the int32 sum over block b. In f32,
 * p = fma(float(S_b) . absmax_b, absmax_a, p) for the blocks of each 8192 rows in order, then D =
 * fma(p, c, D), c = 1/127^2. D starts at +0 or at d, and is rounded once to d's type at the end. */
typedef struct switchback_gemm_blockwise_args {
  size_t struct_size;
  switchback_matrix a;   /* [N,Mp] s8, Mp = M rounded up to whole blocks */
  switchback_matrix b;   /* [K,Mp] s8 */
  switchback_matrix d;   /* [N,K] f32, f16 or bf16 */
  const float* absmax_a; /* the scales of a: [Mp / block_rows, N] */
  const float* absmax_b; /* the scales of b: [Mp / block_rows, K] */
  int32_t block_rows;    /* the rows of a block: 128, 256, 512 or 1024 */
  int32_t accumulate;    /* 1: add the product to the values in d */
  int64_t m; /* M: codes of later rows are 0 and need not be multiplied; 0 = all blocks are whole */
  const char* engine; /* forces an engine by name; NULL = the library chooses */
} switchback_gemm_blockwise_args;
/* Computes args->d from the members of args. */
SWITCHBACK_API switchback_status
switchback_gemm_blockwise(switchback_context* context, const switchback_gemm_blockwise_args* args);

/* ---- The linear layer ------------------------------------------------------------------------ */

/* How a layer computes. */
enum {
  SWITCHBACK_STANDARD = 0, /* all products in floating point */
  SWITCHBACK_ROWWISE = 1,  /* SwitchBack Q: scales per row of X and W; for dX per column of W */
  SWITCHBACK_GLOBAL = 2,   /* SwitchBack: scales per row of X, one scale for W */
  SWITCHBACK_GLOBAL_MEM_EFFICIENT = 3, /* SwitchBack M: as global, but saves int8 X for backward */
  SWITCHBACK_AUTO = 4,                 /* the library chooses a mode for each pass */
  SWITCHBACK_ROWWISE_SHARED = 5 /* as rowwise, but dX uses the codes with scales per row of W too */
};

/* A linear layer. It borrows the caller's weight and bias, and caches the weight's codes. */
typedef struct switchback_linear switchback_linear;

/* How a layer computes dw. */
enum {
  SWITCHBACK_DW_FLOATING = 0,  /* a product in floating point */
  SWITCHBACK_DW_INT8_BLOCK = 1 /* an int8 product: switchback_gemm_blockwise */
};

/* The shape of a layer, and how it computes. */
typedef struct switchback_linear_options {
  size_t struct_size;
  int64_t in_features;  /* K */
  int64_t out_features; /* N */
  int64_t groups;       /* G; 0 means 1. Above 1, calls take groups (switchback_groups.h) */
  int32_t mode;         /* SWITCHBACK_ROWWISE, ... */
  int32_t dtype;      /* type of x, weight and g: f32, f16 or bf16. Weight and x may also be f32 */
  const char* engine; /* forces an engine by name; NULL = the library chooses; NULL in mode auto */
  /* Mode auto: the modes it may use, any of 1 << SWITCHBACK_STANDARD | 1 << SWITCHBACK_ROWWISE | 1
   * << SWITCHBACK_GLOBAL | 1 << SWITCHBACK_ROWWISE_SHARED; 0 = all of them. It takes the one that
   * the tuner measured as the fastest. Where nothing was measured: standard, if allowed. */
  uint32_t allow;
  /* The activation that is applied to x first, SWITCHBACK_GELU_TANH, ...: y = activation(x) . W^T +
   * b. dx is still the gradient of x; dw uses activation(x). */
  int32_t activation;
  /* 1: on a CUDA device, backward computes dw on a second stream, with the same results. */
  int32_t overlap_dw;
  /* How dw is computed: SWITCHBACK_DW_FLOATING, or SWITCHBACK_DW_INT8_BLOCK in modes rowwise,
   * rowwise_shared, global and auto. A forward that saves then keeps codes instead of x. Each group
   * begins a new block. */
  int32_t dw;
  int32_t dw_block_rows; /* the rows that share scales: 128, 256, 512 or 1024; 0 = 256 */
  /* 0 = no rotation, or in the int8 modes 4, 16, 64, 256 or 1024, of which in_features is a
   * multiple: x, after the activation, and the weight are rotated in groups of that size
   * (switchback_quantize_args) before their quantization, and dx is rotated back. Codes of the
   * weight and of x, given or returned, are those of the rotated matrices. */
  int32_t rotation;
  /* 1: the weight that switchback_linear_set_weight takes is the transpose of W, [K,N], and so is
   * dw = X^T . G. In the int8 modes y, dx and db have the bits of a layer that is given W. Codes of
   * the weight (switchback_linear_set_quantized_weight) are those of W. Not with a rotation, and
   * not with several groups. */
  int32_t transposed_weight;
} switchback_linear_options;

/* *out is a new layer. It needs a weight before its first forward: switchback_linear_set_weight. */
SWITCHBACK_API switchback_status switchback_linear_create(switchback_context* context,
                                                          const switchback_linear_options* options,
                                                          switchback_linear** out);
/* Frees the layer; the caller's weight and bias stay. */
SWITCHBACK_API void switchback_linear_destroy(switchback_linear* or_null);

/* Sets weight[G*N,K] (with transposed_weight [K,N]) in the layer's dtype or f32; codes are made of
 * an f32 weight as it is, and products in floating point round it to the layer's dtype in every
 * call. bias[G,N] (f32, f16 or bf16, stride N; NULL or NULL data: none). Both are the caller's
 * memory, borrowed until replaced. Leaves eval mode. The layer cannot see that elements change:
 * until switchback_linear_weight_updated, forward and backward use int8 codes of the old weight,
 * and their results are wrong without an error. Where other code may write to the weight without
 * your knowledge, compare fingerprints (switchback_fingerprint). */
SWITCHBACK_API switchback_status
switchback_linear_set_weight(switchback_linear* linear, const switchback_matrix* weight,
                             const switchback_matrix* bias_or_null);
/* Tells the layer that elements of the weight or the bias have changed. Leaves eval mode. */
SWITCHBACK_API switchback_status switchback_linear_weight_updated(switchback_linear* linear);
/* Tells the layer that elements of the weight or the bias may have changed. On a CUDA device, codes
 * of a large weight are then made again only if its fingerprint has changed; the device compares
 * fingerprints in the stream, also in a graph that is replayed. On the CPU, and for small weights,
 * the call is switchback_linear_weight_updated. */
SWITCHBACK_API switchback_status
switchback_linear_weight_may_have_changed(switchback_linear* linear);
/* The modes in which a forward over `rows` rows (save_for_backward: SWITCHBACK_SAVE_NOTHING, ...)
 * and its dX would run now: the layer's mode, or those that mode auto would take. */
SWITCHBACK_API switchback_status switchback_linear_pass_modes(const switchback_linear* linear,
                                                              int64_t rows,
                                                              int32_t save_for_backward,
                                                              int32_t* forward, int32_t* dx);
/* Quantizes and packs the weight and frees what only training needs. In the int8 modes the caller's
 * weight may be freed afterwards. Backward of a saved forward is refused until the weight is set or
 * updated again. Backward with a kept input works, also for a quantized weight: dx is then computed
 * from the codes that the layer has. */
SWITCHBACK_API switchback_status switchback_linear_prepare_for_eval(switchback_linear* linear);
/* *out is a new layer on `context`, with the options and the prepared weight of `linear`, in the
 * same memory, which is freed with the last of these layers. In mode standard both go on reading
 * the caller's weight and bias. So N threads, each with its own context, can serve one weight.
 * `linear` must be prepared for eval, and not be in mode auto; `context` must have its device and
 * instruction set, and may be of another thread. Other threads may run forward, and backward with a
 * kept input, of `linear` meanwhile, or share it; they must not change its weight. A layer whose
 * weight is set or updated afterwards has its own; the others keep the old one. On a CUDA device
 * the call waits for the device. */
SWITCHBACK_API switchback_status switchback_linear_share(const switchback_linear* linear,
                                                         switchback_context* context,
                                                         switchback_linear** out);

/* Sets the weight as codes[G*N,K] (s8) with their scales: absmax[G*N], one per row, in modes
 * rowwise and rowwise_shared; absmax[G] in modes global and global_mem_efficient; refused in other
 * modes. Codes and scales from switchback_quantize_rowwise or switchback_quantize_global give the
 * same layer as set_weight and prepare_for_eval. Codes of -128, which other programs write, are
 * exact too. Everything is copied and may be freed afterwards (on a CUDA device, once the stream
 * has reached the copy). The layer is then prepared for eval; it trains again after set_weight.
 * Where K or N is above 131071 the CPU refuses codes of -128, because the int32 sums could
 * overflow; a CUDA device does not check for them, because the call would have to wait for the
 * result. */
SWITCHBACK_API switchback_status switchback_linear_set_quantized_weight(
    switchback_linear* linear, const switchback_matrix* codes, const float* absmax,
    int64_t absmax_count, const switchback_matrix* bias_or_null);
/* Writes the weight's codes[G*N,K] (s8) and their scales, absmax[G*N] or absmax[G], as
 * switchback_linear_set_quantized_weight takes them. The layer must be prepared for eval. With a
 * rotation they are codes of the rotated weight. */
SWITCHBACK_API switchback_status switchback_linear_quantized_weight(const switchback_linear* linear,
                                                                    const switchback_matrix* codes,
                                                                    float* absmax,
                                                                    int64_t absmax_count);

/* What a forward keeps for backward. */
enum {
  SWITCHBACK_SAVE_NOTHING = 0, /* inference; keeps nothing, an earlier saved forward stays saved */
  SWITCHBACK_SAVE_COPY = 1,    /* the layer copies what backward needs of x */
  /* The layer keeps a pointer to x, which must not change until backward has run. A later forward
   * that writes its output over that memory drops the saved forward. */
  SWITCHBACK_SAVE_BORROW = 2,
  /* The caller keeps x, or its codes, and gives them to backward; an earlier saved forward stays
   * saved. */
  SWITCHBACK_SAVE_CALLER = 3
};

/* What the caller keeps of a forward's input. Forward writes codes, which are smaller than x. */
typedef struct switchback_kept_input {
  size_t struct_size;
  /* The kept input, in one of three forms:
   * - x[M,K] itself, in the layer's dtype or f32, with NULL absmax
   * - its codes[M,K] (s8) and absmax[M], in the int8 modes: dw is made from dequantized codes
   * - with in_blocks its codes[K,Mp] (s8) and absmax[B,K] of blocks of rows, as switchback_quantize
   *   writes them, for layers whose dw is SWITCHBACK_DW_INT8_BLOCK
   *
   * With codes, dx of a layer with an activation needs dx_of_activation. */
  switchback_matrix x;
  float* absmax;     /* the scales of codes: [M] or [B,K] */
  int32_t in_blocks; /* 1: x is codes of blocks of rows */
} switchback_kept_input;

/* Computes y[M,N] from x[M,K], each in the layer's dtype or f32. An f32 x is rounded to the layer's
 * dtype first: the bits are those of the rounded x. With kept_or_null the codes of x are also
 * written there; save_for_backward is then SWITCHBACK_SAVE_CALLER. If a forward that saves runs out
 * of memory, the forward saved before it is dropped too. */
SWITCHBACK_API switchback_status switchback_linear_forward(
    switchback_linear* linear, const switchback_matrix* x, const switchback_matrix* y,
    int32_t save_for_backward, const switchback_kept_input* kept_or_null);

/* The gradients that backward reads and writes. An output with NULL data is skipped. */
typedef struct switchback_linear_grads {
  size_t struct_size;
  switchback_matrix g;  /* [M,N], the layer's dtype: the gradient of y */
  switchback_matrix dx; /* [M,K], the layer's dtype or f32: the gradient of x */
  switchback_matrix dw; /* [G*N,K] or, with transposed_weight, [K,N]; the layer's dtype or f32 */
  switchback_matrix db; /* [G,N], the layer's dtype or f32: the gradient of the bias */
  int32_t accumulate;   /* 1: add to dw and db; dx is always overwritten */
  /* The activation that y went through, if g is the gradient of y_activation(y); else
   * SWITCHBACK_NO_ACTIVATION. The layer then uses g . y_activation'(y), rounded to g's type, in
   * place of g, and computes it in the pass that quantizes. */
  int32_t y_activation;
  switchback_matrix y; /* [M,N], the layer's dtype: y as forward wrote it; only with y_activation */
  /* 1: dx of a layer with an activation is the gradient of activation(x), not of x: the g of the
   * layer that produced x, with y_activation. Required where only codes were kept (mode
   * global_mem_efficient, or codes in switchback_kept_input), which are codes of activation(x). */
  int32_t dx_of_activation;
  /* 1: the codes of g, of which an int8 dx and an int8 dw are made, are rounded stochastically,
   * with the random bits that switchback_quantize_args describes; give each backward its own step.
   * No effect on db and on what is computed in floating point. Not with groups. 0: to nearest, and
   * the members below are not read. */
  int32_t stochastic;
  uint32_t rounding_stream; /* a counter word, for example the number of a layer */
  uint32_t rounding_step;   /* a counter word, for example the number of the training step */
  uint64_t rounding_seed;   /* the key of Philox4x32-10 */
  int64_t rounding_row0;    /* the number of g's row 0 in the whole batch, below 2^32 */
} switchback_linear_grads;

/* Computes the gradients of the last forward that saved; may be called more than once for one
 * forward. With kept_or_null: of a forward whose input the caller kept; other forwards may have run
 * since, and saved forwards are not used. The kept x may be zeroed if grads skips dw. If grads
 * skips dx, the weight is then not read: it may be unset or already freed. */
SWITCHBACK_API switchback_status
switchback_linear_backward(switchback_linear* linear, const switchback_linear_grads* grads,
                           const switchback_kept_input* kept_or_null);

/* The memory that a layer holds now. */
typedef struct switchback_layer_info {
  size_t struct_size;
  size_t saved_for_backward_bytes; /* bytes kept for backward, including a borrowed x */
  size_t cached_weight_bytes;      /* quantized and packed weights; each of the layers that share a
                                      weight counts its memory */
} switchback_layer_info;
/* Fills in *out, whose struct_size the caller has set. */
SWITCHBACK_API switchback_status switchback_linear_get_info(const switchback_linear* linear,
                                                            switchback_layer_info* out);

#ifdef __cplusplus
}
#endif

/* Layers with groups of rows, and layers made of fragments. */
#include "switchback/switchback_groups.h"

#endif
