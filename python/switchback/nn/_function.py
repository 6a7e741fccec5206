# SPDX-License-Identifier: Apache-2.0
"""The forward and backward of a layer as autograd functions: checks, saved tensors, results."""

from __future__ import annotations

import torch
from torch.autograd import Function, forward_ad

from .. import ops
from .._errors import InvalidArgument, Unsupported
from .._tensors import (
    BATCHED_GRADIENTS,
    FLOATS,
    HAS_OPERATORS,
    PLAIN_TYPES,
    as_rows,
    autocast_dtype,
    check_device,
    in_transform,
    is_compiling,
    is_wrapped,
    memory_of,
    needs_operator,
    stands_for_a_batch,
    undisturbed,
)
from . import _dispatch
from ._dispatch import native
from ._layer import LayerSet
from ._nested import by_rows
from ._once import differentiable_once
from ._rules import FEW_ROWS, MANY_CODES, reuse
from ._wanted import wanted_gradients

# The kernels without the check whether torch's operator is needed: callers in this file run inside an
# operator, or do not need one.
quantize_rowwise = ops.quantize_rowwise.__wrapped__
quantize_columnwise_transpose = ops.quantize_columnwise_transpose.__wrapped__
gemm_dequantize = ops.gemm_dequantize.__wrapped__


def linear(x, weight, bias, layers: LayerSet, mem_efficient: bool):
    """Computes y[..., N] = x[..., K] . weight[N,K]^T + bias[N], recorded if autograd is on.

    The weight is [K,N] if the layers' options say so. y has x's dtype, or under autocast the autocast
    dtype. TypeError or InvalidArgument names an operand that does not fit.
    """
    if native and not is_compiling():
        y = native.forward(layers, x, weight, bias, mem_efficient)
        if y is not None:
            return y
    if layers.is_empty:
        return _empty_product(x, weight.t() if layers.options.transposed else weight, bias, layers)
    record = _record
    if not _is_plain_call(x, weight, bias, layers):
        if _is_nested(x):
            return by_rows(lambda rows: linear(rows, weight, bias, layers, mem_efficient), x)
        record = _Linear.apply
        if needs_operator(x, weight, of=layers):
            _refuse_tangents(layers, x, weight, bias)
            if layers.options.is_stochastic:
                raise Unsupported(
                    "forward: rounding = 'stochastic' in a compiled or exported model, or for a tensor "
                    "subclass; it needs eager mode, because it counts its steps"
                )
            return linear_operator(x, weight, bias, layers.text, mem_efficient)
        x, dtype = checked_wide_input(x, weight, layers)
        memory_of(weight, "forward", "weight")
        check_dtypes(x, weight)
        keeps_x = not (layers.keeps_blocks or mem_efficient) and weight.requires_grad
        if x.dtype is not dtype and keeps_x and torch.is_grad_enabled():
            x = x.to(dtype)  # one cast for forward and backward, and less memory is kept
        if bias is not None:
            _check_bias(bias, weight)
        _refuse_tangents(layers, x, weight, bias)
    else:
        dtype = x.dtype
    if torch.is_grad_enabled() and (
        x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    ):
        return record(x, weight, bias, layers, mem_efficient, None, dtype)
    return forward_pass(x, weight, bias, layers, None, dtype)[0]


def _empty_product(x, weight, bias, layers: LayerSet):
    """Computes y for a layer without inputs (the bias or zeros) or without outputs, like nn.Linear."""
    _check_shape(x, layers)
    check_dtypes(x, weight)
    return torch.nn.functional.linear(x, weight, bias)


