# SPDX-License-Identifier: Apache-2.0
"""The layers as operators of torch: torch.ops.switchback.linear and similar operators.

An operator has no state. The codes of a weight are kept with the tensor that was passed as the
weight, while it lives, and used again by the same rules as in modules.
"""

from __future__ import annotations

import collections
import threading

import torch

from .._errors import InvalidArgument, InvalidState, Unsupported
from .._operators import (
    check_floats,
    define,
    define_autocast,
    define_gradient,
    define_loop,
    refuse_gradient,
)
from .._tensors import memory_of
from . import _fragmented, _function, _grouped
from ._dispatch import native
from ._layer import LayerSet
from ._options import LayerOptions
from ._wanted import wanted_gradients

_ONCE = "has no second derivative; use nn.Linear in its place"

_lock = threading.Lock()
_ATTRIBUTE = "_switchback_layers"


class _Kept(dict):
    """The library layers of one tensor, stored as its attribute, so that they live as long as the tensor.

    A dictionary of weak references would not work: torch.utils.swap_tensors refuses a tensor that has
    any. It swaps attributes as well, so that they stay with the memory. Copies and pickles are empty and
    have a type that torch.load accepts.
    """

    def __init__(self, tensor):
        super().__init__()
        self.of = tensor._cdata

    def __reduce__(self):
        return collections.OrderedDict, ()


def _layers_of(tensor, kind: type, sizes: tuple, options: str):
    """Returns the library layers that have this tensor as their weight or codes; creates them if needed."""
    key = kind, sizes, options
    found = None
    kept = tensor.__dict__.get(_ATTRIBUTE)
    # The attribute may have been copied or swapped from another tensor; then it is not used.
    if type(kept) is _Kept and kept.of == tensor._cdata:
        found = kept.get(key)
    if found is None:
        with _lock:
            kept = tensor.__dict__.get(_ATTRIBUTE)
            if type(kept) is not _Kept or kept.of != tensor._cdata:
                kept = tensor.__dict__[_ATTRIBUTE] = _Kept(tensor)
            found = kept.get(key)
            if found is None:
                found = kept[key] = kind(*sizes, LayerOptions.parse(options))
                found.announced_seen = LayerSet.announced
    if found.announced_seen != LayerSet.announced:  # a module, perhaps with this weight, announced a change
        found.announced_seen = LayerSet.announced
        found.updates += 1
    return found


def _rows(weight, options: str):
    """The weight with the shape [N,K], transposed if the options say that it is [K,N]."""
    return weight.t() if LayerOptions.parse(options).transposed else weight


def _linear_layers(weight, options: str) -> LayerSet:
    out_features, in_features = _rows(weight, options).shape
    return _layers_of(weight, LayerSet, (in_features, out_features), options)


def _check(x, weight, bias, options: str, codes: bool = False) -> None:
    """Checks the arguments of the operator linear, for tensors with and without memory."""
    transposed = LayerOptions.parse(options).transposed
    name = "codes" if codes else "weight"
    if weight.dim() != 2:
        raise InvalidArgument(
            f"forward: {name} has shape {tuple(weight.shape)}; it must be [out_features, in_features]"
        )
    if transposed and codes:
        raise InvalidArgument("forward: options have transposed = 1; for codes it must be 0")
    weight = _rows(weight, options)
    if x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        raise InvalidArgument(
            f"forward: x has shape {tuple(x.shape)}; its last dimension must be in_features = "
            f"{weight.shape[1]}"
        )
    if x.device != weight.device:
        raise InvalidArgument(
            f"forward: x is on device {x.device} and the layer on {weight.device}; move one of them: "
            f"x.to('{weight.device}') or layer.to('{x.device}')"
        )
    check_floats("forward", x=x)
    if not codes:
        check_floats("forward", weight=weight)
    elif weight.dtype is not torch.int8:
        raise TypeError(f"forward: codes have dtype {weight.dtype}; they must be torch.int8")
    if bias is not None:
        check_floats("forward", bias=bias)
        if bias.shape != weight.shape[:1]:
            raise InvalidArgument(
                f"forward: bias has shape {tuple(bias.shape)}; it must be ({weight.shape[0]},): "
                "out_features"
            )


