# SPDX-License-Identifier: Apache-2.0
"""The fragmented linear layer, whose rows select a part of the weight: the module and its autograd functions.
"""

from __future__ import annotations

import ctypes
import math

import torch
from torch.autograd import Function

from .. import _abi
from .._errors import InvalidState
from .._modes import MODES
from .._tensors import (
    DTYPES,
    as_rows,
    is_counted,
    key_of,
    memory_of,
    needs_operator,
)
from ._function import (
    _refuse_tangents,
    cast_by_autocast,
    check_dtypes,
    checked_input,
    gradient_dtype,
)
from ._layer import Layer, LayerSet
from ._module import OnLibrary, outside_graphs
from ._once import differentiable_once
from ._options import LayerOptions
from ._rules import KEEP, PROVE, REMEMBER, plan_of, reuse
from ._trace import as_leaf, is_traced
from ._wanted import wanted_gradients

_NAMES = ("weight", "selector", "down", "up")
HARD_HAS_NO_GRADIENT = (
    "backward: this FragmentedLinear ran in eval mode, where it selects one fragment for each row and has no "
    "gradient; call train() before the forward"
)


class _FragmentedLayers(LayerSet):
    """The library layers of one FragmentedLinear module, by dtype and context."""

    SIZES = ("in_features", "out_features", "fragments", "rank")
    prepared_at = -1  # while it equals `updates`, the weights count as unchanged

    def _new_layer(self, dtype, context):
        return _FragmentedLayer(self, dtype, context)


class _FragmentedLayer(Layer):
    """A switchback_fragmented_linear of the C library. It checks its weights by the same rules as other
    layers."""

    _PREFIX = "switchback_fragmented_linear_"

    _OPTIONS = _abi.FragmentedLinearOptions

    def _make_arguments(self, owner: _FragmentedLayers, code: int) -> None:
        self._keys: tuple = ()
        self._fingerprints: tuple | None = None
        self._in_eval = False

    def use_weight(self, weight, bias, owner: _FragmentedLayers, once: bool) -> None:
        """Makes the layer's weights current for a forward. `weight`: the four weights, and whether the
        forward is hard."""
        weights, hard = weight
        keys = tuple(map(key_of, weights))
        same = self._holds_all(keys) and owner.updates == self._updates
        plan = plan_of(
            same,
            all(map(is_counted, keys))
            and (reuse.on or (hard and owner.prepared_at == owner.updates)),
            owner.weight_gradients == self._weight_gradients,
            self._may_prove(),
            met=False,
            meets_again=False,
            once=once,
        )
        if plan & KEEP:
            return self._enter(hard)
        unproven = None
        if plan & PROVE:
            unproven = self._fingerprints_of(weights)
            if unproven == self._fingerprints:
                return self._enter(hard)
        # These counters are read before the weights are quantized, so that a concurrent change is noticed
        # later.
        updates, weight_gradients = owner.updates, owner.weight_gradients
        self._set(weights, keys)
        self._updates, self._weight_gradients = updates, weight_gradients
        # _may_prove() is called again, because _set() has decided whether the weights are copied.
        if unproven is None and plan & REMEMBER and self._may_prove():
            unproven = self._fingerprints_of(weights)
        self._fingerprints = unproven
        return self._enter(hard)

    def use_weight_of_forward(self, weight, of_forward: bool) -> None:
        keys = tuple(map(key_of, weight))
        if self._in_eval or not self._holds_all(keys):
            self._set(weight, keys)

    def _holds_all(self, keys: tuple) -> bool:
        return keys == self._keys and all(
            t.data_ptr() == at for t, at in zip(self._borrowed, self._lent_at)
        )

    def _enter(self, hard: bool) -> None:
        """Prepares the layer for hard forwards, which share codes of the parts, or for soft ones, which
        need others."""
        if hard and not self._in_eval and not self._is_standard:
            self._call("prepare_for_eval")
            self._in_eval = True
        elif not hard and self._in_eval:
            self._set(self._sources, self._keys)

    def _set(self, weights: tuple, keys: tuple) -> None:
        sources = tuple(weight.detach() for weight in weights)
        borrowed = tuple(map(self._readable, sources))
        lent = _abi.FragmentedWeights(**dict(zip(_NAMES, map(self._matrix, borrowed))))
        self._keys, self._fingerprints = (), None  # in case the call fails
        self._call("set_weights", ctypes.byref(lent))
        self._in_eval = False
        self._borrowed, self._sources = borrowed, sources
        self._lent_at = tuple(t.data_ptr() for t in borrowed)
        self._is_copy = any(a is not b for a, b in zip(borrowed, sources))
        self._keys = keys

    def _fingerprints_of(self, weights: tuple) -> tuple:
        return tuple(map(self._fingerprint_of_tensor, weights))

    def _matrix(self, tensor) -> _abi.Matrix:
        if tensor is None:
            return _abi.Matrix()
        memory, rows, stride = as_rows(tensor, tensor.shape[-1])
        return _abi.Matrix(memory.data_ptr(), DTYPES[tensor.dtype], rows, tensor.shape[-1], stride)

    def soft(self, x, y) -> None:
        self._call("forward", ctypes.byref(x), ctypes.byref(self._matrix(y)), _abi.SAVE_CALLER)

    def hard(self, x, y) -> None:
        self._call("forward_hard", ctypes.byref(x), ctypes.byref(self._matrix(y)))

    def gradients(self, g, x, dx, of_weights: tuple) -> None:
        """Computes dx and the gradients of the four weights; outputs that are None are left out."""
        grads = _abi.FragmentedLinearGrads(
            g=g,
            dx=self._matrix(dx),
            **{f"d{name}": self._matrix(d) for name, d in zip(_NAMES, of_weights)},
        )
        self._call("backward", ctypes.byref(grads), ctypes.byref(x))


