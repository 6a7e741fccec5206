# SPDX-License-Identifier: Apache-2.0
"""Linear layers that each compute their own group of rows: the module and its autograd functions."""

from __future__ import annotations

import ctypes
import math

import torch
from torch.autograd import Function

from .. import _abi
from .._errors import InvalidArgument
from .._library import check, library
from .._modes import MODES
from .._tensors import DTYPES, as_rows, context_of, memory_of, needs_operator
from ._function import (
    _check_bias,
    _is_product_of_two,
    _refuse_tangents,
    cast_by_autocast,
    check_dtypes,
    checked_input,
    gradient_dtype,
)
from ._layer import Layer, LayerSet
from ._module import OnLibrary, outside_graphs
from ._once import differentiable_once
from ._options import LayerOptions, check_dw, check_rotation
from ._trace import as_leaf, is_traced
from ._wanted import wanted_gradients


class _GroupedLayers(LayerSet):
    """The library layers of one SwitchBackGroupedLinear module, by dtype and context."""

    SIZES = ("groups", "in_features", "out_features")

    def _new_layer(self, dtype, context):
        return _GroupedLayer(self, dtype, context)


class _GroupedLayer(Layer):
    """A switchback_linear of the C library with groups. Its backward reads the input, not codes of the input.
    """

    def _groups(self, offs, index) -> _abi.Groups:
        return _abi.Groups(
            count=offs.numel(),
            on_device=0 if self._on_cpu else 1,
            ends=offs.data_ptr(),
            row_index=None if index is None else index.data_ptr(),
        )

    def grouped_forward(self, x, offs, index, y, trains: bool) -> None:
        """Computes y[M,N]. Row s of y ("slot" s) reads row s of x, or row index[s]."""
        m, d = self._x, self._y
        memory, m.rows, m.stride = as_rows(x, m.cols)
        m.data = memory.data_ptr()
        d.data, d.rows = y.data_ptr(), y.shape[0]
        groups = ctypes.byref(self._groups(offs, index))
        save = _abi.SAVE_CALLER if trains else _abi.SAVE_NOTHING
        self._call("forward_groups", groups, self._x_at, self._y_at, save)

    def grouped_backward(self, g, x, offs, index, dx, dw, db) -> None:
        """Computes dx[M,K] for each row of y, dw[G,N,K] and db[G,N]; outputs that are None are left out."""
        memory, rows, stride = as_rows(g, self._g.cols)
        self._set_gradients(memory, rows, stride, dx, dw, db)
        kept = None
        if x is not None:
            m, kept = self._x, self._x_at
            x, m.rows, m.stride = as_rows(x, m.cols)
            m.data = x.data_ptr()
        groups = ctypes.byref(self._groups(offs, index))
        self._call("backward_groups", self._grads_at, groups, kept)


def grouped_linear(x, weight, bias, offs, index, slots, layers: _GroupedLayers):
    """Computes y[M,N], as SwitchBackGroupedLinear.forward describes. slots[T,S]: the rows of y that read
    each row of x, padded with -1. None: computed from index when needed."""
    if needs_operator(x, weight, of=layers):
        x = cast_by_autocast(x)
        check_dtypes(x, weight)
        return torch.ops.switchback.grouped_linear(x, weight, bias, offs, index, slots, layers.text)
    x = checked_input(x, weight, layers)
    memory_of(weight, "forward", "weight")
    check_dtypes(x, weight)
    if x.dim() != 2:
        raise InvalidArgument(
            f"forward: x has shape {tuple(x.shape)}; it must be [rows, in_features]"
        )
    offs = numbers(offs, "offs", (torch.int32,), x.device)
    if offs.numel() != layers.groups:
        raise InvalidArgument(
            f"forward: offs has {offs.numel()} ends; the layer has {layers.groups} groups"
        )
    if index is not None:
        index = numbers(index, "index", (torch.int32, torch.int64), x.device).to(torch.int32)
    recorded = x.requires_grad or weight.requires_grad
    if bias is not None:
        _check_bias(bias, weight)
        recorded = recorded or bias.requires_grad
    _refuse_tangents(layers, x, weight, bias)
    if recorded and torch.is_grad_enabled():
        return _GroupedLinear.apply(x, weight, bias, offs, index, slots, layers)
    return product(x, weight, bias, offs, index, layers, once=False)


