# SPDX-License-Identifier: Apache-2.0
"""int8 checkpoints of others, read into switchback layers and written from them.

Each has int8 codes of a weight [N,K] and scales. With absmax as here, a weight is absmax * code / 127:

| format | codes | scales |
| switchback | W_int8 | state_W = absmax, [N] or [1] |
| bitsandbytes (LLM.int8) | weight | SCB = absmax, [N] |
| compressed-tensors (W8A8: a scale per channel, dynamic per token) | weight | weight_scale [N,1] |
| comfy (int8 of diffusion models, without rotation) | weight | weight_scale [N], [N,1] or scalar |

In the last two, a weight is code * weight_scale: absmax = 127 * weight_scale, rounded once to
float32. Codes stay as they are, -128 too.
"""

from __future__ import annotations

import json

import torch

from .._errors import InvalidArgument, Unsupported
from ..nn import SwitchBackLinear, replace_linear
from ..nn._conv1d import is_conv1d
from ..nn._prepared import CODES, SCALES, is_placeholder
from ..nn.linear import Int8Layer

FORMATS = ("bitsandbytes", "compressed-tensors", "comfy")
_SCALE_KEYS = ("SCB", "weight_scale")
# What lies beside the codes and says nothing more, if its values are checked.
_ASIDE = ("weight_format", "weight_zero_point", "weight_shape", "comfy_quant")
_STATIC = ("input_scale", "input_zero_point", "weight_g_idx")


def from_int8(state_dict) -> dict:
    """A state_dict whose int8 weights have switchback's keys and scales; everything else stays.

    The format of each weight is recognised by its keys. Unsupported, naming the key, for what would
    compute something else: static scales of inputs, zero points, groups, rotated weights.
    """
    made, found = {}, set()
    for key, tensor in state_dict.items():
        prefix, dot, name = key.rpartition(".")
        prefix += dot
        if name == "weight" and tensor.dtype is torch.int8:
            scale_keys = [prefix + s for s in _SCALE_KEYS if prefix + s in state_dict]
            if len(scale_keys) != 1:
                raise InvalidArgument(
                    f"from_int8: {key} is int8 and has {scale_keys or 'no scales'}; beside it there must "
                    f"be one of {[prefix + s for s in _SCALE_KEYS]}"
                )
            _check_aside(state_dict, prefix)
            made[prefix + CODES] = tensor
            made[prefix + SCALES] = _absmax(state_dict[scale_keys[0]], tensor, scale_keys[0])
            found.add(prefix)
        else:
            made[key] = tensor
    for prefix in found:
        for name in (*_SCALE_KEYS, *_ASIDE):
            made.pop(prefix + name, None)
    return made


def _absmax(scale, codes, key: str):
    if codes.dim() != 2:
        raise Unsupported(
            f"from_int8: the codes beside {key} have shape {tuple(codes.shape)}; it must be [N,K]"
        )
    rows = codes.shape[0]
    if scale.numel() not in (1, rows) or (scale.numel() == 1 and key.endswith("SCB") and rows != 1):
        raise Unsupported(
            f"from_int8: {key} has shape {tuple(scale.shape)} for codes {tuple(codes.shape)}; there must "
            "be one scale for the weight or one per row"
        )
    scale = scale.detach().reshape(-1).to(torch.float32)
    return scale.clone() if key.endswith("SCB") else scale * 127


def _check_aside(state_dict, prefix: str) -> None:
    for name in _STATIC:
        if prefix + name in state_dict:
            raise Unsupported(
                f"from_int8: there is {prefix + name}; inputs are quantized dynamically here, each row "
                "with its own scale, and weights have no groups"
            )
    zero = state_dict.get(prefix + "weight_zero_point")
    if zero is not None and bool((zero != 0).any()):
        raise Unsupported(
            f"from_int8: {prefix}weight_zero_point is not 0; codes are symmetric here"
        )
    layout = state_dict.get(prefix + "weight_format")
    if layout is not None and int(layout) != 0:
        raise Unsupported(
            f"from_int8: {prefix}weight_format = {int(layout)}; it must be 0, codes row by row"
        )
    about = state_dict.get(prefix + "comfy_quant")
    if about is not None:
        try:
            said = json.loads(bytes(about.to(torch.uint8).reshape(-1).tolist()))
        except ValueError as error:
            raise InvalidArgument(f"from_int8: {prefix}comfy_quant is no JSON: {error}") from None
        if said.get("convrot"):
            raise Unsupported(
                f"from_int8: {prefix}comfy_quant says convrot; rotated weights are not supported"
            )


