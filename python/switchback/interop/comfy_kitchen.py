# SPDX-License-Identifier: Apache-2.0
"""A backend for comfy-kitchen, the library of ComfyUI's quantized layers. register() turns it on.

It computes comfy-kitchen's int8 functions by the rules of docs/numerics.md, on the CPU and on CUDA
devices. If it does not support the types, size, device or arguments of a call, the next backend
computes it: comfy-kitchen's registry checks this before each call.

On the CPU it keeps packed forms of the weights of int8_linear, within packed_bytes (register). A weight
that does not fit is packed in each call. status() lists the packed forms.
"""

from __future__ import annotations

import importlib
import inspect
import sys

import torch

try:
    import comfy_kitchen
    from comfy_kitchen.constraints import FunctionConstraints, ParamConstraint, ValidationResult
    from comfy_kitchen.registry import registry
except ImportError as error:
    raise ImportError(
        "switchback.interop.comfy_kitchen needs the package comfy-kitchen (0.2.40 or later): "
        f"pip install comfy-kitchen ({error})"
    ) from error

from .. import ops
from .._abi import ACTIVATIONS
from .._errors import Error, InvalidArgument, Unsupported
from .._tensors import DTYPES, FLOATS, context_of, needs_operator
from ..nn._dispatch import linear_of_codes
from ..nn._function import codes_of, reads_codes_themselves
from ..nn._options import ROTATIONS
from ._packed_weights import PackedWeights

NAME = "switchback"

_MAX_K = 131071  # with more columns, int32 sums could overflow for some codes
_CHUNK = 1 << 21  # number of elements that are dequantized at once
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # indexed by comfy-kitchen's output_dtype_code
_packed = PackedWeights()
# For each function of comfy-kitchen by name: its parameters that are unknown here, with their defaults; and
# the reason why this backend does not take it over.
_neutral: dict[str, dict] = {}
_left: dict[str, str] = {}


# ---- Registration


def register(before: str | None = None, packed_bytes: int | None = None) -> tuple[str, ...]:
    """Puts the backend "switchback" first, and returns the names of the functions that it takes over.

    before: the name of the backend before which to put it instead. packed_bytes: the memory limit of
    packed weights on the CPU. The default is an eighth of the machine's memory, and 0 disables them.
    A further call changes the order and the limit.
    """
    order = [name for name in registry._priority if name != NAME]
    if before is not None and before not in order:
        raise InvalidArgument(f"register: before = {before!r}; it must be one of {order}")
    if packed_bytes is not None:
        _packed.set_limit(packed_bytes)
    _neutral.clear()
    _left.clear()
    capabilities = {}
    for name, (rule, types) in _FUNCTIONS.items():
        reason = _compare_signature(name)
        if reason:
            _left[name] = reason
        else:
            capabilities[name] = _constraints(name, rule, types)
    registry.register(NAME, sys.modules[__name__], capabilities)
    registry.enable(NAME)
    order.insert(0 if before is None else order.index(before), NAME)
    registry.set_priority(order)
    return tuple(capabilities)


def unregister() -> None:
    """Removes the backend and drops its packed weights. Does nothing if the backend is not registered."""
    registry.set_priority([name for name in registry._priority if name != NAME])
    registry.enable(NAME)
    with registry._lock:
        registry._backends.pop(NAME, None)
        for name in registry._capabilities.pop(NAME, ()):
            registry._constraints.pop((NAME, name), None)
    _packed.clear()


def status() -> dict:
    """The functions that are taken over, the order of the backends, and the size and limit of packed weights.
    """
    return {
        "functions": sorted(registry.list_backends().get(NAME, {}).get("capabilities", ())),
        "left": dict(_left),
        "priority": list(registry._priority),
        "packed_weights": len(_packed),
        "packed_bytes": _packed.nbytes(),
        "packed_bytes_limit": _packed.limit,
    }


def list_backends() -> dict:
    """comfy_kitchen's list of its backends: whether each works on this machine, and its functions."""
    return registry.list_backends()