def _empty_output(x, weight, options: str = "mode=rowwise"):
    weight = _rows(weight, options)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


# ---- linear


def _linear(x, weight, bias, options: str):
    # Autograd is off inside an operator, so it is not known whether a backward will follow.
    once = weight.requires_grad
    if native and weight.dim() == 2:
        layers = _linear_layers(weight, options)
        y = native.forward(layers, x, weight, bias, False, once)
        if y is not None:
            return y
    _check(x, weight, bias, options)
    layers = _linear_layers(weight, options)
    x = memory_of(x, "forward", "x")
    keeps = "x" if once else None
    # `waits`: the forward must run on the main layer, because a backward uses its codes.
    return _function.forward_pass(x, weight, bias, layers, keeps, waits=True)[0]


def _fake_linear(x, weight, bias, options: str):
    _check(x, weight, bias, options)
    return _empty_output(x, weight, options)


define(
    "linear(Tensor x, Tensor weight, Tensor? bias, str options) -> Tensor", _linear, _fake_linear
)


def _linear_codes(x, weight, bias, options: str):
    _check(x, weight, bias, options)
    x = memory_of(x, "forward", "x")
    layers = _linear_layers(weight, options)
    return _function.forward_pass(x, weight, bias, layers, "codes", waits=True)[:3]


def _fake_linear_codes(x, weight, bias, options: str):
    _check(x, weight, bias, options)
    rows = x.numel() // x.shape[-1]
    codes = x.new_empty((rows, x.shape[-1]), dtype=torch.int8)
    return _empty_output(x, weight, options), codes, x.new_empty((rows,), dtype=torch.float32)


define(
    "linear_codes(Tensor x, Tensor weight, Tensor? bias, str options) -> (Tensor, Tensor, Tensor)",
    _linear_codes,
    _fake_linear_codes,
)


_without_weight: dict = {}  # layers that compute only weight gradients


def _layers_without_weight(out_features: int, in_features: int, options: str) -> LayerSet:
    with _lock:
        key = in_features, out_features, options
        found = _without_weight.get(key)
        if found is None:
            sizes = in_features, out_features
            found = _without_weight[key] = LayerSet(*sizes, LayerOptions.parse(options))
        return found


def _in_features(x, codes, weight, options: str) -> int:
    weight = None if weight is None else _rows(weight, options)
    return next(t.shape[-1] for t in (weight, x, codes) if t is not None)


def _linear_backward(g, x, codes, absmax, weight, of_weight, of_bias, options: str):
    """Computes dx if there is a weight, dw if there is x or its codes, db if it has a dtype. Other results
    are empty tensors."""
    g = memory_of(g, "backward", "the gradient")
    out_features, in_features = g.shape[-1], _in_features(x, codes, weight, options)
    if weight is None:
        layers = _layers_without_weight(out_features, in_features, options)
    else:
        layers = _linear_layers(weight, options)
    if native and weight is not None and of_weight is g.dtype and of_bias in (None, g.dtype):
        wants_db = of_bias is not None
        grads = native.backward(layers, g, x, weight, codes, absmax, wants_db)
        if grads is not None:
            return tuple(g.new_empty(0) if grad is None else grad for grad in grads[:3])
    grads = _function.gradients(
        g,
        (*g.shape[:-1], in_features),
        (x, weight, codes, absmax),
        (weight is not None, x is not None or codes is not None, of_bias is not None),
        (of_weight, of_bias),
        layers,
    )
    return tuple(g.new_empty(0) if grad is None else grad for grad in grads)


def _fake_linear_backward(g, x, codes, absmax, weight, of_weight, of_bias, options: str):
    nothing = g.new_empty(0)
    in_features = _in_features(x, codes, weight, options)
    dx = nothing if weight is None else g.new_empty((*g.shape[:-1], in_features))
    dw, db = g.new_empty(0), g.new_empty(0)
    if x is not None or codes is not None:
        parsed = LayerOptions.parse(options)
        if parsed.reads_transposed:
            dw = g.new_empty((in_features, g.shape[-1]), dtype=of_weight)
        else:
            dw = g.new_empty((g.shape[-1], in_features), dtype=of_weight)
            dw = dw.t() if parsed.transposed else dw
    if of_bias is not None:
        db = g.new_empty((g.shape[-1],), dtype=of_bias)
    return dx, dw, db