def _rows(layer: _FragmentedLayer, tensor, cols: int):
    """Returns a tensor's rows as the library's matrix, and the owner of the memory, to keep during the call.
    """
    memory, rows, stride = as_rows(tensor, cols)
    return _abi.Matrix(memory.data_ptr(), layer._code, rows, cols, stride), memory


def product(x, weights, layers: _FragmentedLayers, hard: bool, once: bool):
    y = x.new_empty((*x.shape[:-1], layers.out_features))
    if y.numel() == 0:
        return y
    with layers.use((weights, hard), None, x.dtype, x.device, once, waits=True) as layer:
        given, memory = _rows(layer, x, layers.in_features)
        (layer.hard if hard else layer.soft)(given, y)
        del memory
    return y


class _Soft(Function):
    """The soft forward with autograd on. It saves only x, and backward computes everything else again."""

    @staticmethod
    def forward(ctx, x, weight, selector, down, up, layers: _FragmentedLayers):
        ctx.layers, ctx.dtype = layers, x.dtype
        ctx.save_for_backward(x, weight, selector, down, up)
        return product(x, (weight, selector, down, up), layers, hard=False, once=True)

    @staticmethod
    @differentiable_once("FragmentedLinear", lambda ctx: True)
    def backward(ctx, g):
        x, *weights = ctx.saved_tensors
        g = memory_of(g, "backward", "the gradient").to(ctx.dtype)
        return *gradients(g, x, tuple(weights), wanted_gradients(ctx)[:5], ctx.layers), None


def gradients(g, x, weights: tuple, wanted: tuple, layers: _FragmentedLayers) -> tuple:
    """Computes the gradients of x and of the four weights; None for those that are not wanted."""
    dtype = g.dtype
    wants_dx, *wants = wanted
    dx = x.new_empty(x.shape) if wants_dx else None
    of_weights = tuple(
        g.new_empty(weight.shape, dtype=gradient_dtype(weight.dtype, dtype)) if wanted else None
        for weight, wanted in zip(weights, wants)
    )
    if x.numel() == 0:
        zeros = (d if d is None else d.zero_().to(w.dtype) for d, w in zip(of_weights, weights))
        return (dx, *zeros)
    with layers.use_again(weights, dtype, g.device, waits=True) as layer:
        of_g, g_memory = _rows(layer, g, layers.out_features)
        of_x, x_memory = _rows(layer, x, layers.in_features)
        layer.gradients(of_g, of_x, dx, of_weights)
        del g_memory, x_memory
    if any(wants):
        layers.weight_gradients += 1
    results = (
        d if d is None or d.dtype is w.dtype else d.to(w.dtype) for d, w in zip(of_weights, weights)
    )
    return (dx, *results)


class _Hard(Function):
    """The hard forward with autograd on. Its outputs have no gradient: backward raises an error."""

    @staticmethod
    def forward(ctx, x, weight, selector, down, up, layers: _FragmentedLayers):
        return product(x, (weight, selector, down, up), layers, hard=True, once=False)

    @staticmethod
    def backward(ctx, g):
        raise InvalidState(HARD_HAS_NO_GRADIENT)


