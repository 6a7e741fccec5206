# SPDX-License-Identifier: Apache-2.0
"""The kernels as operators of torch, torch.ops.switchback.*, for compilers, tracers and exporters.

This module is imported if torch has torch.library.register_autograd (2.4 and later). The functions of
ops.py use these operators if an argument needs it (_tensors.needs_operator). Otherwise they call the
library directly, which is faster.
"""

from __future__ import annotations

import torch

from . import ops
from ._errors import InvalidArgument, InvalidState
from ._tensors import FLOATS

LIBRARY = torch.library.Library("switchback", "DEF")
_TAGS = (torch.Tag.pt2_compliant_tag,)


def define(schema: str, implementation, fake) -> None:
    """Defines an operator for CPU and CUDA. `fake` makes outputs with the right shape, dtype and strides."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=_TAGS)
    for device in ("CPU", "CUDA"):
        LIBRARY.impl(name, implementation, device)
    torch.library.register_fake(f"switchback::{name}", fake, lib=LIBRARY)


def define_gradient(name: str, backward, setup_context) -> None:
    """Defines the gradient of an operator. Forward mode differentiation raises an error."""
    torch.library.register_autograd(
        f"switchback::{name}", backward, setup_context=setup_context, lib=LIBRARY
    )


def refuse_gradient(name: str, reason: str) -> None:
    """Makes autograd record the operator, but raise InvalidState when its gradient is requested."""

    def backward(_ctx, *_gradients):
        raise InvalidState(f"backward: switchback::{name} {reason}")

    define_gradient(name, backward, lambda ctx, inputs, output: None)


def define_autocast(name: str, operands: tuple[int, ...] = (0,)) -> None:
    """Makes autocast cast the operator's floating point arguments at the positions `operands`."""
    overload = getattr(torch.ops.switchback, name).default
    for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):

        def cast(*arguments, device=device, key=key):
            dtype = torch.get_autocast_dtype(device)
            given = list(arguments)
            for place in operands:
                if given[place] is not None and given[place].dtype in FLOATS:
                    given[place] = given[place].to(dtype)
            keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
            with torch._C._ExcludeDispatchKeyGuard(keys):
                return overload(*given)

        LIBRARY.impl(name, cast, key)


def define_loop(name: str, rows_of_first: bool = False) -> None:
    """Defines the operator under vmap: one call per element, so the bits are those of single calls.

    rows_of_first: if only the first argument is batched, one call treats its batch as leading rows.
    """
    overload = getattr(torch.ops.switchback, name).default

    def rule(info, dims, *arguments):
        if rows_of_first and dims[0] is not None and all(dim is None for dim in dims[1:]):
            return overload(arguments[0].movedim(dims[0], 0), *arguments[1:]), 0
        results = []
        for place in range(info.batch_size):
            results.append(
                overload(
                    *(
                        given if dim is None else given.select(dim, place)
                        for given, dim in zip(arguments, dims)
                    )
                )
            )
        if isinstance(results[0], tuple):
            return tuple(map(torch.stack, zip(*results))), (0,) * len(results[0])
        return torch.stack(results), 0

    torch.library.register_vmap(f"switchback::{name}", rule, lib=LIBRARY)


def check_floats(op: str, **tensors) -> None:
    """Raises TypeError for a dtype that the library cannot read, also on the meta device."""
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise TypeError(
                f"{op}: {name} has dtype {tensor.dtype}; it must be torch.float32, torch.float16 or "
                "torch.bfloat16"
            )


def _check_matrix(op: str, name: str, tensor, dtypes=FLOATS) -> None:
    if tensor.dim() != 2:
        raise InvalidArgument(
            f"{op}: {name} has shape {tuple(tensor.shape)}; it must have two dimensions"
        )
    if tensor.dtype not in dtypes:
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{op}: {name} has dtype {tensor.dtype}; it must be {allowed}")


# ---- Quantization

_SCALES = {
    "quantize_rowwise": ("x", False, lambda rows, cols: rows),
    "quantize_columnwise_transpose": ("w", True, lambda rows, cols: cols),
    "quantize_global": ("w", False, lambda rows, cols: 1),
    "quantize_global_transpose": ("w", True, lambda rows, cols: 1),
}