def _compare_signature(name: str) -> str | None:
    """The reason why this backend cannot take over a function of comfy-kitchen; None if it can.

    Parameters that are unknown here must come last and have a default. The default is assumed to be
    the value that has no effect.
    """
    eager = importlib.import_module("comfy_kitchen.backends.eager")
    theirs = getattr(eager, name, None) or getattr(eager.quantization, name, None)
    if theirs is None:
        return "comfy-kitchen has no such function"
    parameters = inspect.signature(theirs).parameters
    known = [p for p in inspect.signature(globals()[name]).parameters if p in parameters]
    if list(parameters)[: len(known)] != known:
        return f"its parameters are {', '.join(parameters)}, in an order that switchback does not know"
    further = list(parameters.values())[len(known) :]
    for parameter in further:
        if parameter.default is inspect.Parameter.empty:
            return f"it requires {parameter.name}, which switchback does not know"
    _neutral[name] = {parameter.name: parameter.default for parameter in further}
    return None


def _constraints(name: str, rule, types: dict) -> FunctionConstraints:
    def check(arguments) -> ValidationResult:
        problem = _further_problem(name, arguments) or rule(arguments)
        return ValidationResult.ok() if problem is None else ValidationResult.fail(*problem)

    return FunctionConstraints(
        params={param: ParamConstraint(dtypes=frozenset(dtypes)) for param, dtypes in types.items()},
        default_devices=_devices(),
        call_rules=(check,),
    )


def _devices() -> frozenset[str]:
    """The types of devices that the library can use on this machine."""
    found = {"cpu"}
    if torch.cuda.is_available() and torch.version.hip is None:
        try:
            context_of(torch.device("cuda", torch.cuda.current_device()), "register", "device")
            found.add("cuda")
        except Error:
            pass  # libswitchback has no kernels for this device
    return frozenset(found)


# ---- Supported calls: each rule returns the name of an argument and what is wrong with it, or None


def _further_problem(name: str, arguments) -> tuple | None:
    for param, value in arguments.items():
        if param in _neutral[name]:
            default = _neutral[name][param]
            if value is not default and (isinstance(value, torch.Tensor) or value != default):
                return param, "not known to switchback"
    return None


def _group_problem(features: int, group, param: str) -> tuple | None:
    if group not in ROTATIONS:
        return param, f"{group} is not one of {', '.join(map(str, ROTATIONS))}"
    if features % group:
        return param, f"{group} does not divide {features} columns"
    return None


def _gradient_problem(*tensors) -> tuple | None:
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return "x", "requires a gradient, which switchback does not record"
    return None


def _linear_rule(a) -> tuple | None:
    x, weight, scale, bias = (a.get(name) for name in ("x", "weight", "weight_scale", "bias"))
    if x is None or weight is None:
        return None
    if weight.dim() != 2 or not 0 < weight.shape[1] <= _MAX_K:
        return "weight", f"shape {tuple(weight.shape)} is not [N,K] with K from 1 to {_MAX_K}"
    rows, cols = weight.shape
    act = a.get("input_act")
    if act not in _input_acts():
        return "input_act", f"{act!r} is not known to switchback"
    width = 2 if act in _GATED else 1
    if x.dim() < 1 or x.shape[-1] != width * cols:
        return "x", f"shape {tuple(x.shape)} does not fit weight {tuple(weight.shape)}"
    if scale is not None and scale.numel() not in (1, rows):
        return "weight_scale", f"shape {tuple(scale.shape)} does not have 1 or {rows} elements"
    if bias is not None and bias.numel() != rows:
        return "bias", f"shape {tuple(bias.shape)} does not have {rows} elements"
    if a.get("out_dtype") is not None and a["out_dtype"] not in FLOATS:
        return "out_dtype", f"{a['out_dtype']} is not float32, float16 or bfloat16"
    if a.get("residual") is not None and (_helpers is None or a.get("residual_scale") is None):
        return "residual", "needs residual_scale"
    if a.get("convrot"):
        problem = _group_problem(cols, a.get("convrot_groupsize", 256), "convrot_groupsize")
        if problem:
            return problem
    return _gradient_problem(x, bias, a.get("residual"), a.get("input_act_weight"))