define(
    "linear_backward(Tensor g, Tensor? x, Tensor? codes, Tensor? absmax, Tensor? weight, "
    "ScalarType of_weight, ScalarType? of_bias, str options) -> (Tensor, Tensor, Tensor)",
    _linear_backward,
    _fake_linear_backward,
)
refuse_gradient("linear_backward", _ONCE)


def _keep(ctx, inputs, output) -> None:
    """Saves tensors for the backward of the operators linear and linear_codes."""
    x, weight, bias, ctx.options = inputs
    wants_dx, wants_dw, wants_db = ctx.needs_input_grad[:3]
    ctx.of_weight = weight.dtype
    ctx.of_bias = bias.dtype if wants_db else None
    ctx.wanted = wants_dx or wants_dw or wants_db
    ctx.dtype = x.dtype
    codes = absmax = None
    if isinstance(output, tuple) and wants_dw:
        _, codes, absmax = output
    reads_x = LayerOptions.parse(ctx.options).reads_x(wants_dx, wants_dw)
    kept_x = x if reads_x and codes is None else None
    # Without dx, backward does not read the weight, but some tensor must give the number of features of x.
    kept_weight = weight if wants_dx or not wants_dw else None
    ctx.save_for_backward(kept_x, kept_weight, codes, absmax)


def _backward(ctx, g, *_of_codes):
    if g is None or not ctx.wanted:
        return None, None, None, None
    x, weight, codes, absmax = ctx.saved_tensors
    wants_dx, wants_dw, wants_db = wanted_gradients(ctx)[:3]
    if wants_dw and not wants_dx:
        weight = None
    elif not wants_dw and not LayerOptions.parse(ctx.options).activation:
        x = codes = absmax = None
    dx, dw, db = torch.ops.switchback.linear_backward(
        g.to(ctx.dtype),
        x,
        codes,
        absmax,
        weight,
        ctx.of_weight,
        ctx.of_bias if wants_db else None,
        ctx.options,
    )
    return dx if wants_dx else None, dw if wants_dw else None, db if wants_db else None, None


for _name in ("linear", "linear_codes"):
    define_gradient(_name, _backward, _keep)
    define_autocast(_name)
    define_loop(_name, rows_of_first=_name == "linear")
define_loop("linear_backward")


# ---- The operator linear_prepared: a layer whose weight is int8 codes


def _linear_prepared(x, codes, absmax, bias, options: str):
    if native and codes.dim() == 2:
        layers = _linear_layers(codes, options)
        y = native.forward_prepared(layers, x, codes, absmax, bias, True)
        if y is not None:
            return y
    _check(x, codes, bias, options, codes=True)
    x = memory_of(x, "forward", "x")
    return _function.prepared_product(x, codes, absmax, bias, _linear_layers(codes, options))


def _fake_linear_prepared(x, codes, absmax, bias, options: str):
    _check(x, codes, bias, options, codes=True)
    return _empty_output(x, codes)


define(
    "linear_prepared(Tensor x, Tensor codes, Tensor absmax, Tensor? bias, str options) -> Tensor",
    _linear_prepared,
    _fake_linear_prepared,
)


def _prepared_dx(g, codes, absmax, options: str):
    g, layers = memory_of(g, "backward", "the gradient"), _linear_layers(codes, options)
    if layers.options.is_stochastic:
        raise Unsupported(
            "backward: rounding = 'stochastic' in a compiled or exported model; the result depends on how "
            "many backward passes ran before, which an operator does not know"
        )
    return _function.prepared_dx(g, codes, absmax, layers)


define(
    "linear_prepared_dx(Tensor g, Tensor codes, Tensor absmax, str options) -> Tensor",
    _prepared_dx,
    lambda g, codes, absmax, options: g.new_empty((*g.shape[:-1], codes.shape[1])),
)
refuse_gradient("linear_prepared_dx", _ONCE)


def _keep_codes(ctx, inputs, output) -> None:
    x, codes, absmax, bias, ctx.options = inputs
    ctx.dtype = x.dtype
    ctx.of_bias = None if bias is None else bias.dtype
    ctx.save_for_backward(codes, absmax)