def numbers(tensor, name: str, dtypes: tuple, device):
    """Checks a vector of numbers, which must be on the device of x, and returns it contiguous."""
    tensor = memory_of(tensor, "forward", name)
    if tensor.dtype not in dtypes:
        allowed = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"forward: {name} has dtype {tensor.dtype}; it must be {allowed}")
    if tensor.dim() != 1:
        raise InvalidArgument(
            f"forward: {name} has shape {tuple(tensor.shape)}; it must have one dimension"
        )
    if tensor.device != device:
        raise InvalidArgument(f"forward: {name} is on device {tensor.device} and x on {device}")
    return tensor.contiguous()


def _empty(like, rows: int, cols: int):
    """A new output [rows, cols]. On a GPU it is zeroed: the host does not know which rows stay unwritten."""
    return (like.new_empty if like.device.type == "cpu" else like.new_zeros)((rows, cols))


def _clear_unused(rows, offs) -> None:
    """Zeroes the rows after the end of the last group."""
    if rows.device.type == "cpu":
        rows[int(offs[-1]) :].zero_()


def product(x, weight, bias, offs, index, layers: _GroupedLayers, once: bool):
    slots = x.shape[0] if index is None else index.numel()
    y = _empty(x, slots, layers.out_features)
    with layers.use(weight, bias, x.dtype, x.device, once, waits=True) as layer:
        layer.grouped_forward(x, offs, index, y, once)
    _clear_unused(y, offs)
    return y


class _GroupedLinear(Function):
    """The layer as an autograd function. It saves tensors with torch's own mechanism, so hooks and version
    checks apply."""

    @staticmethod
    def forward(ctx, x, weight, bias, offs, index, slots, layers: _GroupedLayers):
        wants_dx, wants_dw = ctx.needs_input_grad[:2]
        dtypes = weight.dtype, None if bias is None else bias.dtype
        ctx.call = layers, x.dtype, x.shape[0], dtypes
        y = product(x, weight, bias, offs, index, layers, once=True)
        kept_x = x if layers.options.reads_x(wants_dx, wants_dw) else None
        ctx.save_for_backward(kept_x, weight if wants_dx else None, offs, index, slots)
        return y

    @staticmethod
    @differentiable_once("SwitchBackGroupedLinear", _is_product_of_two)
    def backward(ctx, g):
        layers, dtype, rows, dtypes = ctx.call
        wanted = wanted_gradients(ctx)[:3]
        g = memory_of(g, "backward", "the gradient").to(dtype)
        grads = gradients(g, ctx.saved_tensors, rows, wanted, dtypes, layers)
        return *grads, None, None, None, None


def gradients(g, kept: tuple, rows: int, wanted: tuple, dtypes: tuple, layers: _GroupedLayers):
    """Computes dx[rows,K], dw[G,N,K] and db[G,N]; None for those that are not wanted.

    kept: x, the weight, offs, index and slots, each None if it is missing or not needed. dtypes:
    those of the weight and of the bias.
    """
    x, weight, offs, index, slots = kept
    wants_dx, wants_dw, wants_db = wanted
    if not layers.options.reads_x(wants_dx, wants_dw):
        x = None
    dtype, (of_weight, of_bias) = g.dtype, dtypes
    groups, n, k = layers.groups, layers.out_features, layers.in_features
    dx = dw = db = None
    if wants_dx:
        dx = _empty(g, g.shape[0], k)
    if wants_dw:
        dw = g.new_empty((groups, n, k), dtype=gradient_dtype(of_weight, dtype))
    if wants_db:
        db = g.new_empty((groups, n), dtype=gradient_dtype(of_bias, dtype))
    weight = weight if wants_dx else None
    with layers.use_again(weight, dtype, g.device, waits=True) as layer:
        layer.grouped_backward(g, x, offs, index, dx, dw, db)
    if wants_dw or wants_db:
        layers.weight_gradients += 1
    if wants_dx and index is None:
        _clear_unused(dx, offs)
    elif wants_dx:
        if slots is None:
            slots = _slots_of(index, offs, rows)
        dx = combined(dx, slots, None)
    if wants_dw and dw.dtype is not of_weight:
        dw = dw.to(of_weight)
    if wants_db and db.dtype is not of_bias:
        db = db.to(of_bias)
    return dx, dw, db