def _is_plain_call(x, weight, bias, layers: LayerSet) -> bool:
    """Whether x certainly passes every check. If it returns False, the checks decide.

    True for a plain tensor with the weight's dtype and device if no feature of torch intercepts the call.
    """
    return (
        type(x) in PLAIN_TYPES
        and undisturbed()
        and x.layout is torch.strided
        and not (x.is_nested or x.is_neg() or is_wrapped(x))
        and x.dim() > 0
        and x.shape[-1] == layers.in_features
        and x.dtype in FLOATS
        and type(weight) in PLAIN_TYPES
        and weight.dtype is x.dtype
        and weight.layout is torch.strided
        and not weight.is_nested
        and (bias is None or (type(bias) in PLAIN_TYPES and bias.dtype is x.dtype))
        and (
            (weight.is_cpu and (bias is None or bias.is_cpu))
            if x.is_cpu
            else x.is_cuda and all(p is None or p.device == x.device for p in (weight, bias))
        )
    )


def linear_operator(x, weight, bias, options: str, mem_efficient: bool):
    """Computes the same as linear() through torch's operator."""
    x = cast_by_autocast(x)
    check_dtypes(x, weight)
    if mem_efficient and torch.is_grad_enabled() and weight.requires_grad:
        return torch.ops.switchback.linear_codes(x, weight, bias, options)[0]
    return torch.ops.switchback.linear(x, weight, bias, options)


def prepared_linear(x, codes, absmax, bias, layers: LayerSet):
    """Computes y[..., N] from x[..., K] and int8 codes[N,K] with absmax[N] or [1]; y has x's dtype.

    If autograd is on, x and the bias get gradients. The codes are frozen.
    """
    if native and not is_compiling():
        y = native.forward_prepared(layers, x, codes, absmax, bias)
        if y is not None:
            return y
    if layers.is_empty:
        bias = None if bias is None else bias.to(x.dtype)
        return _empty_product(x, codes.to(x.dtype), bias, layers)
    if _is_nested(x):
        return by_rows(lambda rows: prepared_linear(rows, codes, absmax, bias, layers), x)
    if needs_operator(x, codes, of=layers):
        _refuse_tangents(layers, x, bias)
        return torch.ops.switchback.linear_prepared(
            cast_by_autocast(x), codes, absmax, bias, layers.text_of_codes
        )
    x = checked_input(x, codes, layers)
    _refuse_tangents(layers, x, bias)
    recorded = x.requires_grad or (bias is not None and bias.requires_grad)
    if recorded and torch.is_grad_enabled():
        return _Prepared.apply(x, codes, absmax, bias, layers)
    return prepared_product(x, codes, absmax, bias, layers)


def cast_by_autocast(x):
    """Casts x to the autocast dtype; returns x itself if autocast is off."""
    dtype = autocast_dtype(x.device.type)
    return x if dtype is None else x.to(dtype)


def _is_nested(x) -> bool:
    """Whether x is a nested tensor whose rows all have the same last dimension."""
    if not getattr(x, "is_nested", False) or not hasattr(torch, "nested"):
        return False
    if x.layout is torch.strided:
        return x.dim() > 1 and hasattr(torch.nested, "as_nested_tensor")
    return hasattr(torch.nested, "nested_tensor_from_jagged") and x._ragged_idx < x.dim() - 1


def _refuse_tangents(layers: LayerSet, *tensors) -> None:
    """Raises Unsupported for a dual tensor of forward mode, whose tangent would be lost silently."""
    if is_compiling() or getattr(forward_ad, "_current_level", -1) < 0:
        return
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise Unsupported(
                f"forward: forward mode (torch.autograd.forward_ad, jvp) is not supported by {layers}; use "
                "backward(), or nn.Linear in its place (exclude= of replace_linear)"
            )


_ALLOWED = "it must be torch.float32, torch.float16 or torch.bfloat16"


def checked_input(x, weight, layers: LayerSet):
    """Checks x[..., K] and returns it in a dtype that the library computes in, cast under autocast."""
    x, dtype = checked_wide_input(x, weight, layers)
    return x if x.dtype is dtype else x.to(dtype)


