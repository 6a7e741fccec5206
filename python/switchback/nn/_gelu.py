# SPDX-License-Identifier: Apache-2.0
"""GELU as one operation in each direction, for models that compute it by several operations."""

from __future__ import annotations

import torch

from .. import _abi
from .._errors import InvalidArgument
from .._tensors import FLOATS
from ._mlp import activated
from ._trace import as_leaf, is_traced

# Modules of transformers that compute GELU, by the names of their classes, and the form that each computes.
_OF_TRANSFORMERS = {
    "NewGELUActivation": "gelu_tanh",
    "FastGELUActivation": "gelu_tanh",
    "GELUTanh": "gelu_tanh",
    "PytorchGELUTanh": "gelu_tanh",
    "GELUActivation": "gelu_erf",
}


class GELU(torch.nn.Module):
    """A module that computes gelu(x), with the bits of switchback.activation_forward, in x's dtype.

    Forward and backward read and write each element once. Only x is kept for backward. Sums and
    products are float32, with one rounding at the end.

    Args:
        activation: "gelu_tanh" or "gelu_erf".
    """

    def __init__(self, activation: str = "gelu_tanh"):
        super().__init__()
        if activation not in _abi.ACTIVATIONS:
            allowed = " or ".join(repr(name) for name in _abi.ACTIVATIONS)
            raise InvalidArgument(f"GELU: activation = {activation!r}; it must be {allowed}")
        self.activation = activation

    def forward(self, input):
        if is_traced(input):
            return as_leaf(self, input)
        if input.dtype not in FLOATS:
            raise TypeError(
                f"GELU: x has dtype {input.dtype}; it must be torch.float32, torch.float16 or torch.bfloat16"
            )
        if input.numel() == 0:
            return input.clone()
        if input.dim() == 0:
            return activated(input.reshape(1), self.activation).reshape(())
        return activated(input, self.activation)

    def extra_repr(self) -> str:
        return self.activation


def form_of(module) -> str | None:
    """Which form of GELU a module of torch or transformers computes; None for modules that do not compute
    GELU."""
    kind = type(module)
    if kind is torch.nn.GELU:
        return {"tanh": "gelu_tanh", "none": "gelu_erf"}.get(module.approximate)
    return _OF_TRANSFORMERS.get(kind.__name__) if kind.__module__ == "transformers.activations" else None
