# SPDX-License-Identifier: Apache-2.0
"""An MLP of two layers. Its activation is computed while the second layer quantizes its input."""

from __future__ import annotations

import dataclasses

import torch
from torch.autograd import Function

from .. import _abi, ops
from .._errors import InvalidArgument
from .._tensors import needs_operator
from ._conv1d import conv1d_like, is_conv1d
from ._function import linear
from ._layer import LayerSet
from ._module import OnLibrary
from ._once import differentiable_once
from ._trace import as_leaf, is_traced
from .linear import SwitchBackLinear


def _sizes_of(layer) -> tuple:
    """The numbers of inputs and outputs of an nn.Linear or a Conv1D."""
    return tuple(layer.weight.shape) if is_conv1d(layer) else (layer.in_features, layer.out_features)


class SwitchBackMLP(OnLibrary, torch.nn.Module):
    """An MLP y = down(gelu(up(x))), where up and down are SwitchBackLinears.

    gelu is computed in the pass that quantizes its result, which is not written to memory. For
    backward, only up(x) is kept, and not gelu(up(x)). The bits are those of separate operations, with
    switchback.activation_forward between the layers. The state_dict has up.weight, up.bias,
    down.weight and down.bias.

    Args:
        in_features, hidden_features, out_features: the features of x, between the layers, and of y
            (default: in_features).
        activation: "gelu_tanh" or "gelu_erf".
        bias, device, dtype: as for nn.Linear, for both layers.
        options: mode ("rowwise" unless given), rotation, dw, dw_block_rows, rounding and seed: as
            for SwitchBackLinear, for both layers.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        *,
        activation: str = "gelu_tanh",
        bias: bool = True,
        device=None,
        dtype=None,
        mode: str = "rowwise",
        **options,
    ):
        super().__init__()
        if activation not in _abi.ACTIVATIONS:
            allowed = " or ".join(repr(name) for name in _abi.ACTIVATIONS)
            raise InvalidArgument(
                f"SwitchBackMLP: activation = {activation!r}; it must be {allowed}"
            )
        options.update(bias=bias, device=device, dtype=dtype, mode=mode)
        self.up = SwitchBackLinear(in_features, hidden_features, **options)
        outputs = in_features if out_features is None else out_features
        self.down = SwitchBackLinear(hidden_features, outputs, **options)
        self.activation = activation
        self._layers = self._new_layers()

    @classmethod
    def of(cls, up, down, activation: str = "gelu_tanh", mode: str = "rowwise", **options):
        """Creates an MLP with the Parameters of two nn.Linear modules, or of two Conv1D of transformers."""
        transposed = is_conv1d(up)
        if is_conv1d(down) != transposed:
            kinds = f"{type(up).__name__} and {type(down).__name__}"
            raise InvalidArgument(
                f"SwitchBackMLP.of: up and down are {kinds}; they must be two nn.Linear or two Conv1D"
            )
        (inputs, hidden), (of_down, outputs) = map(_sizes_of, (up, down))
        if hidden != of_down:
            raise InvalidArgument(
                f"SwitchBackMLP.of: up has {hidden} outputs and down {of_down} inputs"
            )
        made = cls(
            inputs, hidden, outputs, activation=activation, device="meta", mode=mode, **options
        )
        if transposed:
            made.up, made.down = conv1d_like(up, made.up), conv1d_like(down, made.down)
            made._layers = made._new_layers()
        else:
            made.up.weight, made.up.bias = up.weight, up.bias
            made.down.weight, made.down.bias = down.weight, down.bias
        return made.train(up.training)

    def _new_layers(self) -> LayerSet:
        options = dataclasses.replace(self.down._options(), activation=self.activation)
        return LayerSet(self.down.in_features, self.down.out_features, options)

    def forward(self, x):
        """y[..., out_features] from x[..., in_features], in x's dtype (or the autocast dtype)."""
        if is_traced(x):
            return as_leaf(self, x)
        h = self.up(x)
        weight = None if self.down.is_prepared else self.down.weight
        # Weights that represent other tensors (sharded weights) need the layer's own forward.
        if type(weight) is not torch.nn.Parameter:
            return self.down(activated(h, self.activation))
        return linear(h, weight, self.down.bias, self._layers, False)

    @property
    def rounding_step(self) -> int:
        """The number of backwards so far with rounding="stochastic", the same for both layers."""
        return self.up.rounding_step

    @rounding_step.setter
    def rounding_step(self, step: int) -> None:
        self.up.rounding_step = self.down.rounding_step = step
        self._layers.rounding_step = step

    def weight_updated(self) -> None:
        """Tells both layers that their weights have changed; see SwitchBackLinear.weight_updated."""
        for layers in (self.up._layers, self.down._layers, self._layers):
            layers.weight_updated()

    def extra_repr(self) -> str:
        return f"activation={self.activation}"


def activated(x, activation: str):
    """Computes switchback.activation_forward for x[..., K], recorded for autograd."""
    if needs_operator(x):
        y = torch.ops.switchback.activation_forward(x.reshape(-1, x.shape[-1]), activation)
        return y.view(x.shape)
    return _Activation.apply(x, activation)


class _Activation(Function):
    @staticmethod
    def forward(ctx, x, activation: str):
        ctx.save_for_backward(x)
        ctx.activation = activation
        rows = x.reshape(-1, x.shape[-1])
        return ops.activation_forward.__wrapped__(rows, activation).view(x.shape)

    @staticmethod
    @differentiable_once("GELU", lambda ctx: True)
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        rows = (t.reshape(-1, x.shape[-1]) for t in (g.to(x.dtype), x))
        dx = ops.activation_backward.__wrapped__(*rows, ctx.activation)
        return dx.view(x.shape), None