def checked_wide_input(x, weight, layers: LayerSet):
    """Checks x[..., K] and returns it with the dtype to compute in: x's dtype or the autocast dtype.

    A float32 x is not cast: the library rounds it to that dtype as it reads it. Other dtypes are cast.
    """
    if torch.jit.is_tracing():
        raise RuntimeError(
            "forward: torch.jit.trace cannot record a switchback layer, only the result of one call; trace "
            "the model with nn.Linear in its place"
        )
    if in_transform():
        raise Unsupported(
            f"forward: transforms of torch.func (vmap, grad, jvp, jacrev) cannot go through {layers}, "
            "whose products run outside of torch; use backward() or torch.autograd.grad, a loop in "
            "place of vmap, or nn.Linear in its place (exclude= of replace_linear)"
        )
    x = memory_of(x, "forward", "x")
    _check_shape(x, layers)
    device = x.device
    if device != weight.device:
        raise InvalidArgument(
            f"forward: x is on device {device} and the layer on {weight.device}; move one of them: "
            f"x.to('{weight.device}') or layer.to('{device}')"
        )
    check_device(device, "forward", "x")
    if x.dtype not in FLOATS:
        raise TypeError(f"forward: x has dtype {x.dtype}; {_ALLOWED}")
    dtype = autocast_dtype(device.type) or x.dtype
    return (x, dtype) if x.dtype in (dtype, torch.float32) else (x.to(dtype), dtype)


def _check_shape(x, layers: LayerSet) -> None:
    if x.dim() == 0 or x.shape[-1] != layers.in_features:
        raise InvalidArgument(
            f"forward: x has shape {tuple(x.shape)}; its last dimension must be in_features = "
            f"{layers.in_features}"
        )


def check_dtypes(x, weight) -> None:
    """Raises TypeError unless x and the weight have the same dtype, or autocast is on."""
    if x.dtype is not weight.dtype and autocast_dtype(x.device.type) is None:
        raise TypeError(
            f"forward: x has dtype {x.dtype} and the layer's weight {weight.dtype}; they must be the "
            f"same: x.to({weight.dtype}), layer.to({x.dtype}), or torch.autocast"
        )
    if weight.dtype not in FLOATS:
        raise TypeError(f"forward: the layer's weight has dtype {weight.dtype}; {_ALLOWED}")


def _check_bias(bias, weight) -> None:
    if bias.dtype is not weight.dtype or bias.device != weight.device:
        memory_of(bias, "forward", "bias")
        problem = TypeError if bias.dtype is not weight.dtype else InvalidArgument
        raise problem(
            f"forward: the layer's bias has dtype {bias.dtype} on {bias.device} and its weight "
            f"{weight.dtype} on {weight.device}; they must be the same: layer.to({weight.dtype})"
        )