def _slots_of(index, offs, rows: int):
    """Returns slots[rows,S]: the rows of y that read each row of x, in ascending order, then -1.

    On a GPU the host waits here for S, the largest number of rows of y that read the same row of x.
    """
    places = torch.arange(index.numel(), dtype=torch.int32, device=index.device)
    used = torch.where(places < offs[-1], index, torch.full_like(index, rows))
    sorted_rows, order = torch.sort(used, stable=True)
    first = torch.searchsorted(sorted_rows, sorted_rows)
    place = torch.arange(index.numel(), device=index.device) - first
    place = torch.where(sorted_rows < rows, place, torch.zeros_like(place))
    most = int(place.max()) + 1 if index.numel() else 1
    slots = torch.full((rows + 1, most), -1, dtype=torch.int32, device=index.device)
    slots[sorted_rows.long(), place] = order.to(torch.int32)
    return slots[:rows].contiguous()


def combined(y, slots, weights):
    """Calls the library: out[T,N], whose row t is the sum of weights[t,i] * y[slots[t,i]] over i."""
    y, rows, stride = as_rows(y, y.shape[1])
    out = y.new_empty((slots.shape[0], y.shape[1]))
    given = _abi.Matrix(y.data_ptr(), DTYPES[y.dtype], rows, y.shape[1], stride)
    result = _abi.Matrix(out.data_ptr(), DTYPES[out.dtype], *out.shape, out.shape[1])
    where = _abi.Matrix(slots.data_ptr(), _abi.S32, *slots.shape, slots.shape[1])
    factors = None
    if weights is not None:
        weights = weights.contiguous()
        factors = _abi.Matrix(weights.data_ptr(), _abi.F32, *weights.shape, weights.shape[1])
        factors = ctypes.byref(factors)
    context = context_of(y.device, "combine", "y").take()
    try:
        context.enter()
        check(
            library().switchback_combine(
                context.pointer,
                ctypes.byref(given),
                ctypes.byref(where),
                factors,
                ctypes.byref(result),
            )
        )
    finally:
        context.lock.release()
    return out


def combine(y, slots, weights):
    """Computes Combine.apply, or calls torch's operator if the tensors need it."""
    if needs_operator(y, slots, weights):
        return torch.ops.switchback.combine(y, slots, weights)
    return Combine.apply(y, slots, weights)


class Combine(Function):
    """Computes out[T,N] from y[M,N], slots[T,S] int32 (negative: unused) and weights[T,S] float32.

    Row t is the sum of weights[t,i] * y[slots[t,i]] over i in this order, in float32. A slot occurs
    at most once.
    """

    @staticmethod
    def forward(ctx, y, slots, weights):
        ctx.save_for_backward(y, slots, weights)
        return combined(y, slots, weights)

    @staticmethod
    @differentiable_once("SwitchBackExperts", lambda ctx: all(ctx.needs_input_grad[::2]))
    def backward(ctx, g):
        return combine_gradients(g, *ctx.saved_tensors, *wanted_gradients(ctx)[::2])


def combine_gradients(g, y, slots, weights, wants_dy: bool, wants_dweights: bool):
    """Computes the gradients of y, of slots (None) and of the weights."""
    # Unused slots (-1) read and write an extra row at the end.
    places = torch.where(slots >= 0, slots, torch.full_like(slots, y.shape[0])).reshape(-1)
    places = places.long()
    dy = dweights = None
    if wants_dy:
        terms = (g.unsqueeze(1).float() * weights.unsqueeze(-1)).to(y.dtype)
        dy = y.new_zeros((y.shape[0] + 1, y.shape[1]))
        dy = dy.index_put((places,), terms.reshape(-1, y.shape[1]))
        dy = dy[:-1]
    if wants_dweights:
        rows = y.index_select(0, places.clamp(max=max(y.shape[0] - 1, 0)))
        terms = rows.view(*slots.shape, -1).float() * g.unsqueeze(1).float()
        # masked_fill and not a product with 0: 0 times NaN in an unused row would be NaN.
        dweights = terms.sum(-1).masked_fill(slots < 0, 0)
    return dy, None, dweights


