# SPDX-License-Identifier: Apache-2.0
"""The weight as int8 codes ("prepared"): conversion of a module between that form and the float form.

The codes are the buffer W_int8[N,K], their scales the buffer state_W (float32): [N] in mode rowwise,
[1] in mode global. For a rotated weight, the buffer rotation_W (int32 [1]) has the group size of the
rotation. Checkpoints in this form hold these keys instead of the weight. They
also hold an empty weight, of shape [0], for loaders that do not know codes. Such a loader would only
warn about a missing weight and keep its initial values, but it refuses a weight of another shape.
"""

from __future__ import annotations

import torch

from .. import ops
from .._errors import InvalidArgument, InvalidState
from .._modes import MODES
from .._tensors import FLOATS

CODES, SCALES, ROTATION = "W_int8", "state_W", "rotation_W"


def rotation_tensor(rotation: int, device=None):
    """Creates the buffer rotation_W, which has the group size of the codes' rotation."""
    with torch.inference_mode(False):
        return torch.tensor([rotation], dtype=torch.int32, device=device)


def rotation_of(state_dict, prefix: str) -> int:
    """The rotation of a layer's codes in a state_dict; 0 if the state_dict does not say so."""
    told = state_dict.get(prefix + ROTATION)
    return 0 if told is None else int(told)


def check_rotation(module, name: str) -> None:
    """Raises InvalidArgument if the codes that a loader gave a module have another rotation than the module.
    """
    told = rotation_of(module._buffers, "")
    if module.is_prepared and told != module.rotation:
        raise InvalidArgument(
            f"the codes of {name!r} have rotation = {told}, and the layer has rotation = {module.rotation}"
        )


def prepare(module, keep_float: bool = False) -> None:
    """Replaces a module's float weight by int8 codes. keep_float: keeps the float weight too; then the
    codes are not in state_dict."""
    if not _is_to_be_prepared(module):
        return
    if "weight" not in module._parameters:
        raise InvalidState(
            "prepare_for_eval: the weight is computed from other parameters (a parametrization); first "
            "remove the parametrization and keep its result as the weight"
        )
    set_codes(module, *_quantized(module, module._weight_rows()), keep_float)


def _quantized(module, rows) -> tuple:
    """Quantizes a weight [N,K] with the scales and rotation of this module; returns codes and scales."""
    quantize = ops.quantize_rowwise if MODES[module.mode].of_rows else ops.quantize_global
    # Not in inference mode, because tensors created in it cannot be used elsewhere.
    with torch.inference_mode(False), torch.no_grad():
        return quantize(ops.rotate(rows, module.rotation) if module.rotation else rows)


def float_weight(module):
    """The float weight of a module; None if the module has only codes."""
    return None if has_codes_alone(module) else module.weight


def has_codes_alone(module) -> bool:
    """Whether a module is prepared and has no float weight."""
    tables = module.__dict__
    return CODES in tables.get("_buffers", ()) and tables["_parameters"].get("weight") is None


def float_rows(module):
    """Dequantizes a prepared module's codes: the weight [N,K] in float32, without its rotation."""
    codes, scales = module.W_int8, module.state_W
    with torch.no_grad():
        rows = ops.dequantize_rowwise(codes, scales.expand(codes.shape[0]).contiguous(), torch.float32)
        return ops.rotate(rows, module.rotation) if module.rotation else rows  # a rotation is its own inverse


def set_rows(module, rows) -> None:
    """Quantizes another weight [N,K] and sets its codes in a prepared module."""
    set_codes(module, *_quantized(module, rows))


def set_empty_codes(module) -> None:
    """Converts a module to the prepared form, with empty codes and scales into which a checkpoint will be
    loaded."""
    if not _is_to_be_prepared(module):
        return
    shape, device = (module.out_features, module.in_features), module.weight.device
    count = shape[0] if MODES[module.mode].of_rows else 1
    codes = torch.empty(shape, dtype=torch.int8, device=device)
    set_codes(module, codes, torch.empty(count, dtype=torch.float32, device=device))


def prepare_model(model, kind: type) -> None:
    """Prepares the modules of this class; tied weights stay tied: see switchback.nn.prepare_for_eval."""
    users: dict = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            users.setdefault(parameter, []).append(module)
    done: dict = {}
    for module in model.modules():
        if not isinstance(module, kind) or not _is_to_be_prepared(module):
            continue
        weight = module._parameters.get("weight")
        tied = users.get(weight, ())
        first = done.setdefault((weight, module.mode, module.rotation, module._weight_shape()), module)
        if not all(isinstance(user, kind) and _is_to_be_prepared(user, True) for user in tied):
            prepare(module, keep_float=True)
        elif first is module:
            prepare(module)
        else:
            set_codes(module, first.W_int8, first.state_W)


def _is_to_be_prepared(module, or_was: bool = False) -> bool:
    return MODES[module.mode].is_int8 and (or_was or not module.is_prepared)


