# SPDX-License-Identifier: Apache-2.0
"""Puts switchback layers in the place of a model's nn.Linear modules."""

from __future__ import annotations

import fnmatch

import torch

from .linear import SwitchBackLinear


def replace_linear(
    model, layer=SwitchBackLinear, *, include=None, exclude=None, replaced=None, **options
):
    """Replaces the nn.Linear modules of a model, in place, and returns the model.

    The new modules have the very Parameters of the old ones, so that optimizers go on working, and
    their hooks and training flag. Only modules whose type is nn.Linear itself are replaced. One
    that occurs several times is replaced by one; the first of its names counts. If the model
    itself is an nn.Linear, what takes its place is returned.

    Args:
        layer: the class, or what makes one: called as layer(in_features, out_features, bias=...,
            device=..., dtype=..., **options).
        include, exclude: names as of named_modules(), glob patterns for them ("blocks.*.mlp.*"),
            callables (name, module) -> bool, or a list of these. Default: all, and none.
        replaced: a list, to which the names of what was replaced are appended.

    ValueError, with nothing replaced, if a selected module computes its weight from other
    parameters (weight_norm, pruning), or has hooks on its state_dict.
    """
    selected = {}
    for name, module in model.named_modules():
        if type(module) is torch.nn.Linear and _selected(name, module, include, exclude):
            _check_replaceable(name, module)
            selected[module] = name
    made = {old: _replacement(old, layer, options) for old in selected}
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in made:
                parent._modules[name] = made[child]
    if replaced is not None:
        replaced.extend(selected.values())
    return made.get(model, model)


def _check_replaceable(name: str, module) -> None:
    if set(module._parameters) != {"weight", "bias"}:
        raise ValueError(
            f"replace_linear: the parameters of {name!r} are {sorted(module._parameters)}; they must be "
            "weight and bias: remove what computes them, or exclude it"
        )
    for kind, hooks in vars(module).items():
        if "state_dict" in kind and hooks:
            raise ValueError(
                f"replace_linear: {name!r} has hooks in {kind}, which may hold on to it; remove them, or "
                "exclude it"
            )


def _selected(name: str, module, include, exclude) -> bool:
    return _matches(name, module, include, default=True) and not _matches(
        name, module, exclude, default=False
    )


def _matches(name: str, module, rules, default: bool) -> bool:
    if rules is None:
        return default
    if isinstance(rules, str) or callable(rules):
        rules = (rules,)
    return any(
        rule(name, module) if callable(rule) else fnmatch.fnmatchcase(name, rule) for rule in rules
    )


def _replacement(old, layer, options):
    # On the meta device nothing is allocated or initialised; the parameters are the old ones.
    new = layer(
        old.in_features,
        old.out_features,
        bias=old.bias is not None,
        device="meta",
        dtype=old.weight.dtype,
        **options,
    )
    new.weight, new.bias = old.weight, old.bias
    new.train(old.training)
    for name, value in vars(old).items():
        if "_hook" in name and "state_dict" not in name:
            vars(new)[name] = value
    return new