def _backward_of_prepared(ctx, g):
    codes, absmax = ctx.saved_tensors
    g, dx, db = g.to(ctx.dtype), None, None
    wanted = wanted_gradients(ctx)
    if wanted[0]:
        dx = torch.ops.switchback.linear_prepared_dx(g, codes, absmax, ctx.options)
    if wanted[3]:
        db = g.reshape(-1, g.shape[-1]).sum(0, dtype=torch.float32).to(ctx.of_bias)
    return dx, None, None, db, None


define_gradient("linear_prepared", _backward_of_prepared, _keep_codes)
define_autocast("linear_prepared")
define_loop("linear_prepared", rows_of_first=True)
define_loop("linear_prepared_dx", rows_of_first=True)


# ---- grouped


def _check_grouped(x, weight, bias, offs, options: str) -> None:
    parsed = LayerOptions.parse(options)
    if parsed.transposed or parsed.is_stochastic:
        raise InvalidArgument(
            f"forward: options = {options!r}; with groups they must have neither transposed = 1 nor "
            "rounding = stochastic"
        )
    if x.dim() != 2 or weight.dim() != 3 or x.shape[1] != weight.shape[2]:
        raise InvalidArgument(
            f"forward: x has shape {tuple(x.shape)} and weight {tuple(weight.shape)}; they must be "
            "[rows, in_features] and [groups, out_features, in_features]"
        )
    check_floats("forward", x=x, weight=weight)
    if offs.dim() != 1 or offs.shape[0] != weight.shape[0]:
        raise InvalidArgument(
            f"forward: offs has shape {tuple(offs.shape)}; it must be ({weight.shape[0]},): the ends "
            "of the groups"
        )


def _grouped_layers(weight, options: str):
    groups, out_features, in_features = weight.shape
    return _layers_of(weight, _grouped._GroupedLayers, (groups, in_features, out_features), options)


def _grouped_linear(x, weight, bias, offs, index, slots, options: str):
    _check_grouped(x, weight, bias, offs, options)
    offs = _grouped.numbers(offs, "offs", (torch.int32,), x.device)
    if index is not None:
        kinds = torch.int32, torch.int64
        index = _grouped.numbers(index, "index", kinds, x.device).to(torch.int32)
    layers = _grouped_layers(weight, options)
    return _grouped.product(x, weight, bias, offs, index, layers, once=weight.requires_grad)


def _fake_grouped_linear(x, weight, bias, offs, index, slots, options: str):
    _check_grouped(x, weight, bias, offs, options)
    return x.new_empty((x.shape[0] if index is None else index.shape[0], weight.shape[1]))


define(
    "grouped_linear(Tensor x, Tensor weight, Tensor? bias, Tensor offs, Tensor? index, "
    "Tensor? slots, str options) -> Tensor",
    _grouped_linear,
    _fake_grouped_linear,
)


def _grouped_backward(
    g, x, weight, offs, index, slots, rows, wants_dx, wants_dw, of_bias, options: str
):
    """Computes dx, dw and db. Gradients that are not wanted are empty tensors, and so is db if it has no
    dtype."""
    index = None if index is None else index.contiguous().to(torch.int32)
    grads = _grouped.gradients(
        memory_of(g, "backward", "the gradient"),
        (x, weight, offs.contiguous(), index, slots),
        rows,
        (wants_dx, wants_dw, of_bias is not None),
        (weight.dtype, of_bias),
        _grouped_layers(weight, options),
    )
    return tuple(g.new_empty(0) if grad is None else grad for grad in grads)


def _fake_grouped_backward(
    g, x, weight, offs, index, slots, rows, wants_dx, wants_dw, of_bias, options: str
):
    groups, out_features, in_features = weight.shape
    dx = g.new_empty((rows, in_features)) if wants_dx else g.new_empty(0)
    dw = weight.new_empty(weight.shape) if wants_dw else g.new_empty(0)
    db = g.new_empty(0)
    if of_bias is not None:
        db = g.new_empty((groups, out_features), dtype=of_bias)
    return dx, dw, db