class FragmentedLinear(OnLibrary, torch.nn.Module):
    """A linear layer in which each row of x selects by content a part of the weight.

    x is split into fragments. A row's weights p for them are the softmax of their inner products with
    the rows of `selector`. In training (soft), y = W (p * x) + up (down ((1 - p) * x)), where each p
    covers its fragment. In eval (hard), the fragment with the largest p passes through its part of W,
    and all other fragments through up and down. Only the parts that some row selects are read. The weight
    is not copied, and scratch memory does not grow with the number of fragments. There is no bias.

    The parameters are weight[out_features, in_features], selector[fragments, in_features / fragments],
    down[rank, in_features] and up[out_features, rank]. Eval has no gradient.

    Args:
        in_features, out_features, fragments: in_features is a multiple of fragments.
        rank: the rank of up @ down; default: in_features / 32, at least 1.
        device, dtype: as for nn.Linear.
        mode: "rowwise", "global", "standard" (no int8) or "auto".
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        fragments: int,
        rank: int | None = None,
        device=None,
        dtype=None,
        *,
        mode: str = "rowwise",
    ):
        super().__init__()
        rank = max(1, in_features // 32) if rank is None else rank
        sizes = {
            "in_features": in_features,
            "out_features": out_features,
            "fragments": fragments,
            "rank": rank,
        }
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"FragmentedLinear: {name} = {value}; it must be at least 1")
        if in_features % fragments:
            raise ValueError(
                f"FragmentedLinear: in_features = {in_features}; it must be a multiple of fragments = "
                f"{fragments}"
            )
        if mode not in MODES:
            allowed = ", ".join(repr(name) for name in MODES)
            raise ValueError(f"FragmentedLinear: mode = {mode!r}; it must be one of {allowed}")
        self.in_features, self.out_features = in_features, out_features
        self.fragments, self.rank, self.mode = fragments, rank, mode
        shapes = {
            "weight": (out_features, in_features),
            "selector": (fragments, in_features // fragments),
            "down": (rank, in_features),
            "up": (out_features, rank),
        }
        for name, shape in shapes.items():
            made = torch.empty(shape, device=device, dtype=dtype)
            self.register_parameter(name, torch.nn.Parameter(made))
        self._layers = self._new_layers()
        self.reset_parameters()

    def _new_layers(self) -> _FragmentedLayers:
        return _FragmentedLayers(
            self.in_features,
            self.out_features,
            self.fragments,
            self.rank,
            LayerOptions(self.mode),
        )

    def reset_parameters(self) -> None:
        """Draws new values for each matrix, as nn.Linear does for its number of inputs."""
        for name in _NAMES:
            parameter = getattr(self, name)
            bound = 1 / math.sqrt(parameter.shape[-1])
            torch.nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x):
        """y[..., out_features] from x[..., in_features]: soft in training, hard in eval.

        y has x's dtype, or under autocast the autocast dtype.
        """
        if is_traced(x):
            return as_leaf(self, x)
        weights = tuple(getattr(self, name) for name in _NAMES)
        if needs_operator(x, self.weight, of=self._layers):
            x = cast_by_autocast(x)
            check_dtypes(x, self.weight)
            return torch.ops.switchback.fragmented_linear(
                x, *weights, not self.training, self._layers.text
            )
        x = checked_input(x, self.weight, self._layers)
        for name, weight in zip(_NAMES, weights):
            memory_of(weight, "forward", name)
            check_dtypes(x, weight)
        _refuse_tangents(self._layers, x, *weights)
        recorded = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *weights))
        if recorded:
            return (_Soft if self.training else _Hard).apply(x, *weights, self._layers)
        return product(x, weights, self._layers, hard=not self.training, once=False)

    def prepare_for_eval(self):
        """Switches to eval mode and treats the weights as unchanged from now on.

        Without it a forward in eval mode reads the weights to check whether they have changed, which
        takes longer than the forward itself. weight_updated(), train(), loading a state_dict and
        moving the module undo it. The parameters stay. Returns the module.
        """
        self.eval()
        self._layers.prepared_at = self._layers.updates
        return self

    def train(self, mode: bool = True):
        """Like nn.Module.train. Training mode undoes prepare_for_eval()."""
        if mode:
            self._layers.prepared_at = -1
        return super().train(mode)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"fragments={self.fragments}, rank={self.rank}, mode={self.mode}"
        )


outside_graphs(FragmentedLinear, "forward")