def _modulated_rule(a) -> tuple | None:
    x, scale = a.get("x"), a.get("modulation_scale")
    if x is not None and scale is not None and (x.dim() < 1 or scale.numel() != x.shape[-1]):
        return "modulation_scale", f"shape {tuple(scale.shape)} is not one row of x"
    return _linear_rule(a) or _gradient_problem(scale, a.get("norm_weight"))


def _rows_rule(a) -> tuple | None:
    seed = a.get("stochastic_rounding")
    if seed is not None and seed > 0:
        return "stochastic_rounding", "switchback rounds to nearest here"
    x = a.get("x")
    return ("x", "has no dimension") if x is not None and x.dim() < 1 else None


def _matrix_rule(a) -> tuple | None:
    matrix = a.get("weight", a.get("q"))
    if matrix is None:
        return None
    if matrix.dim() != 2:
        return "weight", f"shape {tuple(matrix.shape)} is not [N,K]"
    return _group_problem(matrix.shape[1], a.get("group_size"), "group_size")


def _convrot_rule(a) -> tuple | None:
    return _rows_rule(a) or _matrix_rule(a)


def _rotate_rule(a) -> tuple | None:
    return _matrix_rule(a) or _gradient_problem(a.get("weight"))


def _activation_rule(a) -> tuple | None:
    x, group = a.get("x"), a.get("group_size")
    problem = _rows_rule(a)
    if problem is None and x is not None:
        problem = _group_problem(x.shape[-1], group, "group_size")
    h = a.get("h")
    if problem is None and h is not None and not _is_regular(h, group):
        problem = "h", "is not the regular Hadamard matrix"
    return problem


def _dequantize_rule(a) -> tuple | None:
    code = a.get("output_dtype_code")
    if code is not None and code not in range(len(_DTYPES)):
        return "output_dtype_code", f"{code} is not the code of float32, float16 or bfloat16"
    return None


def _dequantize_convrot_rule(a) -> tuple | None:
    return _matrix_rule(a) or _dequantize_rule(a)


def _product_rule(a) -> tuple | None:
    left, right = a.get("a"), a.get("b")
    if left is None or right is None:
        return None
    if left.dim() != 2 or right.dim() != 2 or left.shape[1] != right.shape[0]:
        return "b", f"shape {tuple(right.shape)} does not fit a {tuple(left.shape)}"
    return None if left.shape[1] <= _MAX_K else ("a", f"K is above {_MAX_K}")


_INT = (int,)
_CODES = (torch.int8,)
_OF_LINEAR = {"x": FLOATS, "weight": _CODES, "weight_scale": FLOATS, "bias": FLOATS}
_OF_CODES = {"q": _CODES, "scale": FLOATS}
_FUNCTIONS = {
    "quantize_int8_rowwise": (_rows_rule, {"x": FLOATS}),
    "quantize_int8_tensorwise": (lambda a: _rows_rule({**a, "x": None}), {"x": FLOATS}),
    "quantize_and_rotate_rowwise": (_activation_rule, {"x": FLOATS, "group_size": _INT}),
    "quantize_int8_convrot_weight": (_convrot_rule, {"weight": FLOATS, "group_size": _INT}),
    "rotate_int8_convrot_weight": (_rotate_rule, {"weight": FLOATS, "group_size": _INT}),
    "dequantize_int8_simple": (_dequantize_rule, _OF_CODES),
    "dequantize_int8_simple_dtype": (_dequantize_rule, _OF_CODES),
    "dequantize_int8_convrot_weight": (_dequantize_convrot_rule, _OF_CODES),
    "dequantize_int8_convrot_weight_dtype": (_dequantize_convrot_rule, _OF_CODES),
    "mm_int8": (_product_rule, {"a": _CODES, "b": _CODES}),
    "int8_linear": (_linear_rule, _OF_LINEAR),
    "int8_linear_modulated": (_modulated_rule, {**_OF_LINEAR, "modulation_scale": FLOATS}),
    "int8_linear_rms_modulated": (
        _modulated_rule,
        {**_OF_LINEAR, "modulation_scale": FLOATS, "norm_weight": FLOATS},
    ),
}

