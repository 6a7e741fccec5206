# SPDX-License-Identifier: Apache-2.0
"""GELU as one operation in each direction, for models whose own is several."""

from __future__ import annotations

import torch

from .. import _abi
from .._errors import InvalidArgument
from .._tensors import FLOATS
from ._mlp import activated

# Modules of transformers that compute the tanh form, by the names of their classes.
_OF_TRANSFORMERS = ("NewGELUActivation", "FastGELUActivation", "GELUTanh", "PytorchGELUTanh")


class GELU(torch.nn.Module):
    """gelu(x), with the bits of switchback.activation_forward, in x's dtype.

    Forward and backward read and write each element once; for backward x alone is kept. Sums and
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

    def forward(self, x):
        if x.dtype not in FLOATS:
            raise TypeError(
                f"GELU: x has dtype {x.dtype}; it must be torch.float32, torch.float16 or torch.bfloat16"
            )
        if x.numel() == 0:
            return x.clone()
        if x.dim() == 0:
            return activated(x.reshape(1), self.activation).reshape(())
        return activated(x, self.activation)

    def extra_repr(self) -> str:
        return self.activation


def is_gelu_tanh(module) -> bool:
    """Whether a module is GELU's tanh form, torch's or transformers', which need not be installed."""
    kind = type(module)
    if kind is torch.nn.GELU:
        return module.approximate == "tanh"
    return kind.__module__ == "transformers.activations" and kind.__name__ in _OF_TRANSFORMERS