def take_form_of(module, state_dict, prefix: str, rest: tuple):
    """Converts the module to the form that a state_dict has: codes or a float weight.

    Returns the state_dict to load (scales converted), and whether it was rejected. error_msgs then
    has the reason. `rest` holds the arguments of _load_from_state_dict after the prefix.
    """
    missing_keys, error_msgs = rest[2], rest[4]
    weight = state_dict.get(prefix + "weight")
    has_float = weight is not None and not is_placeholder(weight)
    found = [name for name in (CODES, SCALES) if prefix + name in state_dict]
    if has_float or not found or not MODES[module.mode].is_int8:
        if has_float and module.is_prepared:
            _set_float(module)
        return state_dict, False
    if len(found) == 1:
        missing_keys.extend(prefix + name for name in (CODES, SCALES) if name not in found)
        return state_dict, True
    codes, scales = state_dict[prefix + CODES], state_dict[prefix + SCALES]
    told = state_dict.get(prefix + ROTATION)
    problems = _problems(module, codes, scales, told)
    if problems:
        error_msgs.extend(f"{prefix}{problem}" for problem in problems)
        return state_dict, True
    own = {key: value for key, value in state_dict.items() if key.startswith(prefix)}
    own.pop(prefix + "weight", None)
    own[prefix + SCALES] = scales.detach().reshape(-1).to(torch.float32)
    own.pop(prefix + ROTATION, None)
    if module.rotation:
        own[prefix + ROTATION] = rotation_tensor(module.rotation)  # missing in older checkpoints
    weight = float_weight(module)
    if weight is not None:
        device = weight.device
        with torch.inference_mode(False):
            set_codes(
                module,
                torch.empty(codes.shape, dtype=torch.int8, device=device),
                torch.empty(scales.numel(), dtype=torch.float32, device=device),
            )
    return own, False


def placeholder(module):
    """Creates the empty weight that a state_dict has next to codes."""
    made = torch.empty(0, dtype=module._float["dtype"], device=module.W_int8.device)
    # With this flag transformers does not initialise the tensor, which it did not load.
    made._is_hf_initialized = True
    return made


def is_placeholder(weight) -> bool:
    """Whether a weight is the empty weight that a state_dict has next to codes."""
    return weight.numel() == 0 and weight.dim() == 1


def _problems(module, codes, scales, told) -> list[str]:
    """What is wrong with a checkpoint's codes, scales and rotation, as texts."""
    shape = (module.out_features, module.in_features)
    count = shape[0] if MODES[module.mode].of_rows else 1
    found = []
    if codes.dtype is not torch.int8 or tuple(codes.shape) != shape:
        found.append(
            f"{CODES}: it is {codes.dtype} of shape {tuple(codes.shape)}; it must be torch.int8 of shape "
            f"{shape}, [out_features, in_features]"
        )
    if scales.dtype not in FLOATS and scales.dtype is not torch.float64:
        found.append(f"{SCALES}: it is {scales.dtype}; it must be floating point")
    if scales.numel() != count:
        other = {
            1: "SwitchBackLinear or SwitchBackLinearGlobal",
            shape[0]: "SwitchBackLinearVectorwise",
        }
        hint = other.get(scales.numel())
        found.append(
            f"{SCALES}: it has shape {tuple(scales.shape)}; a layer in mode {module.mode} has {count} "
            f"scale{'s' if count > 1 else ''}" + (f": load it into {hint}" if hint else "")
        )
    if told is not None and not told.is_meta and int(told) != module.rotation:
        found.append(
            f"{ROTATION}: the codes have rotation = {int(told)}, and the layer has rotation = "
            f"{module.rotation}; load them into a layer with rotation = {int(told)}"
        )
    return found


def set_codes(module, codes, scales, keep_float: bool = False) -> None:
    """Sets these codes in a module, prepared or not. Other modules that shared the old codes keep them."""
    weight = float_weight(module)
    if weight is not None:
        module._float = {"dtype": weight.dtype, "requires_grad": weight.requires_grad}
    module.register_buffer(CODES, codes, persistent=not keep_float)
    module.register_buffer(SCALES, scales, persistent=not keep_float)
    if module.rotation:
        told = rotation_tensor(module.rotation, codes.device)
        module.register_buffer(ROTATION, told, persistent=not keep_float)
    if not keep_float:
        module.weight = None
    module._layers.release()


def _set_float(module) -> None:
    """Replaces a module's codes by an uninitialised float weight, into which a checkpoint will be loaded."""
    device = module.W_int8.device
    dtype = module._float["dtype"]
    for name in (CODES, SCALES, ROTATION):
        if name in module._buffers:
            delattr(module, name)
    if module._parameters.get("weight") is not None:  # it was kept because other modules share it
        module._layers.release()
        return
    with torch.inference_mode(False):
        weight = torch.empty(module._weight_shape(), dtype=dtype, device=device)
        module.weight = torch.nn.Parameter(weight, requires_grad=module._float["requires_grad"])
    module._layers.release()
