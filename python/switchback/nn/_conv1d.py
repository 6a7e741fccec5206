# SPDX-License-Identifier: Apache-2.0
"""transformers' Conv1D, the linear layer of GPT-2 whose weight is [in, out], on the library."""

from __future__ import annotations

import functools

import torch

from .linear import Int8Layer, adopt


def is_conv1d(module) -> bool:
    """Whether a module is transformers' Conv1D, by its attributes: transformers need not be installed."""
    weight = getattr(module, "_parameters", {}).get("weight")
    return (
        type(module).__name__ == "Conv1D"
        and not isinstance(module, torch.nn.modules.conv._ConvNd)
        and weight is not None
        and weight.dim() == 2
        and getattr(module, "nf", None) == weight.shape[1]
    )


class _Int8Conv1D(Int8Layer):
    """A mixin for the layer that replaces a Conv1D: the replacement is an instance of both classes.

    The weight keeps the shape [in, out], so checkpoints, optimizers, tied weights and adapters
    (LoRA) continue to work. The library reads it in place; with a rotation it reads a transposed copy.
    """

    transposed = 1

    def _weight_rows(self):
        return self.weight.t()

    def _weight_shape(self) -> tuple[int, int]:
        return self.in_features, self.out_features

    def forward(self, x):
        """Computes Conv1D.forward. The argument has the name that transformers uses."""
        return super().forward(x)

    def __repr__(self):
        return f"{type(self).__name__}(nf={self.out_features}, nx={self.in_features}, {self.extra_repr()})"

    def __reduce_ex__(self, protocol):
        return _new, (type(self).__bases__[1],), self.__dict__


@functools.cache
def _class_for(kind: type) -> type:
    return type("SwitchBack" + kind.__name__, (_Int8Conv1D, kind), {"__module__": __name__})


def _new(kind: type):
    made = _class_for(kind)
    return made.__new__(made)


def conv1d_like(old, inner):
    """Creates the layer that replaces the Conv1D `old`, in the mode of the switchback layer `inner`."""
    new = _new(type(old))
    adopt(new, old)
    new.in_features, new.out_features = old.weight.shape
    new._init_int8(
        inner.mode,
        inner.mem_efficient,
        inner.rotation,
        inner.dw,
        inner.dw_block_rows,
        inner.rounding,
        inner.seed,
    )
    return new