# comfy-kitchen's functions for the activation before the quantization, and for adding a residual after the
# product. Older versions lack them.
try:
    from comfy_kitchen.backends import _activations as _helpers
except ImportError:
    _helpers = None
_FUSED = {None: None, "none": None, "gelu_tanh": "gelu_tanh"}
_GATED = ("swiglu", "situ")  # activations that halve the columns


def _input_acts() -> set:
    return {*_FUSED, *(_helpers.INPUT_ACT_TO_CODE if _helpers else ())} & {
        *_FUSED, *_GATED, "rms_norm"
    }


def _is_regular(h, group: int) -> bool:
    from comfy_kitchen.tensor.int8_utils import _HADAMARD_CACHE, _build_hadamard

    if any(h is known for known in _HADAMARD_CACHE.values()):
        return tuple(h.shape) == (group, group)
    want = _build_hadamard(group, device="cpu", dtype=torch.float32).to(h.dtype)
    return h.shape == want.shape and torch.equal(h.cpu(), want)


# ---- The functions of the backend, under comfy-kitchen's names


def _check_further(name: str, further: dict) -> None:
    for param in further:
        if param not in _neutral.get(name, {}):
            raise TypeError(f"{name}: got {param}, which this function does not have")
    problem = _further_problem(name, further) if further else None
    if problem:
        raise Unsupported(f"{name}: {problem[0]} is {problem[1]}")


def _refuse_stochastic(name: str, seed) -> None:
    if seed is not None and seed > 0:
        raise Unsupported(
            f"{name}: stochastic_rounding = {seed}; the backend 'switchback' rounds to nearest: it must be 0"
        )


def _operator(name: str, *tensors):
    """The torch operator of comfy-kitchen with this name, if a compiler or a tracer needs it; else None."""
    if not needs_operator(*(t for t in tensors if t is not None)):
        return None
    return getattr(torch.ops.comfy_kitchen, name, None)


def _as_matrix(x):
    return x.reshape(x.shape[:-1].numel(), x.shape[-1])


def _scale_of(absmax):
    """The scale that comfy-kitchen uses, absmax/127. Never 0, because other code divides by it."""
    scale = absmax / 127
    return scale.masked_fill_(scale == 0, 1e-30)


def quantize_int8_rowwise(x, stochastic_rounding=0, **further):
    """Quantizes x[..., K] per row: codes with the shape of x, and scales [..., 1] in float32."""
    _check_further("quantize_int8_rowwise", further)
    _refuse_stochastic("quantize_int8_rowwise", stochastic_rounding)
    operator = _operator("quantize_int8_rowwise", x)
    if operator:
        return operator(x)
    codes, absmax = codes_of(_as_matrix(x))
    return codes.reshape(x.shape), _scale_of(absmax).reshape(*x.shape[:-1], 1)


def quantize_int8_tensorwise(x, scale=None, stochastic_rounding=0, **further):
    """Quantizes x with one scale for the whole tensor: codes with the shape of x, and the scale.

    With `scale`: codes of x / scale in float32, rounded once.
    """
    _check_further("quantize_int8_tensorwise", further)
    _refuse_stochastic("quantize_int8_tensorwise", stochastic_rounding)
    if scale is None or isinstance(scale, str):
        operator = _operator("quantize_int8_tensorwise", x)
        if operator:
            return operator(x)
        codes, absmax = ops.quantize_global(_as_matrix(x) if x.dim() else x.reshape(1, 1))
        return codes.reshape(x.shape), _scale_of(absmax).reshape(())
    scale = torch.as_tensor(scale, dtype=torch.float32, device=x.device).detach()
    divisor = torch.where(scale == 0, torch.finfo(torch.float32).tiny, scale)
    codes = (x.detach().float() / divisor).round_().clamp_(-128, 127)
    return codes.nan_to_num_(0).to(torch.int8), scale