class SwitchBackGroupedLinear(OnLibrary, torch.nn.Module):
    """Linear layers of one shape, each for one group of rows, in one call.

    Each row of y has the bits of a SwitchBackLinear with its group's weight and these options. The
    parameters are weight[groups, out_features, in_features] and bias[groups, out_features].

    Args:
        groups, in_features, out_features: the number of layers and their features.
        bias, device, dtype: as for nn.Linear.
        mode: as for SwitchBackLinear. Each group's weight has its own scales; "auto" takes the mode
            that is the fastest for all groups together.
        rotation, dw, dw_block_rows: as for SwitchBackLinear. The input is kept for backward also
            with dw="int8_block". Each group begins a new block of rows.
    """

    def __init__(
        self,
        groups: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device=None,
        dtype=None,
        *,
        mode: str = "rowwise",
        rotation: int = 0,
        dw: str = "floating",
        dw_block_rows: int = 256,
    ):
        super().__init__()
        sizes = {"groups": groups, "in_features": in_features, "out_features": out_features}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(
                    f"SwitchBackGroupedLinear: {name} = {value}; it must be at least 1"
                )
        if mode not in MODES:
            allowed = ", ".join(repr(name) for name in MODES)
            raise ValueError(
                f"SwitchBackGroupedLinear: mode = {mode!r}; it must be one of {allowed}"
            )
        check_rotation("SwitchBackGroupedLinear", rotation, in_features, mode)
        check_dw("SwitchBackGroupedLinear", dw, dw_block_rows, mode)
        self.groups, self.in_features, self.out_features = groups, in_features, out_features
        self.mode, self.rotation = mode, rotation
        self.dw, self.dw_block_rows = dw, dw_block_rows
        options = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(
            torch.empty((groups, out_features, in_features), **options)
        )
        if bias:
            self.bias = torch.nn.Parameter(torch.empty((groups, out_features), **options))
        else:
            self.register_parameter("bias", None)
        self._layers = self._new_layers()
        self.reset_parameters()

    def _new_layers(self) -> _GroupedLayers:
        sizes = self.groups, self.in_features, self.out_features
        options = LayerOptions(
            self.mode, rotation=self.rotation, dw=self.dw, dw_block_rows=self.dw_block_rows
        )
        return _GroupedLayers(*sizes, options)

    def reset_parameters(self) -> None:
        """Draws weights and biases from nn.Linear's distribution."""
        bound = 1 / math.sqrt(self.in_features)
        for parameter in self.parameters(recurse=False):
            torch.nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x, offs, index=None):
        """y[M, out_features], in x's dtype (under autocast, in the autocast dtype).

        offs[groups] (int32) are the ends of the groups, as in torch._grouped_mm: group g has
        the rows of y from offs[g-1] (0 for the first) to offs[g] - 1. Row s of y is computed from
        row s of x, or, with index[M] (int32 or int64), from row index[s] of x. Rows after the last
        end are zero. The gradient of x adds in the order of the rows of y, in float32.
        """
        if is_traced(x):
            return as_leaf(self, x, offs, index)
        return grouped_linear(x, self.weight, self.bias, offs, index, None, self._layers)

    def forward_slots(self, x, offs, index, slots):
        """Like forward, with known slots[T,S] (int32): the rows of y that read each row of x, or -1.

        The gradient of x adds in the order of the slots.
        """
        return grouped_linear(x, self.weight, self.bias, offs, index, slots, self._layers)

    def extra_repr(self) -> str:
        return (
            f"groups={self.groups}, in_features={self.in_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, "
            f"{self._layers.text.replace(',', ', ')}"
        )


outside_graphs(SwitchBackGroupedLinear, "forward", "forward_slots")
