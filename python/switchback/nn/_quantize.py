# SPDX-License-Identifier: Apache-2.0
"""quantize_: replaces layers according to a configuration, like torchao's function of that name."""

from __future__ import annotations

import dataclasses

import torch

from .._errors import InvalidArgument
from .._modes import MODES, names_where
from ._conv1d import is_conv1d
from ._replace import prepare_for_eval, replace_linear
from .linear import Int8Layer, SwitchBackLinear

_WEIGHTS = ("float", "int8")


@dataclasses.dataclass
class SwitchBackConfig:
    """A configuration of the layers that replace linear layers.

    mode: "rowwise" (one scale per row of a weight), "rowwise_shared", "global" (one scale), "auto" or
        "standard".
    mem_efficient: keeps int8 codes of inputs for backward, not the inputs.
    weights: "float": Parameters that train, quantized when they are used. "int8": only frozen codes,
        made now. Inputs still get gradients, for adapters on a frozen base.
    rotation, dw, dw_block_rows, rounding, seed: as for SwitchBackLinear. dw is for weights that
        train. Rounding applies to gradients; with an int8 base, to the input gradient.
    """

    mode: str = "rowwise"
    mem_efficient: bool = False
    weights: str = "float"
    rotation: int = 0
    dw: str = "floating"
    dw_block_rows: int = 256
    rounding: str = "nearest"
    seed: int | None = None

    def __post_init__(self):
        options = self.layer_options()
        if self.rounding == "stochastic" and self.seed is None:
            options["seed"] = 0  # any seed, so that none is drawn
        SwitchBackLinear(max(self.rotation, 1), 1, device="meta", **options)  # checks the values
        if self.weights not in _WEIGHTS:
            raise InvalidArgument(
                f"SwitchBackConfig: weights = {self.weights!r}; it must be 'float' or 'int8'"
            )
        if self.weights == "int8" and not MODES[self.mode].is_int8:
            raise InvalidArgument(
                f"SwitchBackConfig: weights = 'int8' in mode {self.mode!r}, which needs float weights; it "
                f"must be {names_where(lambda each: each.is_int8)}"
            )
        if self.weights == "int8" and self.dw != "floating":
            raise InvalidArgument(
                f"SwitchBackConfig: dw = {self.dw!r} with weights = 'int8', which have no gradient; it "
                "must be 'floating'"
            )

    def layer_options(self) -> dict:
        """These options as arguments of SwitchBackLinear."""
        options = dataclasses.asdict(self)
        del options["weights"]
        return options


def quantize_(model, config: SwitchBackConfig | None = None, filter_fn=None) -> None:
    """Replaces linear layers of the model in place, like replace_linear but with the arguments of torchao's
    quantize_.

    filter_fn(module, name) selects them (default: all nn.Linear and Conv1D modules). With
    weights="int8" the new layers are prepared. Ties are kept as by prepare_for_eval(model).
    """
    config = SwitchBackConfig() if config is None else config
    include = None
    if filter_fn is not None:

        def include(name, module):
            return filter_fn(module, name)

    if is_linear(model):
        raise InvalidArgument(
            f"quantize_: model is itself a {type(model).__name__}, which cannot be replaced in place; "
            "use replace_linear, which returns the new module"
        )
    replaced: list = []
    replace_linear(
        model, SwitchBackLinear, include=include, replaced=replaced, **config.layer_options()
    )
    if config.weights == "int8":
        prepare_for_eval(model)


def is_linear(module) -> bool:
    """Whether replace_linear can replace a module: an nn.Linear or a Conv1D."""
    return type(module) is torch.nn.Linear or is_conv1d(module)


def replace_one(module, config: SwitchBackConfig):
    """Creates the layer that replaces one module, prepared if the configuration says so."""
    if isinstance(module, Int8Layer):
        return module
    new = replace_linear(module, SwitchBackLinear, **config.layer_options())
    if config.weights == "int8" and isinstance(new, Int8Layer):
        new.prepare_for_eval()
    return new
