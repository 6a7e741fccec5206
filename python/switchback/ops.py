# SPDX-License-Identifier: Apache-2.0
"""The library's kernels as functions on NumPy arrays or torch tensors.

Each returns arrays of the same kind, and on the same device, as its first argument. The other
arguments must be of that kind too. Floating point inputs are float32, float16 or bfloat16. Codes are
int8 and scales are float32. Matrices are [rows, cols] with any distance between rows; other strides
are copied first. autograd does not record these functions.

absmax is the largest magnitude of a row, a column or the matrix; the code of an element is
round_half_even(127 * (x / absmax)) in float32. If a group holds a NaN or an Inf, that is its absmax
and its codes are 0. Errors name the argument: TypeError for arguments that are not arrays or have a
wrong dtype, ValueError for a wrong shape.
"""

from __future__ import annotations

import ctypes
import functools
import weakref

from . import _abi
from ._arrays import Operand, arrays_like
from ._errors import InvalidArgument
from ._library import check, library

__all__ = [
    "PackedWeight",
    "activation_backward",
    "activation_backward_quantize",
    "activation_forward",
    "activation_forward_quantize",
    "dequantize_rowwise",
    "gemm_blockwise",
    "gemm_dequantize",
    "gemm_s8s8s32",
    "int8_matmul_mixed_dequantize",
    "int8_matmul_rowwise_dequantize",
    "quantize_blockwise_transpose",
    "quantize_columnwise_and_transpose",
    "quantize_columnwise_transpose",
    "quantize_global",
    "quantize_global_transpose",
    "quantize_rowwise",
    "quantize_rowwise_scaled",
    "rotate",
    "rotate_quantize",
]


# torch.ops.switchback, and the function that says whether a tensor needs an operator. switchback.nn sets
# both.
_operators = None
_needs_operator = None


def _dispatched(function):
    """Decorator: if its first tensor needs it, the function calls torch's operator with the function's name.
    """
    name = function.__name__

    @functools.wraps(function)
    def call(first, *arguments, **options):
        if _operators is not None and _needs_operator(first):
            return _through_operator(name, first, *arguments, **options)
        return function(first, *arguments, **options)

    return call


def _through_operator(name, *arguments, **options):
    """Calls a torch operator. Operators have no default arguments, so this adds the optional ones."""
    import torch

    if name in ("dequantize_rowwise", "gemm_dequantize"):
        if name == "gemm_dequantize" and len(arguments) == 4:
            options.setdefault("bias", None)
        if len(arguments) < (3 if name == "dequantize_rowwise" else 6) and not options.get("dtype"):
            options["dtype"] = torch.float32
    return getattr(_operators, name)(*arguments, **options)


@_dispatched
def quantize_rowwise(x):
    """Codes [M,K] and absmax [M] of x[M,K]: one scale per row."""
    arrays = arrays_like(x, "quantize_rowwise")
    return _quantize_rows(arrays, _matrix(arrays, x, "x", _abi.FLOATS))


def quantize_rowwise_scaled(g, column_scales):
    """Codes [M,N] and absmax [M] of g[M,N], whose columns are first multiplied by scales [N] in float32."""
    arrays = arrays_like(g, "quantize_rowwise_scaled")
    given = _matrix(arrays, g, "g", _abi.FLOATS)
    scales = _scales(arrays, column_scales, "column_scales", (given.matrix.cols,), "N")
    return _quantize_rows(arrays, given, column_scales=scales.address)


@_dispatched
def quantize_columnwise_transpose(w):
    """Codes [K,N] and absmax [K] of w[N,K]: one scale per column of w, codes stored transposed."""
    arrays = arrays_like(w, "quantize_columnwise_transpose")
    given = _matrix(arrays, w, "w", _abi.FLOATS)
    return _quantize_transpose(arrays, given, given.matrix.cols, _abi.SCALE_PER_ROW)


