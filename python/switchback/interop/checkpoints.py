# SPDX-License-Identifier: Apache-2.0
"""Reads int8 checkpoints of other programs into switchback layers, and writes them.

Each format has int8 codes of a weight [N,K] and scales. A weight is absmax * code / 127:

| format | codes | scales |
| switchback | W_int8 | state_W = absmax, [N] or [1]; rotation_W = the group, where codes are rotated |
| bitsandbytes (LLM.int8) | weight | SCB = absmax, [N] |
| compressed-tensors (W8A8: a scale per channel, dynamic per token) | weight | weight_scale [N,1] |
| comfy (ComfyUI's int8_tensorwise) | weight | weight_scale [N,1], [N] or one; comfy_quant |

In the last two, a weight is code * weight_scale: absmax = 127 * weight_scale, rounded once to
float32. Codes do not change, -128 included. comfy_quant is JSON, as bytes: {"format":
"int8_tensorwise"}. It also has "convrot": true and "convrot_groupsize": 256 if the codes are those of
the weight times Hadamard matrices of that size ("ConvRot", the rotation of SwitchBackLinear). Some
files have this in their header instead, under "_quantization_metadata".
"""

from __future__ import annotations

import json
import sys
import warnings

import torch

from .. import ops
from .._errors import InvalidArgument, Unsupported
from .._modes import MODES
from ..nn import SwitchBackLinear, replace_linear
from ..nn._conv1d import is_conv1d
from ..nn._options import ROTATIONS
from ..nn._prepared import CODES, ROTATION, SCALES, is_placeholder, rotation_of, rotation_tensor
from ..nn.linear import Int8Layer
from . import files

FORMATS = ("bitsandbytes", "compressed-tensors", "comfy")
_SCALE_KEYS = ("SCB", "weight_scale")
# Keys next to the int8 codes, which are not needed once their values are checked.
_ASIDE = ("weight_format", "weight_zero_point", "weight_shape", "comfy_quant")
_STATIC = ("input_scale", "input_zero_point", "weight_g_idx")
_HEADER = "_quantization_metadata"
# comfy_quant may have further entries, such as the shape. But an unknown name that contains one of these
# words may change what the codes mean, so it is an error.
_TELLING = ("rot", "hadamard", "group", "block")
_ROTATION_WORDS = ("convrot", "convrot_groupsize")


def from_int8(state_dict, *, prefix: str = "", metadata=None, format: str | None = None) -> dict:
    """Returns the state_dict with its int8 weights under switchback's keys and scales, and all other entries.

    The format of each weight is recognised by its keys. Formats with other results raise Unsupported,
    which names the key: static scales of inputs, zero points, scales of groups, other formats. A
    weight that ComfyUI multiplies in floating point (full_precision_matrix_mult) becomes a float weight.

    prefix: selects the keys that begin with it and removes it; files for ComfyUI often have
    "model.diffusion_model.". metadata: that of a file's header, in which a file for ComfyUI may describe
    its codes; load_int8_file reads it. format: one of FORMATS. Files of "compressed-tensors" have the
    same keys as "comfy" files that lost their comfy_quant. Without `format`, such codes are read as not
    rotated, with a warning; with "comfy" they are refused.
    """
    if format is not None and format not in FORMATS:
        raise InvalidArgument(
            f"from_int8: format = {format!r}; it must be one of {', '.join(map(repr, FORMATS))}"
        )
    state = {key[len(prefix) :]: t for key, t in state_dict.items() if key.startswith(prefix)}
    if prefix and not state:
        raise InvalidArgument(
            f"from_int8: prefix = {prefix!r}; no key begins with it, the first is "
            f"{next(iter(state_dict), None)!r}"
        )
    weights = [
        key[: -len("weight")]
        for key, tensor in state.items()
        if key.rpartition(".")[2] == "weight" and tensor.dtype is torch.int8
    ]
    said = _said_by_comfy(state, weights, prefix, metadata, format == "comfy")
    unsaid = [layer for layer in weights if layer not in said and layer + "weight_scale" in state]
    if unsaid and format is None:
        warnings.warn(
            f"from_int8: nothing states whether the codes of {prefix}{unsaid[0]}weight are rotated; they "
            "are read as not rotated. Files for ComfyUI state it in comfy_quant or in the file's header, "
            "which load_int8_file reads. For a file that LLM Compressor wrote, pass "
            'format="compressed-tensors"',
            stacklevel=_caller(),
        )
    made = dict(state)
    for layer in weights:
        key, codes = layer + "weight", made.pop(layer + "weight")
        scale_keys = [layer + name for name in _SCALE_KEYS if layer + name in state]
        if len(scale_keys) != 1:
            raise InvalidArgument(
                f"from_int8: {key} is int8 and has {scale_keys or 'no scales'}; there must be exactly one of "
                f"{[layer + name for name in _SCALE_KEYS]}"
            )
        scale = _checked_scale(state[scale_keys[0]], codes, scale_keys[0])
        about = said.get(layer)
        if about is None:
            _check_aside(state, layer)
        rotation = 0 if about is None else _rotation_said(about, layer, codes)
        for name in (*_SCALE_KEYS, *_ASIDE, *(_STATIC if about else ())):
            made.pop(layer + name, None)
        if about is not None and about.get("full_precision_matrix_mult"):
            rows = codes.to(torch.float32) * scale.reshape(-1, 1)
            made[key] = ops.rotate(rows, rotation) if rotation else rows  # the rotation is its own inverse
            continue
        made[layer + CODES] = codes
        made[layer + SCALES] = scale.clone() if scale_keys[0].endswith("SCB") else scale * 127
        if rotation:
            made[layer + ROTATION] = rotation_tensor(rotation)
    return made