def _define_quantize(name: str, argument: str, transposed: bool, scales) -> None:
    def fake(x):
        _check_matrix(name, argument, x)
        rows, cols = x.shape
        shape = (cols, rows) if transposed else (rows, cols)
        codes = x.new_empty(shape, dtype=torch.int8)
        return codes, x.new_empty((scales(rows, cols),), dtype=torch.float32)

    define(f"{name}(Tensor {argument}) -> (Tensor, Tensor)", getattr(ops, name).__wrapped__, fake)
    refuse_gradient(name, "rounds to codes and has no gradient; detach its argument")
    define_loop(name)


for _name, _form in _SCALES.items():
    _define_quantize(_name, *_form)


def _fake_dequantize(q, absmax, dtype):
    _check_matrix("dequantize_rowwise", "q", q, (torch.int8,))
    return q.new_empty(q.shape, dtype=dtype)


define(
    "dequantize_rowwise(Tensor q, Tensor absmax, ScalarType dtype) -> Tensor",
    ops.dequantize_rowwise.__wrapped__,
    _fake_dequantize,
)
refuse_gradient("dequantize_rowwise", "has no gradient; detach absmax")


# ---- Products of int8 codes


def _fake_gemm(a, b):
    for name, codes in (("a", a), ("b", b)):
        _check_matrix("gemm_s8s8s32", name, codes, (torch.int8,))
    return a.new_empty((a.shape[0], b.shape[0]), dtype=torch.int32)


define("gemm_s8s8s32(Tensor a, Tensor b) -> Tensor", ops.gemm_s8s8s32.__wrapped__, _fake_gemm)


def _fake_gemm_dequantize(a, b, absmax_a, absmax_b, bias, dtype):
    for name, codes in (("a", a), ("b", b)):
        _check_matrix("gemm_dequantize", name, codes, (torch.int8,))
    return a.new_empty((a.shape[0], b.shape[0]), dtype=dtype)


define(
    "gemm_dequantize(Tensor a, Tensor b, Tensor absmax_a, Tensor absmax_b, Tensor? bias, "
    "ScalarType dtype) -> Tensor",
    ops.gemm_dequantize.__wrapped__,
    _fake_gemm_dequantize,
)
refuse_gradient("gemm_dequantize", "has no gradient; use a layer, or detach its arguments")


# ---- Rotation


def _fake_rotate(x, rotation):
    _check_matrix("rotate", "x", x)
    return x.new_empty(x.shape, dtype=torch.float32)


define("rotate(Tensor x, int rotation) -> Tensor", ops.rotate.__wrapped__, _fake_rotate)


def _keep_rotation(ctx, inputs, output):
    ctx.dtype, ctx.rotation = inputs[0].dtype, inputs[1]


def _rotation_gradient(ctx, g):
    # The gradient is the same rotation, because Hadamard matrices divided by the root of their size equal
    # their transposes.
    return torch.ops.switchback.rotate(g, ctx.rotation).to(ctx.dtype), None


define_gradient("rotate", _rotation_gradient, _keep_rotation)
define_loop("rotate")


# ---- GELU

_NO_ACTIVATION_GRADIENT = "has no second derivative; use nn.GELU in its place"


def _fake_like_first(first, *_others):
    return first.new_empty(first.shape)


define(
    "activation_forward(Tensor x, str activation) -> Tensor",
    ops.activation_forward.__wrapped__,
    _fake_like_first,
)
define(
    "activation_backward(Tensor g, Tensor x, str activation) -> Tensor",
    ops.activation_backward.__wrapped__,
    _fake_like_first,
)
refuse_gradient("activation_backward", _NO_ACTIVATION_GRADIENT)


def _keep_x(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.activation = inputs[1]


def _activation_gradient(ctx, g):
    (x,) = ctx.saved_tensors
    return torch.ops.switchback.activation_backward(g.to(x.dtype), x, ctx.activation), None


define_gradient("activation_forward", _activation_gradient, _keep_x)
