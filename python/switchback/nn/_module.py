# SPDX-License-Identifier: Apache-2.0
"""Code shared by the modules that hold library layers."""

from __future__ import annotations

import torch

from .._errors import Unsupported
from .._tensors import HAS_OPERATORS


class OnLibrary:
    """A mixin for torch.nn.Modules whose `_layers` is a LayerSet, which `_new_layers()` creates."""

    _SCRIPT_INSTEAD = ""  # alternative to torch.jit.script, appended to its error message

    def weight_updated(self) -> None:
        """Tells the layer that its weight has changed; see SwitchBackLinear.weight_updated."""
        self._layers.weight_updated()

    def __prepare_scriptable__(self):
        raise Unsupported(
            f"torch.jit.script: {type(self).__name__} cannot be compiled, because its products run outside "
            f"of torch{self._SCRIPT_INSTEAD}"
        )

    def _load_from_state_dict(self, *arguments):
        super()._load_from_state_dict(*arguments)
        self.weight_updated()

    def _apply(self, fn, *args, **kwargs):
        super()._apply(fn, *args, **kwargs)
        self._layers.release()
        return self

    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica._layers = self._new_layers()
        return replica


def outside_graphs(kind: type, *names: str) -> None:
    """Makes compiled models break their graph at these methods if there are no operators to trace."""
    if not HAS_OPERATORS and hasattr(torch, "compiler") and hasattr(torch.compiler, "disable"):
        for name in names:
            setattr(kind, name, torch.compiler.disable(getattr(kind, name)))