def _checked_scale(scale, codes, key: str):
    """Checks the scales of a weight's codes and returns them in float32, as [N] or [1]."""
    if codes.dim() != 2:
        raise Unsupported(
            f"from_int8: the codes next to {key} have shape {tuple(codes.shape)}; it must be [N,K]"
        )
    rows, shape = codes.shape[0], tuple(scale.shape)
    one = () if key.endswith("SCB") and rows != 1 else ((), (1,), (1, 1))
    if shape not in (*one, (rows,), (rows, 1)):
        raise Unsupported(
            f"from_int8: {key} has shape {shape} for codes {tuple(codes.shape)}; there must be one scale "
            f"per row, ({rows},) or ({rows}, 1)" + (", or one for the weight" if one else "")
        )
    return scale.detach().reshape(-1).to(torch.float32)


def _caller() -> int:
    """The stacklevel for a warning that names the first frame outside this file."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_code.co_filename == __file__:
        frame, level = frame.f_back, level + 1
    return level


def _said_by_comfy(state, weights, prefix: str, metadata, must: bool) -> dict:
    """How ComfyUI describes each layer, from comfy_quant and the file's header, by the layer's key prefix."""
    said = {}
    for key, about in state.items():
        layer, dot, name = key.rpartition(".")
        if name == "comfy_quant":
            text = bytes(about.to(torch.uint8).reshape(-1).tolist())
            said[layer + dot] = _object(text, prefix + key)
    header = (metadata or {}).get(_HEADER)
    if header is not None:
        layers = _object(header, f"the file's {_HEADER}").get("layers")
        if not isinstance(layers, dict):
            raise InvalidArgument(f'from_int8: the file\'s {_HEADER} has no "layers"')
        for name, about in layers.items():
            # The header names layers by their keys in the file, but some programs omit the prefix.
            for layer in (f"{name}.".removeprefix(prefix), f"{name}."):
                if layer + "weight" in state:
                    said[layer] = _object(about, f"{_HEADER} of {name!r}")
                    break
    for layer, about in said.items():
        if layer not in weights or about.get("format") != "int8_tensorwise":
            raise Unsupported(
                f"from_int8: {prefix}{layer}comfy_quant says {json.dumps(about)}; only int8 "
                "tensors in the format int8_tensorwise can be read, with one scale or one per row"
            )
        _check_words(about, prefix + layer)
    if said or header is not None or must:
        for layer in weights:
            if layer not in said:
                raise Unsupported(
                    f"from_int8: the codes of {prefix}{layer}weight have no description: there is neither a "
                    f"comfy_quant next to them nor {_HEADER} in the file's header; ComfyUI would read them "
                    "as the weight itself"
                )
    return said


def _check_words(about: dict, layer: str) -> None:
    within = about.get("params")
    words = {**(within if isinstance(within, dict) else {}), **about}
    for word in sorted(set(words) - set(_ROTATION_WORDS)):
        if any(part in word.lower() for part in _TELLING):
            raise Unsupported(
                f"from_int8: comfy_quant of {layer}weight says {word} = {words[word]!r}; the supported "
                f"entries for rotations are {' and '.join(_ROTATION_WORDS)}"
            )
    if words.get("convrot") not in (None, False, True):
        raise Unsupported(
            f"from_int8: convrot of {layer}weight is {words['convrot']!r}; it must be true or false (the "
            "size of the groups is convrot_groupsize)"
        )


def _object(value, where: str) -> dict:
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InvalidArgument(f"from_int8: {where} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"from_int8: {where} is {value!r}; it must be a JSON object")
    return value


def _rotation_said(about: dict, layer: str, codes) -> int:
    """The group size of a layer's rotation, from its description in a ComfyUI file; 0 if it is not rotated.
    """
    within = about.get("params")
    within = within if isinstance(within, dict) else {}
    if not about.get("convrot", within.get("convrot", False)):
        return 0
    given = about.get("convrot_groupsize", within.get("convrot_groupsize", 256))
    try:
        group = int(given)
    except (TypeError, ValueError):
        group = -1
    if group not in ROTATIONS:
        raise Unsupported(
            f"from_int8: convrot_groupsize of {layer}weight is {given!r}; it must be one of "
            f"{', '.join(map(str, ROTATIONS))}"
        )
    if codes.shape[1] % group:
        raise InvalidArgument(
            f"from_int8: convrot_groupsize of {layer}weight is {group}, and its codes have "
            f"{codes.shape[1]} columns; they must be a multiple of it"
        )
    return group


def _check_aside(state, layer: str) -> None:
    for name in _STATIC:
        if layer + name in state:
            raise Unsupported(
                f"from_int8: {layer + name} is not supported; inputs are quantized dynamically, with one "
                "scale for each row, and weights have no groups"
            )
    zero = state.get(layer + "weight_zero_point")
    if zero is not None and bool((zero != 0).any()):
        raise Unsupported(f"from_int8: {layer}weight_zero_point is not 0; only symmetric codes are supported")
    layout = state.get(layer + "weight_format")
    if layout is not None and int(layout) != 0:
        raise Unsupported(
            f"from_int8: {layer}weight_format = {int(layout)}; it must be 0, codes row by row"
        )


def to_int8(state_dict, format: str, scale_dtype=torch.float32, *, prefix: str = "") -> dict:
    """Converts the state_dict of a model prepared for inference to one of FORMATS.

    scale_dtype: of weight_scale; SCB is float32. prefix: added to the beginning of all keys. If a format
    cannot hold a layer, Unsupported names the layer: only "comfy" holds rotated codes.
    """
    if format not in FORMATS:
        raise InvalidArgument(
            f"to_int8: format = {format!r}; it must be one of {', '.join(map(repr, FORMATS))}"
        )
    if not any(key.rpartition(".")[2] == CODES for key in state_dict):
        raise InvalidArgument(
            f"to_int8: the state_dict has no {CODES}, so nothing in it is int8; call prepare_for_eval first"
        )
    made = {}
    for key, tensor in state_dict.items():
        layer, dot, name = key.rpartition(".")
        layer += dot
        if name == CODES:
            if layer + SCALES not in state_dict:
                raise InvalidArgument(f"to_int8: there is {key}, and no {layer}{SCALES}")
            absmax = state_dict[layer + SCALES].to(torch.float32).reshape(-1)
            made[layer + "weight"] = tensor
            rotation = rotation_of(state_dict, layer)
            _add_scales(made, layer, absmax, tensor, rotation, format, scale_dtype)
        elif name not in (SCALES, ROTATION) and not (
            name == "weight" and layer + CODES in state_dict
        ):
            made[key] = tensor
        elif layer + CODES not in state_dict:
            raise InvalidArgument(f"to_int8: there is {key}, and no {layer}{CODES}")
    return {prefix + key: tensor for key, tensor in made.items()}


def _add_scales(made, layer: str, absmax, codes, rotation: int, format: str, scale_dtype) -> None:
    if rotation and format != "comfy":
        raise Unsupported(
            f"to_int8: the codes of {layer[:-1]!r} are rotated, with rotation = {rotation}, which the format "
            f"{format!r} cannot represent; use 'comfy'"
        )
    if format == "bitsandbytes":
        made[layer + "SCB"] = absmax.expand(codes.shape[0]).contiguous()
        made[layer + "weight_format"] = torch.tensor(0, dtype=torch.uint8)
        return
    scale = (absmax / 127).to(scale_dtype).expand(codes.shape[0]).reshape(-1, 1).contiguous()
    made[layer + "weight_scale"] = scale
    if format == "comfy":
        if absmax.numel() == 1 and not rotation:
            made[layer + "weight_scale"] = scale[0, 0].clone()
        about = {"format": "int8_tensorwise"}
        if rotation:
            about.update(convrot=True, convrot_groupsize=rotation)
        made[layer + "comfy_quant"] = torch.tensor(
            list(json.dumps(about).encode()), dtype=torch.uint8
        )


def load_int8(
    model,
    state_dict,
    *,
    strict: bool = True,
    replaced=None,
    prefix: str = "",
    metadata=None,
    format: str | None = None,
):
    """Loads a checkpoint with int8 weights into a model with float weights, in place. Returns the model.

    state_dict has any format of this module, or of switchback. If it has codes for the weight of an
    nn.Linear, or of a switchback layer with another kind of scales, the module is replaced by a
    SwitchBackLinear. This is prepared for inference and has the rotation of the codes. The other modules
    get their float weights. Missing and unexpected keys are errors, so no weight keeps its initial
    values.

    prefix, metadata, format: as for from_int8. replaced: as for replace_linear. strict=False: does not raise
    for such keys; model.load_result has the result of load_state_dict.
    """
    state = from_int8(state_dict, prefix=prefix, metadata=metadata, format=format)
    forms = {
        key[: -len(SCALES)]: _form(state, key[: -len(SCALES)])
        for key in state
        if key.rpartition(".")[2] == SCALES
    }
    names = dict(model.named_modules())
    for layer, (mode, rotation) in forms.items():
        _check_module(layer[:-1], names.get(layer[:-1]), mode, rotation)
    kinds: dict = {}
    for layer, form in forms.items():
        if not isinstance(names[layer[:-1]], Int8Layer):
            kinds.setdefault(form, set()).add(layer[:-1])
    for (mode, rotation), wanted in kinds.items():
        model = replace_linear(
            model,
            SwitchBackLinear,
            include=lambda name, _module, wanted=wanted: name in wanted,
            replaced=replaced,
            mode=mode,
            rotation=rotation,
        )
    for key, tensor in state.items():
        layer, _, name = key.rpartition(".")
        alone = name == "weight" and is_placeholder(tensor) and f"{layer}.{CODES}" not in state
        if alone and layer:
            raise InvalidArgument(f"load_int8: {key} is empty, and there are no codes next to it")
    result = model.load_state_dict(state, strict=strict)
    if not strict:
        model.load_result = result
    return model


def _form(state, layer: str) -> tuple[str, int]:
    """The mode and the rotation that a layer must have for these codes."""
    if layer + CODES not in state:
        raise InvalidArgument(f"load_int8: there is {layer}{SCALES}, and no {layer}{CODES}")
    one = state[layer + SCALES].numel() == 1 and state[layer + CODES].shape[0] != 1
    return "global" if one else "rowwise", rotation_of(state, layer)


def _check_module(name: str, module, mode: str, rotation: int) -> None:
    """Checks that a module is a layer for codes with this mode and rotation, or can be replaced by one."""
    if isinstance(module, Int8Layer):
        of_rows = mode == "rowwise"
        if MODES[module.mode].of_rows != of_rows and module.out_features != 1:
            raise InvalidArgument(
                f"load_int8: {name!r} is a layer in mode {module.mode!r}, and the checkpoint has scales of "
                f"mode {mode!r}; start from nn.Linear, or from a layer in that mode"
            )
        if module.rotation != rotation:
            raise InvalidArgument(
                f"load_int8: {name!r} is a layer with rotation = {module.rotation}, and the checkpoint's "
                f"codes have rotation = {rotation}; start from nn.Linear, or from a layer with that rotation"
            )
    elif type(module) is not torch.nn.Linear and (module is None or not is_conv1d(module)):
        what = "it does not exist" if module is None else f"it is a {type(module).__name__}"
        raise InvalidArgument(
            f"load_int8: the checkpoint has int8 codes for {name!r}, and {what} in the model; it must "
            "be an nn.Linear or a switchback layer (prefix = ... removes the beginning of the keys)"
        )


def load_int8_file(
    model,
    path,
    *,
    strict: bool = True,
    replaced=None,
    prefix: str = "",
    format: str | None = None,
):
    """Like load_int8, for a safetensors file, or for a list of files that form one checkpoint.

    It also reads the header of the file, in which files for ComfyUI may describe their codes.
    It does not need the package safetensors.
    """
    state, metadata = {}, {}
    for one in [path] if isinstance(path, str) or hasattr(path, "__fspath__") else path:
        tensors, about = files.read(one, prefix)
        twice = sorted(set(tensors) & set(state))
        if twice:
            raise InvalidArgument(
                f"load_int8_file: {one} contains {twice[0]}, which an earlier file contains too"
            )
        state.update(tensors)
        metadata = _joined(metadata, about, one)
    return load_int8(
        model,
        state,
        strict=strict,
        replaced=replaced,
        prefix=prefix,
        metadata=metadata,
        format=format,
    )


def _joined(metadata: dict, more: dict, path) -> dict:
    """Joins the metadata of several files, including their descriptions of layers."""
    if _HEADER not in metadata or _HEADER not in more:
        return {**metadata, **more}
    both = [_object(each[_HEADER], f"{_HEADER} of {path}") for each in (metadata, more)]
    layers = {}
    for about in both:
        layers.update(about.get("layers") or {})
    return {**metadata, **more, _HEADER: json.dumps({"layers": layers})}


def save_int8_file(
    model, path, format: str = "comfy", scale_dtype=torch.float32, *, prefix: str = ""
) -> None:
    """Writes a model prepared for inference, or its state_dict, as a safetensors file: see to_int8."""
    state = model.state_dict() if isinstance(model, torch.nn.Module) else model
    files.write(path, to_int8(state, format, scale_dtype, prefix=prefix))
