# SPDX-License-Identifier: Apache-2.0
"""What the quantizers for transformers and diffusers share: arguments, and layers put into a model."""

from __future__ import annotations

from ..nn import SwitchBackLinear, replace_linear
from ..nn._prepared import set_empty_codes
from ..nn._quantize import SwitchBackConfig
from ..nn.linear import Int8Layer


def set_arguments(config, mode, weights, mem_efficient, modules_to_not_convert, unknown) -> None:
    """Sets a configuration's attributes; an error names an argument that is wrong or unknown."""
    name = type(config).__name__
    if unknown:
        raise ValueError(
            f"{name}: {sorted(unknown)}; its arguments are mode, weights, mem_efficient and "
            "modules_to_not_convert"
        )
    SwitchBackConfig(mode, mem_efficient, weights)  # checks them
    config.mode, config.weights, config.mem_efficient = mode, weights, mem_efficient
    config.modules_to_not_convert = modules_to_not_convert


def put_layers(model, config, left, from_codes: bool) -> list[str]:
    """Replaces the linear layers outside of `left`, names of modules or parts of names.

    from_codes: they hold codes that are to be loaded. Returns the names of what was replaced.
    """

    def chosen(name, _module):
        parts = name.split(".")
        return not any(
            name == stays or name.startswith(stays + ".") or stays in parts for stays in left
        )

    replaced: list[str] = []
    options = {"mode": config.mode, "mem_efficient": config.mem_efficient}
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