def quantize_and_rotate_rowwise(x, h, group_size, stochastic_rounding=0, **further):
    """Rotates the rows of x[..., K] with the regular Hadamard matrix and quantizes them: codes and scales
    [..., 1]."""
    _check_further("quantize_and_rotate_rowwise", further)
    _refuse_stochastic("quantize_and_rotate_rowwise", stochastic_rounding)
    if needs_operator(x):
        return quantize_int8_rowwise(ops.rotate(_as_matrix(x), group_size).reshape(x.shape))
    codes, absmax = codes_of(_as_matrix(x), group_size)
    return codes.reshape(x.shape), _scale_of(absmax).reshape(*x.shape[:-1], 1)


def quantize_int8_convrot_weight(weight, group_size, stochastic_rounding=0, **further):
    """Rotates and quantizes a weight: codes [N,K] and scales [N,1]."""
    _check_further("quantize_int8_convrot_weight", further)
    _refuse_stochastic("quantize_int8_convrot_weight", stochastic_rounding)
    operator = _operator("quantize_int8_convrot_weight", weight)
    if operator:
        return operator(weight, group_size)
    codes, absmax = codes_of(weight, group_size)
    return codes, _scale_of(absmax).reshape(-1, 1)


def rotate_int8_convrot_weight(weight, group_size, **further):
    """Rotates a weight [N,K]; the result is rounded once to the weight's dtype."""
    _check_further("rotate_int8_convrot_weight", further)
    return ops.rotate(weight, group_size).to(weight.dtype)


def dequantize_int8_simple(q, scale, **further):
    """Dequantizes: q * scale in float32. Scales per row of a matrix may be [N,1] or [N]."""
    _check_further("dequantize_int8_simple", further)
    operator = _operator("dequantize_int8_simple", q, scale)
    return operator(q, scale) if operator else _dequantized(q, scale, torch.float32)


def dequantize_int8_simple_dtype(q, scale, output_dtype_code, **further):
    """Dequantizes: q * scale in the dtype with this code: 0 is float32, 1 is float16, 2 is bfloat16."""
    _check_further("dequantize_int8_simple_dtype", further)
    operator = _operator("dequantize_int8_simple_dtype", q, scale)
    if operator:
        return operator(q, scale, output_dtype_code)
    return _dequantized(q, scale, _DTYPES[output_dtype_code])


def dequantize_int8_convrot_weight(q, scale, group_size, **further):
    """Dequantizes a rotated weight: q * scale, rotated back, in float32."""
    _check_further("dequantize_int8_convrot_weight", further)
    operator = _operator("dequantize_int8_convrot_weight", q, scale)
    if operator:
        return operator(q, scale, group_size)
    return _dequantized(q, scale, torch.float32, group_size)


def dequantize_int8_convrot_weight_dtype(q, scale, group_size, output_dtype_code, **further):
    """Dequantizes a rotated weight: q * scale, rotated back. output_dtype_code: 0 float32, 1 float16, 2
    bfloat16."""
    _check_further("dequantize_int8_convrot_weight_dtype", further)
    operator = _operator("dequantize_int8_convrot_weight_dtype", q, scale)
    if operator:
        return operator(q, scale, group_size, output_dtype_code)
    return _dequantized(q, scale, _DTYPES[output_dtype_code], group_size)


