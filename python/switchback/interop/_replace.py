# SPDX-License-Identifier: Apache-2.0
"""Code that the quantizers for transformers and diffusers share: their arguments, and replacing layers."""

from __future__ import annotations

import dataclasses

from ..nn import SwitchBackLinear, prepare_for_eval, replace_linear
from ..nn._prepared import check_rotation, set_empty_codes
from ..nn._quantize import SwitchBackConfig
from ..nn.linear import Int8Layer


class QuantConfig:
    """Base of the quantizers' configs: SwitchBackConfig's arguments, and the modules not to replace.

    weights="float": the checkpoint has float weights, and the model trains. weights="int8" (the default):
    the model has only codes; a float checkpoint is quantized when it is loaded, and save_pretrained writes
    codes. Errors name arguments that are wrong or unknown.
    """

    def __init__(
        self,
        mode="rowwise",
        weights="int8",
        mem_efficient=False,
        modules_to_not_convert=None,
        **options,
    ):
        options.pop("quant_method", None)
        options.update(mode=mode, weights=weights, mem_efficient=mem_efficient)
        known = [field.name for field in dataclasses.fields(SwitchBackConfig)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ValueError(
                f"{type(self).__name__}: {unknown}; its arguments are {', '.join(known)} and "
                "modules_to_not_convert"
            )
        vars(self).update(dataclasses.asdict(SwitchBackConfig(**options)))
        self.modules_to_not_convert = modules_to_not_convert
        self.quant_method = self._METHOD


def put_layers(model, config, left, from_codes: bool) -> list[str]:
    """Replaces the linear layers of a model except those in `left`, names of modules or parts of names.

    from_codes: the checkpoint has int8 codes for these layers. Returns the names of the replaced modules.
    """

    def chosen(name, _module):
        parts = name.split(".")
        return not any(
            name == stays or name.startswith(stays + ".") or stays in parts for stays in left
        )

    replaced: list[str] = []
    fields = dataclasses.fields(SwitchBackConfig)
    options = SwitchBackConfig(**{f.name: getattr(config, f.name) for f in fields}).layer_options()
    replace_linear(model, SwitchBackLinear, include=chosen, replaced=replaced, **options)
    if not replaced:
        raise ValueError(
            f"{type(config).__name__}: nothing to replace in {type(model).__name__}: it has no "
            f"nn.Linear or Conv1D outside of {left}"
        )
    if from_codes:
        for module in model.modules():
            if isinstance(module, Int8Layer):
                set_empty_codes(module)
    return replaced


def finish_layers(model, config) -> None:
    """Runs after loading: checks the rotation of the codes, and prepares layers for inference if the config
    says so."""
    for name, module in model.named_modules():
        if isinstance(module, Int8Layer):
            check_rotation(module, name)
    if config.weights == "int8":
        prepare_for_eval(model)