def forward_pass(
    x, weight, bias, layers: LayerSet, keeps, dtype=None, absmax_of_weight=None, waits: bool = False
):
    """Runs a forward. Returns y, the codes of x and their absmax for gradients(), and the layer that
    computed y.

    dtype: that of y, if it is not x's. keeps: None if no backward follows; else what backward reads: "x",
    "codes" of the rows of x, or codes of "blocks" of rows. Codes and absmax are None unless backward reads
    codes. The returned layer is None if it is on the main context, which `waits` requires.
    absmax_of_weight: if given, the weight is int8 codes with these scales.
    """
    memory, rows, stride = as_rows(x, layers.in_features)
    shape = [*x.shape]
    shape[-1] = layers.out_features
    if dtype is None or dtype is x.dtype:  # in torch, passing a dtype costs half a microsecond
        dtype, y = x.dtype, x.new_empty(shape)
    else:
        y = x.new_empty(shape, dtype=dtype)
    codes = absmax = layer = None
    if keeps == "codes":
        codes = x.new_empty((rows, layers.in_features), dtype=torch.int8)
        absmax = x.new_empty((rows,), dtype=torch.float32)
    elif keeps == "blocks":
        block_rows = layers.options.dw_block_rows
        blocks = -(-rows // block_rows)
        codes = x.new_empty((layers.in_features, blocks * block_rows), dtype=torch.int8)
        absmax = x.new_empty((blocks, layers.in_features), dtype=torch.float32)
    if rows:
        once = keeps is not None
        with layers.use(weight, bias, dtype, x.device, once, absmax_of_weight, waits) as layer:
            layer.forward(memory, rows, stride, y, once, codes, absmax)
            if not layer.context.is_extra:
                layer = None
    return y, codes, absmax, layer


def kept_form(layers: LayerSet, mem_efficient: bool, wants_dw: bool) -> str:
    """The value of the argument `keeps` of forward_pass() for a forward that autograd records."""
    if not wants_dw:
        return "x"
    return "blocks" if layers.keeps_blocks else "codes" if mem_efficient else "x"


def codes_of(rows, rotation: int = 0, activation: str | None = None):
    """Quantizes rows, after the activation and the rotation: returns codes [M,K] and absmax [M]."""
    if rotation:
        return ops.rotate_quantize(rows, rotation, activation)
    if activation:
        return ops.activation_forward_quantize(rows, activation)
    return quantize_rowwise(rows)


def _product_of_few_rows(x, codes, absmax, bias, layers: LayerSet):
    rows = x.detach().reshape(-1, layers.in_features)
    of_x, scales = codes_of(rows, layers.options.rotation, layers.options.activation)
    bias = None if bias is None else bias.detach()
    scale = absmax.detach().reshape(-1)
    y = gemm_dequantize(of_x, codes.detach(), scales, scale, bias, x.dtype)
    return y.reshape(*x.shape[:-1], layers.out_features)


def reads_codes_themselves(rows: int, codes) -> bool:
    """Whether a product with this number of rows reads the module's codes directly, not the library's
    packed copy."""
    few = 0 < rows <= FEW_ROWS and codes.numel() >= MANY_CODES
    return few and codes.is_cpu and not reuse.on


def prepared_product(x, codes, absmax, bias, layers: LayerSet):
    """Computes y from x and int8 codes[N,K] with absmax[N] or [1]."""
    if reads_codes_themselves(x.numel() // layers.in_features, codes):
        return _product_of_few_rows(x, codes, absmax, bias, layers)
    return forward_pass(x, codes, bias, layers, None, absmax_of_weight=absmax)[0]


def _name_of(ctx) -> str:
    return str(ctx.call[0])


def _is_product_of_two(ctx) -> bool:
    """Whether a gradient is a product that depends on another input which requires a gradient: dx on the
    weight, or dw on x."""
    of_x, of_weight = ctx.needs_input_grad[:2]
    return of_x and (of_weight or bool(ctx.call[0].options.activation))


class _Linear(Function):
    """The layer as an autograd function. It saves tensors with torch's own mechanism, so hooks and version
    checks apply."""

    @staticmethod
    def forward(ctx, x, weight, bias, layers: LayerSet, mem_efficient: bool, made=None, dtype=None):
        """made: y, and x's codes and absmax (or None and None), if compiled code has already computed them.

        dtype: the dtype to compute in, if it is not x's. dx has it too, and autograd casts dx to x's
        dtype, as for a cast x.
        """
        wants_dx, wants_dw = ctx.needs_input_grad[:2]
        layer = None
        if made is not None:  # compiled code made it, from operands of one dtype
            y, codes, absmax = made
            dtype = of_weight = of_bias = y.dtype
        else:
            dtype = dtype or x.dtype
            of_weight, of_bias = weight.dtype, None if bias is None else bias.dtype
            keeps = kept_form(layers, mem_efficient, wants_dw)
            y, codes, absmax, layer = forward_pass(x, weight, bias, layers, keeps, dtype)
        ctx.call = layers, dtype, of_weight, of_bias, layer
        reads_x = layers.options.reads_x(wants_dx, wants_dw)
        kept_x = x if reads_x and codes is None else None
        ctx.save_for_backward(kept_x, weight if wants_dx else None, codes, absmax)
        return y

    @staticmethod
    @differentiable_once(_name_of, _is_product_of_two)
    def backward(ctx, g):
        x, weight, codes, absmax = ctx.saved_tensors
        layers, dtype, of_weight, of_bias, layer = ctx.call
        wanted = wants_dx, wants_dw, wants_db = wanted_gradients(ctx)[:3]
        reads_x = wants_dw or bool(layers.options.activation)
        if not wants_dx:
            weight = None
        if not reads_x:
            x = codes = absmax = None
        if stands_for_a_batch(g):
            kept = x, codes, absmax, weight
            return *_batched_gradients(ctx, g, kept, wanted), None, None, None, None
        if (
            native
            and layer is None
            and not is_compiling()
            and not layers.options.is_stochastic
            and reads_x is wants_dw
            and of_weight is dtype
            and (of_bias is None or of_bias is dtype)
        ):
            grads = native.backward(layers, g, x, weight, codes, absmax, wants_db)
            if grads is not None:
                return *grads, None
        g = memory_of(g, "backward", "the gradient")
        grads = gradients(
            g if g.dtype is dtype else g.to(dtype),
            (*g.shape[:-1], layers.in_features),
            (x, weight, codes, absmax),
            wanted,
            (of_weight, of_bias),
            layers,
            layer,
            _rounding(ctx, wanted) if layers.options.is_stochastic else None,
        )
        return *grads, None, None, None, None


def _batched_gradients(ctx, g, kept: tuple, wanted: tuple) -> tuple:
    """Computes dx, dw and db for a batch of gradients in torch.func.vmap, by the operator, which has a vmap
    rule."""
    layers, dtype, of_weight, of_bias = ctx.call[:4]
    if not (HAS_OPERATORS and is_wrapped(g)) or layers.options.is_stochastic:
        raise Unsupported(BATCHED_GRADIENTS.format(layers))
    if not any(wanted[:2]):
        return None, None, g.flatten(0, -2).sum(0, dtype=torch.float32).to(of_bias)
    grads = torch.ops.switchback.linear_backward(
        g.to(dtype), *kept, of_weight, of_bias if wanted[2] else None, layers.text
    )
    return tuple(grad if wants else None for grad, wants in zip(grads, wanted))


def _rounding(ctx, wanted: tuple) -> tuple[int, int, int]:
    """The seed, stream and step of a backward's random bits. If dx is computed now and dw later, both are
    one step."""
    rounding, made = getattr(ctx, "rounding", (None, ()))
    if rounding is None or any(map(min, wanted, made)):
        rounding, made = ctx.call[0].next_rounding(), (False,) * len(wanted)
    ctx.rounding = rounding, tuple(map(max, wanted, made))
    return rounding


def gradients(
    g,
    shape,
    kept: tuple,
    wanted: tuple,
    dtypes: tuple,
    layers: LayerSet,
    ran=None,
    rounding=None,
    absmax_of_weight=None,
) -> tuple:
    """Runs a backward. Returns dx of this shape, dw in the weight's layout and db[N]; None if not wanted.

    g[..., N] is the gradient of y, in y's dtype. kept: x, the weight, x's codes and their absmax,
    each None if it is not needed. dtypes: those of the weight and of the bias. ran: the layer that ran
    the forward, None if it is on the main context. rounding: seed, stream and step of the random bits, if
    not the layers' next step. absmax_of_weight: as for forward_pass().
    """
    wants_dx, wants_dw, wants_db = wanted
    x, weight, codes, absmax = kept
    dtype, (of_weight, of_bias) = g.dtype, dtypes
    out_features, in_features = layers.out_features, layers.in_features
    g, rows, stride = as_rows(g, out_features)
    # For an empty batch the gradients are zero.
    new = g.new_empty if rows else g.new_zeros
    dx = new(shape) if wants_dx else None
    dw = db = None
    if wants_dw:
        shape_of_dw = out_features, in_features
        if layers.options.reads_transposed:
            shape_of_dw = in_features, out_features
        dw = new(shape_of_dw, dtype=gradient_dtype(of_weight, dtype))
    if wants_db:
        db = new((out_features,), dtype=gradient_dtype(of_bias, dtype))
    if rows:
        stride_of_x = 0
        if codes is not None:
            x, absmax = codes.contiguous(), absmax.contiguous()
        elif x is not None:
            x, _, stride_of_x = as_rows(x, in_features)
        weight = weight if wants_dx else None
        with layers.use_again(weight, dtype, g.device, ran, absmax_of_weight) as layer:
            if layers.options.is_stochastic:
                layer.round_stochastically(*(rounding or layers.next_rounding()))
            layer.backward(g, rows, stride, dx, dw, db, x, stride_of_x, absmax)
    if wants_dw or wants_db:
        layers.weight_gradients += 1
    if wants_dw and dw.dtype is not of_weight:
        dw = dw.to(of_weight)
    if wants_dw and layers.options.transposed and not layers.options.reads_transposed:
        dw = dw.t()
    if wants_db and db.dtype is not of_bias:
        db = db.to(of_bias)
    return dx, dw, db


def gradient_dtype(of_parameter: torch.dtype, of_layer: torch.dtype) -> torch.dtype:
    """The dtype in which the library writes a parameter's gradient: the layer's, or float32, which loses
    nothing."""
    return of_layer if of_parameter is of_layer else torch.float32


class _Prepared(Function):
    """A prepared layer as an autograd function: its forward and its backward read the same codes."""

    @staticmethod
    def forward(ctx, x, codes, absmax, bias, layers: LayerSet, made=None):
        """made: y, if compiled code has already computed it."""
        ctx.call = layers, x.dtype, None if bias is None else bias.dtype
        ctx.save_for_backward(codes, absmax)
        return prepared_product(x, codes, absmax, bias, layers) if made is None else made[0]

    @staticmethod
    @differentiable_once(_name_of, lambda ctx: False)  # codes are constants
    def backward(ctx, g):
        layers, dtype, of_bias = ctx.call
        if not (HAS_OPERATORS and is_wrapped(g)):
            g = memory_of(g, "backward", "the gradient")
        if g.dtype is not dtype:
            g = g.to(dtype)
        dx = db = None
        wanted = wanted_gradients(ctx)
        if wanted[0] and HAS_OPERATORS and is_wrapped(g):
            dx = torch.ops.switchback.linear_prepared_dx(
                g, *ctx.saved_tensors, layers.text_of_codes
            )
        elif wanted[0]:
            dx = prepared_dx(g, *ctx.saved_tensors, layers)
        if wanted[3]:
            db = g.reshape(-1, g.shape[-1]).sum(0, dtype=torch.float32).to(of_bias)
        return dx, None, None, db, None, None


# The C function that records a Function's call, without torch's Python wrapper around it. The wrapper handles
# torch.func's transforms; calls in transforms, or on tensors from them, do not reach this code.
_record = super(Function, _Linear).apply
if native:
    _dispatch.connect(_record, super(Function, _Prepared).apply)


def prepared_dx(g, codes, absmax, layers: LayerSet):
    """Computes dx[..., K] in g's dtype, from g[..., N] and the codes[N,K] with absmax[N] or [1].

    With one scale, dx has the bits of a layer with the float weight. With a scale per row of the weight,
    the scales first multiply the columns of g, in float32, and the result is quantized. dx is then the
    sum over n of (g * absmax)[m,n] * codes[n,k] / 127, without other errors.
    Codes of a rotated weight give the gradient of the rotated x, which is rotated back in float32.
    """
    if native and not layers.options.is_stochastic and not is_compiling():
        dx = native.backward_prepared(layers, g, codes, absmax)
        if dx is not None:
            return dx
    shape = *g.shape[:-1], layers.in_features
    kept, wanted, dtypes = (None, codes, None, None), (True, False, False), (None, None)
    return gradients(g, shape, kept, wanted, dtypes, layers, absmax_of_weight=absmax)[0]