def to_int8(state_dict, format: str, scale_dtype=torch.float32) -> dict:
    """The state_dict of a model prepared for inference in another's format, one of FORMATS.

    scale_dtype: of weight_scale; SCB is float32. InvalidArgument for a weight with one scale in a
    format that has one per row; expand it first.
    """
    if format not in FORMATS:
        raise InvalidArgument(
            f"to_int8: format = {format!r}; it must be one of {', '.join(map(repr, FORMATS))}"
        )
    made = {}
    for key, tensor in state_dict.items():
        prefix, dot, name = key.rpartition(".")
        prefix += dot
        if name == CODES:
            absmax = state_dict[prefix + SCALES].to(torch.float32)
            made[prefix + "weight"] = tensor
            _add_scales(made, prefix, absmax, tensor, format, scale_dtype)
        elif name == SCALES or (name == "weight" and prefix + CODES in state_dict):
            continue
        else:
            made[key] = tensor
    return made


def _add_scales(made: dict, prefix: str, absmax, codes, format: str, scale_dtype) -> None:
    if format == "bitsandbytes":
        made[prefix + "SCB"] = absmax.expand(codes.shape[0]).contiguous()
        made[prefix + "weight_format"] = torch.tensor(0, dtype=torch.uint8)
    elif format == "compressed-tensors":
        scale = (absmax / 127).to(scale_dtype)
        made[prefix + "weight_scale"] = scale.expand(codes.shape[0]).reshape(-1, 1).contiguous()
    else:
        made[prefix + "weight_scale"] = (absmax / 127).to(scale_dtype)


def _is_scales(key: str) -> bool:
    return key.endswith("." + SCALES)


def _mode(state, key: str) -> str:
    """The mode of the layer with these scales."""
    one = state[key].numel() == 1 and state[key[: -len(SCALES)] + CODES].shape[0] != 1
    return "global" if one else "rowwise"


def load_int8(model, state_dict, *, strict: bool = True, replaced=None):
    """Loads a checkpoint with int8 weights into a model with float ones, in place; returns the model.

    state_dict is of any format of this module, or of switchback. The nn.Linear modules whose weights
    are codes in it are replaced by SwitchBackLinear, prepared for inference, and so are modules that
    are switchback layers of another kind of scales; the others get their float weights. A key that
    is missing or left over is an error: nothing stays as it was initialised.

    replaced: as for replace_linear. strict=False: returns what load_state_dict returns as
    model.load_result, and does not raise.
    """
    state = from_int8(state_dict)
    modes = {key[: -len("." + SCALES)]: _mode(state, key) for key in state if _is_scales(key)}
    names = dict(model.named_modules())
    for name in modes:
        module = names.get(name)
        fits = (
            type(module) is torch.nn.Linear
            or isinstance(module, Int8Layer)
            or (module is not None and is_conv1d(module))
        )
        if not fits:
            what = (
                "there is no such module" if module is None else f"it is a {type(module).__name__}"
            )
            raise InvalidArgument(
                f"load_int8: the checkpoint has int8 codes for {name!r}, and {what} in the model; it must "
                "be an nn.Linear or a switchback layer"
            )
    for mode in set(modes.values()):
        wanted = {name for name, its in modes.items() if its == mode}
        replace_linear(
            model,
            SwitchBackLinear,
            include=lambda name, _module, wanted=wanted: name in wanted,
            replaced=replaced,
            mode=mode,
        )
    for name, mode in modes.items():
        layer = names[name] if isinstance(names[name], Int8Layer) else model.get_submodule(name)
        if layer.mode != mode:
            raise InvalidArgument(
                f"load_int8: {name!r} is a layer in mode {layer.mode!r}, and the checkpoint has scales of "
                f"mode {mode!r}; start from nn.Linear, or from a layer in that mode"
            )
    placeholders = [
        key for key, t in state.items() if key.endswith(".weight") and is_placeholder(t)
    ]
    for key in placeholders:
        if key[: -len("weight")] + CODES not in state:
            raise InvalidArgument(f"load_int8: {key} is empty, and there are no codes beside it")
    result = model.load_state_dict(state, strict=strict)
    if not strict:
        model.load_result = result
    return model