def _dequantized(q, scale, dtype, rotation: int = 0):
    """Dequantizes a few rows at a time, so that the float32 values stay in a cache."""
    scale = scale.detach().to(q.device, torch.float32)
    by_rows = q.dim() == 2 and scale.numel() == q.shape[0] and scale.numel() > 1
    if by_rows:
        scale = scale.reshape(-1, 1)
    elif scale.numel() > 1 or q.dim() != 2:
        return (q * scale).to(dtype)  # broadcasts the scale
    else:
        scale = scale.reshape(())
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    step = max(1, _CHUNK // max(1, q.shape[1]))
    for begin in range(0, q.shape[0], step):
        rows = slice(begin, begin + step)
        values = q[rows] * (scale[rows] if by_rows else scale)
        out[rows] = ops.rotate(values, rotation) if rotation else values
    return out


def mm_int8(a, b, **further):
    """The product of int8 codes a[M,K] . b[K,N] with int32 sums."""
    _check_further("mm_int8", further)
    return ops.gemm_s8s8s32(a, b.t())


def int8_linear(
    x,
    weight,
    weight_scale,
    bias=None,
    out_dtype=torch.bfloat16,
    convrot=False,
    convrot_groupsize=256,
    input_act=None,
    input_act_weight=None,
    input_act_eps=0.0,
    residual=None,
    residual_scale=None,
    **further,
):
    """A linear layer: y[..., N] = act(x)[..., K] times the codes weight[N,K]^T, with scales and bias.

    With a residual it returns residual + residual_scale * y. One pass rotates and quantizes x. One product
    applies the scales and the bias and rounds y, once.
    """
    _check_further("int8_linear", further)
    out_dtype = out_dtype or torch.bfloat16
    operator = _operator("int8_linear", x, weight)
    if operator:
        later = {
            "input_act": input_act,
            "input_act_weight": input_act_weight,
            "input_act_eps": input_act_eps,
            "residual": residual,
            "residual_scale": residual_scale,
        }
        return operator(
            x,
            weight,
            weight_scale,
            bias,
            _DTYPES.index(out_dtype),
            convrot,
            convrot_groupsize,
            **{name: value for name, value in later.items() if value is not None},
        )
    if input_act in _FUSED:
        activation = _FUSED[input_act]
    else:
        activation = None
        of_act = (input_act_weight, input_act_eps) if input_act == "rms_norm" else ()
        x = _helpers.apply_input_act(x, input_act, *of_act)
    weight = weight.to(x.device)
    scales = weight_scale.detach().to(x.device, torch.float32).reshape(-1) * 127
    bias = None if bias is None else bias.to(x.device).reshape(-1)
    rotation = convrot_groupsize if convrot else 0
    themselves = not x.is_cpu or reads_codes_themselves(x.shape[:-1].numel(), weight)
    y = None
    if themselves:
        numbers = DTYPES[out_dtype], rotation, ACTIVATIONS.get(activation, 0)
        y = linear_of_codes(x, weight, scales, bias, *numbers)
    if y is None:
        codes, absmax = codes_of(_as_matrix(x), rotation, activation)
        arranged = weight if themselves else _packed.of(weight)
        y = ops.gemm_dequantize(codes, arranged, absmax, scales, bias, out_dtype)
        y = y.reshape(*x.shape[:-1], weight.shape[0])
    return y if residual is None else _helpers.apply_residual(y, residual, residual_scale)


def int8_linear_modulated(
    x,
    modulation_scale,
    weight,
    weight_scale,
    bias=None,
    out_dtype=torch.bfloat16,
    convrot=False,
    convrot_groupsize=256,
    **further,
):
    """The function int8_linear for the input x * (1 + modulation_scale)."""
    _check_further("int8_linear_modulated", further)
    x = x * (1.0 + modulation_scale.reshape(-1))
    return int8_linear(x, weight, weight_scale, bias, out_dtype, convrot, convrot_groupsize)


def int8_linear_rms_modulated(
    x,
    norm_weight,
    norm_eps,
    modulation_scale,
    weight,
    weight_scale,
    bias=None,
    out_dtype=torch.bfloat16,
    convrot=False,
    convrot_groupsize=256,
    **further,
):
    """The function int8_linear for the input RMSNorm(x) * (1 + modulation_scale)."""
    _check_further("int8_linear_rms_modulated", further)
    x = torch.nn.functional.rms_norm(x, (x.shape[-1],), norm_weight, norm_eps)
    of_weight = weight, weight_scale, bias, out_dtype, convrot, convrot_groupsize
    return int8_linear_modulated(x, modulation_scale, *of_weight)