def quantize_blockwise_transpose(x, block_rows=256):
    """Codes [K,Mp] and absmax [Mp / block_rows, K] of x[M,K]: a scale for each column of each block.

    A block has block_rows rows: 128, 256, 512 or 1024. The codes are stored transposed; Mp is M
    rounded up to whole blocks, and codes from M on are 0.
    """
    arrays = arrays_like(x, "quantize_blockwise_transpose")
    given = _matrix(arrays, x, "x", _abi.FLOATS)
    rows, cols = given.matrix.rows, given.matrix.cols
    if block_rows <= 0:  # 0 has another meaning in the library
        raise InvalidArgument(
            f"{arrays.op}: block_rows = {block_rows}; it must be 128, 256, 512 or 1024"
        )
    blocks = -(-rows // block_rows)
    q_t = _output(arrays, (cols, blocks * block_rows), _abi.S8)
    absmax = arrays.empty((blocks, cols), _abi.F32)
    scales = arrays.address(absmax)
    _quantize(arrays, given, q_t=q_t.matrix, absmax_t=scales, block_rows=block_rows)
    return q_t.array, absmax


@_dispatched
def quantize_global(w):
    """Codes [N,K] and absmax [1] of w[N,K]: one scale for the matrix."""
    arrays = arrays_like(w, "quantize_global")
    given = _matrix(arrays, w, "w", _abi.FLOATS)
    q = _output(arrays, (given.matrix.rows, given.matrix.cols), _abi.S8)
    absmax = arrays.empty((1,), _abi.F32)
    members = {"q": q.matrix, "absmax": arrays.address(absmax), "q_scale": _abi.SCALE_GLOBAL}
    _quantize(arrays, given, **members)
    return q.array, absmax


@_dispatched
def quantize_global_transpose(w):
    """Codes [K,N] and absmax [1] of w[N,K]: one scale for the matrix, codes stored transposed."""
    arrays = arrays_like(w, "quantize_global_transpose")
    given = _matrix(arrays, w, "w", _abi.FLOATS)
    return _quantize_transpose(arrays, given, 1, _abi.SCALE_GLOBAL)


@_dispatched
def dequantize_rowwise(q, absmax, dtype=None):
    """x[M,K] = absmax[M] * (q[M,K] / 127), rounded once to dtype (default: float32)."""
    op = "dequantize_rowwise"
    arrays = arrays_like(q, op)
    codes = _matrix(arrays, q, "q", (_abi.S8,))
    rows, cols = codes.matrix.rows, codes.matrix.cols
    scales = _scales(arrays, absmax, "absmax", (rows,), "M")
    x = _output(arrays, (rows, cols), _output_code(arrays, dtype))
    function = library().switchback_dequantize_rowwise
    _call(arrays, function, codes.address, scales.address, x.address)
    return x.array


@_dispatched
def activation_forward(x, activation):
    """activation(x[M,K]) in x's dtype; activation is "gelu_tanh" or "gelu_erf".

    Computed in float32, within 2^-22 * max(1, |x|), and rounded once.
    """
    arrays = arrays_like(x, "activation_forward")
    given = _matrix(arrays, x, "x", _abi.FLOATS)
    which = _activation(arrays, activation)
    y = _output(arrays, (given.matrix.rows, given.matrix.cols), given.matrix.dtype)
    _quantize(arrays, given, activation=which, value=y.matrix)
    return y.array


@_dispatched
def activation_backward(g, x, activation):
    """g[M,K] * activation'(x[M,K]) in g's dtype, which is x's or float32."""
    arrays = arrays_like(g, "activation_backward")
    gradient = _matrix(arrays, g, "g", _abi.FLOATS)
    given = _matrix(arrays, x, "x", _abi.FLOATS)
    which = _activation(arrays, activation)
    dx = _output(arrays, (given.matrix.rows, given.matrix.cols), gradient.matrix.dtype)
    _quantize(arrays, given, g=gradient.matrix, activation=which, value=dx.matrix)
    return dx.array


@_dispatched
def rotate(x, rotation):
    """x[M,K] in float32, with each group of `rotation` adjacent elements of a row times the Hadamard matrix.
    """
    arrays = arrays_like(x, "rotate")
    given = _matrix(arrays, x, "x", _abi.FLOATS)
    y = _output(arrays, (given.matrix.rows, given.matrix.cols), _abi.F32)
    _quantize(arrays, given, rotation=rotation, rotated=y.matrix)
    return y.array


def rotate_quantize(x, rotation, activation=None):
    """Codes [M,K] and absmax [M] of rotate(x[M,K]), or of rotate(activation(x)), in one pass."""
    arrays = arrays_like(x, "rotate_quantize")
    given = _matrix(arrays, x, "x", _abi.FLOATS)
    which = _activation(arrays, activation) if activation else 0
    return _quantize_rows(arrays, given, activation=which, rotation=rotation)


def activation_forward_quantize(x, activation):
    """Codes [M,K] and absmax [M] of activation(x[M,K]), rounded to x's dtype first, in one pass."""
    arrays = arrays_like(x, "activation_forward_quantize")
    given = _matrix(arrays, x, "x", _abi.FLOATS)
    return _quantize_rows(arrays, given, activation=_activation(arrays, activation))


def activation_backward_quantize(g, x, activation):
    """dx = g * activation'(x), all [M,N] in one dtype, then its codes, absmax [M], column sums [N]."""
    arrays = arrays_like(g, "activation_backward_quantize")
    gradient = _matrix(arrays, g, "g", _abi.FLOATS)
    given = _matrix(arrays, x, "x", _abi.FLOATS)
    which = _activation(arrays, activation)
    rows, cols = given.matrix.rows, given.matrix.cols
    dx, sums = _output(arrays, (rows, cols), given.matrix.dtype), arrays.empty((cols,), _abi.F32)
    also = {"value": dx.matrix, "column_sums": arrays.address(sums)}
    q, absmax = _quantize_rows(arrays, given, g=gradient.matrix, activation=which, **also)
    return dx.array, q, absmax, sums


class PackedWeight:
    """A packed copy of int8 codes b[N,K], for codes that many products read.

    gemm_dequantize accepts it as b, with a on the device of those codes. It does not follow
    later changes of b.
    """

    def __init__(self, b):
        arrays = arrays_like(b, "PackedWeight")
        given = _matrix(arrays, b, "b", (_abi.S8,))
        lib, out = library(), ctypes.c_void_p()
        check(lib.switchback_packed_weight_create(ctypes.byref(out)))
        self.pointer = out.value
        # The memory is not freed at exit, because the system frees everything.
        weakref.finalize(self, lib.switchback_packed_weight_destroy, self.pointer).atexit = False
        _call(arrays, lib.switchback_pack_weight, given.address, 1, self.pointer, None)
        self.shape = (given.matrix.rows, given.matrix.cols)

    @property
    def nbytes(self) -> int:
        """The number of bytes of the packed copy."""
        out = ctypes.c_size_t()
        check(library().switchback_packed_weight_bytes(self.pointer, ctypes.byref(out)))
        return out.value


@_dispatched
def gemm_s8s8s32(a, b):
    """d[M,N] = a[M,K] . b[N,K]^T, int32 sums of int8 products.

    They are exact up to K = 131071, and up to K = 133144 for codes from -127 to 127, which is what
    the quantize functions return. A larger K is refused. With K above 131071 the CPU also refuses
    codes of -128; a CUDA device does not check for them.
    """
    arrays = arrays_like(a, "gemm_s8s8s32")
    left = _matrix(arrays, a, "a", (_abi.S8,))
    right = _matrix(arrays, b, "b", (_abi.S8,))
    d = _output(arrays, (left.matrix.rows, right.matrix.rows), _abi.S32)
    args = _abi.GemmArgs(a=left.matrix, b=right.matrix, d=d.matrix)
    _call(arrays, library().switchback_gemm, ctypes.addressof(args))
    return d.array


@_dispatched
def gemm_dequantize(a, b, absmax_a, absmax_b, bias=None, dtype=None):
    """d[M,N] = absmax_b * (absmax_a * ((a[M,K] . b[N,K]^T) / 127^2)) + bias, rounded once to dtype.

    a and b are int8 codes (b may be a PackedWeight), absmax_a [M], absmax_b [N] or [1], bias [N] of
    any floating point dtype; dtype is float32 unless given.
    """
    arrays = arrays_like(a, "gemm_dequantize")
    left = _matrix(arrays, a, "a", (_abi.S8,))
    if isinstance(b, PackedWeight):
        packed, right = b.pointer, _abi.Matrix(None, _abi.S8, *b.shape, b.shape[1])
    else:
        packed, given_b = None, _matrix(arrays, b, "b", (_abi.S8,))
        right = given_b.matrix
    rows, cols = left.matrix.rows, right.rows
    scales_a = _scales(arrays, absmax_a, "absmax_a", (rows,), "M")
    scales_b = _scales(arrays, absmax_b, "absmax_b", (cols, 1), "N or 1")
    d = _output(arrays, (rows, cols), _output_code(arrays, dtype))
    args = _abi.GemmArgs(a=left.matrix, b=right, d=d.matrix, packed_b=packed)
    args.absmax_a = scales_a.address
    args.absmax_b, args.absmax_b_count = scales_b.address, scales_b.count
    if bias is not None:
        code = arrays.code_of(bias, "bias")
        _require_dtype(arrays, "bias", bias, code, _abi.FLOATS)
        _require_shape(arrays, "bias", bias, (cols,), "N")
        bias = arrays.vector(bias)
        args.bias, args.bias_dtype = bias.address, code
    _call(arrays, library().switchback_gemm, ctypes.addressof(args))
    return d.array


def gemm_blockwise(a, b, absmax_a, absmax_b, block_rows=256, rows=None, dtype=None):
    """d[N,K] = G^T . X, from the results of quantize_blockwise_transpose for G[M,N] and X[M,K].

    a [N,Mp] and absmax_a are those of G, b [K,Mp] and absmax_b those of X. rows is M, if it is known:
    then the product skips the padding of the last block, with the same result. dtype is float32
    unless given.
    """
    arrays = arrays_like(a, "gemm_blockwise")
    left = _matrix(arrays, a, "a", (_abi.S8,))
    right = _matrix(arrays, b, "b", (_abi.S8,))
    n, k, padded = left.matrix.rows, right.matrix.rows, left.matrix.cols
    blocks = padded // block_rows if block_rows > 0 else 0
    scales_a = _block_scales(arrays, absmax_a, "absmax_a", (blocks, n), "[Mp / block_rows,N]")
    scales_b = _block_scales(arrays, absmax_b, "absmax_b", (blocks, k), "[Mp / block_rows,K]")
    d = _output(arrays, (n, k), _output_code(arrays, dtype))
    args = _abi.BlockwiseGemmArgs(a=left.matrix, b=right.matrix, d=d.matrix)
    args.absmax_a, args.absmax_b = scales_a.address, scales_b.address
    args.block_rows = block_rows
    # In the C struct, 0 means that the number of rows is unknown. A known number is never 0 if there is a
    # block.
    if rows is not None and not (rows > 0 or padded == 0):
        raise InvalidArgument(f"gemm_blockwise: rows = {rows}; it must be positive")
    args.m = rows or 0
    _call(arrays, library().switchback_gemm_blockwise, ctypes.addressof(args))
    return d.array


# ---- Functions with the names of bitsandbytes.triton. quantize_rowwise, quantize_global,
# quantize_global_transpose and dequantize_rowwise above have the names that bitsandbytes uses. Scales are
# float32 here and float16 there.


def quantize_columnwise_and_transpose(x):
    """The function quantize_columnwise_transpose under the name that bitsandbytes uses."""
    return quantize_columnwise_transpose(x)


def int8_matmul_rowwise_dequantize(a, b, state_x, state_w, bias=None, dtype=None):
    """The product a[M,K] . b[K,N] of codes, with state_x[M], state_w[N] and bias[N], like gemm_dequantize.

    b is transposed, as in bitsandbytes: pass codes[N,K].t(), which is read in place. The default
    dtype is float16, as in bitsandbytes.
    """
    return _matmul_dequantize("int8_matmul_rowwise_dequantize", a, b, state_x, state_w, bias, dtype)


def int8_matmul_mixed_dequantize(a, b, state_x, state_w, bias=None, dtype=None):
    """Like int8_matmul_rowwise_dequantize, with one scale for b: state_w has one element."""
    return _matmul_dequantize("int8_matmul_mixed_dequantize", a, b, state_x, state_w, bias, dtype)


def _matmul_dequantize(op: str, a, b, state_x, state_w, bias, dtype):
    arrays = arrays_like(a, op)
    for name, array in (("a", a), ("b", b)):
        _require_dtype(arrays, name, array, arrays.code_of(array, name), (_abi.S8,))
        if len(array.shape) != 2:
            raise InvalidArgument(
                f"{op}: {name} has shape {tuple(array.shape)}; it must have two dimensions"
            )
    if dtype is None:
        dtype = arrays.dtype_of(_abi.F16)
    scales = [
        arrays.cast(scale, name, _abi.F32).reshape(-1)
        for name, scale in (("state_x", state_x), ("state_w", state_w))
    ]
    return gemm_dequantize(a, b.T, *scales, bias, dtype)


def _quantize_rows(arrays, x: Operand, **members):
    """Quantizes x with one scale per row; returns the codes and absmax."""
    rows, cols = x.matrix.rows, x.matrix.cols
    q, absmax = _output(arrays, (rows, cols), _abi.S8), arrays.empty((rows,), _abi.F32)
    _quantize(arrays, x, q=q.matrix, absmax=arrays.address(absmax), **members)
    return q.array, absmax


def _quantize_transpose(arrays, x: Operand, scale_count: int, scale: int):
    """Quantizes x with `scale_count` scales; returns the codes, stored transposed, and absmax [scale_count].
    """
    q_t = _output(arrays, (x.matrix.cols, x.matrix.rows), _abi.S8)
    absmax = arrays.empty((scale_count,), _abi.F32)
    _quantize(arrays, x, q_t=q_t.matrix, absmax_t=arrays.address(absmax), q_t_scale=scale)
    return q_t.array, absmax


def _quantize(arrays, x: Operand, **members) -> None:
    """Calls switchback_quantize with these members of its struct. The caller keeps the arrays alive."""
    args = _abi.QuantizeArgs(x=x.matrix, **members)
    _call(arrays, library().switchback_quantize, ctypes.addressof(args))


def _activation(arrays, name) -> int:
    if name not in _abi.ACTIVATIONS:
        allowed = " or ".join(repr(known) for known in _abi.ACTIVATIONS)
        raise InvalidArgument(f"{arrays.op}: activation = {name!r}; it must be {allowed}")
    return _abi.ACTIVATIONS[name]


def _matrix(arrays, array, name: str, codes: tuple[int, ...]) -> Operand:
    code = arrays.code_of(array, name)
    _require_dtype(arrays, name, array, code, codes)
    if len(array.shape) != 2:
        raise InvalidArgument(
            f"{arrays.op}: {name} has shape {tuple(array.shape)}; it must have two dimensions"
        )
    return arrays.matrix(array, code)


def _scales(arrays, array, name: str, counts: tuple[int, ...], meaning: str):
    _require_dtype(arrays, name, array, arrays.code_of(array, name), (_abi.F32,))
    _require_shape(arrays, name, array, counts, meaning)
    return arrays.vector(array)


def _block_scales(arrays, array, name: str, shape: tuple[int, int], meaning: str):
    _require_dtype(arrays, name, array, arrays.code_of(array, name), (_abi.F32,))
    if tuple(array.shape) != shape:
        raise InvalidArgument(
            f"{arrays.op}: {name} has shape {tuple(array.shape)}; it must be {shape}: {meaning}"
        )
    return arrays.vector(array.reshape(-1))


# An address that is not null, for matrices without elements.
_no_elements = ctypes.create_string_buffer(64)
_NOWHERE = ctypes.addressof(_no_elements)


def _output(arrays, shape: tuple[int, int], code: int) -> Operand:
    """Creates an uninitialised matrix for results."""
    array = arrays.empty(shape, code)
    # The library takes a null address for a result that is not wanted, and an empty tensor has one.
    return Operand(array, arrays.address(array) or _NOWHERE, code, *shape, shape[1])


def _output_code(arrays, dtype) -> int:
    if dtype is None:
        return _abi.F32
    code = arrays.code_of_dtype(dtype)
    if code not in _abi.FLOATS:
        raise TypeError(f"{arrays.op}: dtype = {dtype}; it must be float32, float16 or bfloat16")
    return code


def _require_dtype(arrays, name: str, array, code, codes: tuple[int, ...]) -> None:
    if code not in codes:
        allowed = " or ".join(_abi.DTYPE_NAMES[c] for c in codes)
        raise TypeError(f"{arrays.op}: {name} has dtype {array.dtype}; it must be {allowed}")


def _require_shape(arrays, name: str, array, counts: tuple[int, ...], meaning: str) -> None:
    if len(array.shape) != 1 or array.shape[0] not in counts:
        allowed = " or ".join(f"({count},)" for count in counts)
        raise InvalidArgument(
            f"{arrays.op}: {name} has shape {tuple(array.shape)}; it must be {allowed}: {meaning}"
        )


def _call(arrays, function, *arguments: int | None) -> None:
    """Calls a function of the library. The caller keeps alive what the addresses point to."""
    context = arrays.context.take()
    try:
        context.enter()
        check(function(context.pointer, *arguments))
    finally:
        context.lock.release()