define(
    "grouped_linear_backward(Tensor g, Tensor? x, Tensor weight, Tensor offs, Tensor? index, "
    "Tensor? slots, SymInt rows, bool wants_dx, bool wants_dw, ScalarType? of_bias, str options) -> "
    "(Tensor, Tensor, Tensor)",
    _grouped_backward,
    _fake_grouped_backward,
)
refuse_gradient("grouped_linear_backward", _ONCE)


def _keep_grouped(ctx, inputs, output) -> None:
    x, weight, bias, offs, index, slots, ctx.options = inputs
    ctx.rows, ctx.dtype = x.shape[0], x.dtype
    ctx.of_bias = bias.dtype if ctx.needs_input_grad[2] else None
    wants_dx, wants_dw = ctx.needs_input_grad[:2]
    keeps_x = LayerOptions.parse(ctx.options).reads_x(wants_dx, wants_dw)
    ctx.save_for_backward(x if keeps_x else None, weight, offs, index, slots)


def _backward_of_grouped(ctx, g):
    x, weight, offs, index, slots = ctx.saved_tensors
    wants = wanted_gradients(ctx)[:3]
    grads = torch.ops.switchback.grouped_linear_backward(
        g.to(ctx.dtype),
        x,
        weight,
        offs,
        index,
        slots,
        ctx.rows,
        wants[0],
        wants[1],
        ctx.of_bias if wants[2] else None,
        ctx.options,
    )
    return *(grad if wanted else None for grad, wanted in zip(grads, wants)), *(None,) * 4


define_gradient("grouped_linear", _backward_of_grouped, _keep_grouped)
define_autocast("grouped_linear")

define(
    "combine(Tensor y, Tensor slots, Tensor weights) -> Tensor",
    _grouped.combined,
    lambda y, slots, weights: y.new_empty((slots.shape[0], y.shape[1])),
)
define_gradient(
    "combine",
    lambda ctx, g: _grouped.combine_gradients(g, *ctx.saved_tensors, *wanted_gradients(ctx)[::2]),
    lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


# ---- The fragmented layer


def _fragmented_layers(weight, selector, down, options: str):
    out_features, in_features = weight.shape
    sizes = in_features, out_features, selector.shape[0], down.shape[0]
    return _layers_of(weight, _fragmented._FragmentedLayers, sizes, options)


def _fragmented_linear(x, weight, selector, down, up, hard: bool, options: str):
    _check(x, weight, None, options)
    layers = _fragmented_layers(weight, selector, down, options)
    once = not hard and weight.requires_grad
    return _fragmented.product(x, (weight, selector, down, up), layers, hard, once)


define(
    "fragmented_linear(Tensor x, Tensor weight, Tensor selector, Tensor down, Tensor up, bool hard, "
    "str options) -> Tensor",
    _fragmented_linear,
    lambda x, weight, selector, down, up, hard, options: _fake_linear(x, weight, None, options),
)


def _fragmented_backward(g, x, weight, selector, down, up, options: str):
    layers = _fragmented_layers(weight, selector, down, options)
    weights = weight, selector, down, up
    g = memory_of(g, "backward", "the gradient")
    return _fragmented.gradients(g, x, weights, (True,) * 5, layers)


define(
    "fragmented_linear_backward(Tensor g, Tensor x, Tensor weight, Tensor selector, Tensor down, "
    "Tensor up, str options) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _fragmented_backward,
    lambda g, *operands: tuple(t.new_empty(t.shape) for t in operands[:5]),
)
refuse_gradient("fragmented_linear_backward", _ONCE)


def _keep_fragmented(ctx, inputs, output) -> None:
    *tensors, ctx.hard, ctx.options = inputs
    ctx.save_for_backward(*tensors)


def _backward_of_fragmented(ctx, g):
    if ctx.hard:
        raise InvalidState(_fragmented.HARD_HAS_NO_GRADIENT)
    tensors = ctx.saved_tensors
    grads = torch.ops.switchback.fragmented_linear_backward(
        g.to(tensors[0].dtype), *tensors, ctx.options
    )
    wanted = ctx.needs_input_grad
    return *(grad if want else None for grad, want in zip(grads, wanted)), None, None


define_gradient("fragmented_linear", _backward_of_fragmented, _keep_fragmented)
define_autocast("fragmented_linear")
