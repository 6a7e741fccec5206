# SPDX-License-Identifier: Apache-2.0
"""Replaces a model's linear modules by switchback layers, and the layers' weights by int8 codes."""

from __future__ import annotations

import fnmatch
import warnings

import torch

from .. import _abi
from .._errors import InvalidArgument
from .._modes import MODES, one_of
from . import _prepared
from ._attention import SwitchBackMultiheadAttention, attention_like
from ._conv1d import conv1d_like, is_conv1d
from ._gelu import GELU, form_of
from ._options import ROTATIONS
from .linear import Int8Layer, SwitchBackLinear


def replace_linear(
    model,
    layer=SwitchBackLinear,
    *,
    include=None,
    exclude=None,
    replaced=None,
    attention=False,
    **options,
):
    """Replaces the linear modules of a model, in place, and returns the model.

    The new modules use the Parameters of the old ones, so optimizers continue to work. They also get
    their hooks and training flag. Modules whose type is exactly nn.Linear are replaced, and the
    Conv1D of transformers (GPT-2), whose replacement is still a Conv1D with the weight [in, out]. A
    module that occurs several times is replaced by one module, selected by its first name. If the model
    itself is such a module, its replacement is returned. A UserWarning names selected modules that look
    linear but are not replaced: instances of subclasses of nn.Linear, and nn.MultiheadAttention.

    Args:
        layer: a class or function, called as layer(in_features, out_features, bias=...,
            device=..., dtype=..., **options). SwitchBackLinear without options is in mode "global", as
            in bitsandbytes; mode="rowwise" has smaller errors.
        include, exclude: names as of named_modules(), glob patterns for them ("blocks.*.mlp.*"),
            callables (name, module) -> bool, or a list of these. Default: all, and none.
        replaced: a list. The names of the replaced modules are appended to it.
        attention: whether nn.MultiheadAttention is replaced too, by SwitchBackMultiheadAttention,
            which computes its projections with such layers.

    ValueError, with nothing replaced, if a selected module computes its weight from other
    parameters (weight_norm, pruning), or has hooks on its state_dict. The same if its inputs are not
    a multiple of the rotation in the options.
    """
    selected: dict = {}
    left: dict = {}
    inside: set = set()  # modules whose parent computes them without calling them
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.MultiheadAttention):
            inside.update(module.children())
        if _is_ours(module) or module in inside:
            continue
        is_attention = type(module) is torch.nn.MultiheadAttention
        is_known = type(module) is torch.nn.Linear or is_conv1d(module)
        if not (is_known or is_attention or isinstance(module, torch.nn.Linear)):
            continue
        # Functions in include and exclude may read attributes of linear layers, so they get out_proj of an
        # attention.
        judged = module.out_proj if is_attention and not attention else module
        if not _selected(name, judged, include, exclude):
            continue
        if is_known:
            _check_replaceable(name, module)
            selected[module] = name
        elif is_attention and attention:
            _check_hooks(name, module)
            _check_replaceable(f"{name}.out_proj", module.out_proj)
            selected[module] = name
        else:
            left[module] = name
    _check_rotation(selected, options.get("rotation", 0))
    made = {old: _replacement(old, layer, options) for old in selected}
    for old in [old for old, new in made.items() if new is None]:
        left[old] = selected.pop(old)
        del made[old]
    _put(model, made)
    if replaced is not None:
        replaced.extend(selected.values())
    if left:
        _warn_of(left)
    elif not selected and include is not None:
        warnings.warn(
            f"replace_linear replaced nothing in {type(model).__name__}: no linear layer has a name that "
            f"include = {include!r} selects and exclude = {exclude!r} does not",
            stacklevel=2,
        )
    _warn_of_unknown(exclude, [name for name, _ in model.named_modules()])
    return made.get(model, model)


def replace_gelu(model, *, forms=_abi.ACTIVATIONS, include=None, exclude=None, replaced=None):
    """Replaces the modules of a model that compute GELU, in place, and returns the model.

    These are torch's GELU and transformers' GELUActivation, NewGELUActivation, FastGELUActivation and
    GELUTanh, with exactly these types. switchback.nn.GELU replaces them. It makes one pass over memory
    in each direction. In bfloat16 this is faster than torch's GELU in both forms. In float32 a forward
    of the erf form is slower, and forward and backward together are a little faster.

    Args:
        forms: the forms to replace, of "gelu_tanh" and "gelu_erf".
        include, exclude, replaced: as for replace_linear.
    """
    forms = (forms,) if isinstance(forms, str) else tuple(forms)
    for form in forms:
        if form not in _abi.ACTIVATIONS:
            raise InvalidArgument(
                f"replace_gelu: forms contains {form!r}; each must be {one_of(map(repr, _abi.ACTIVATIONS))}"
            )
    selected = {
        module: name
        for name, module in model.named_modules()
        if form_of(module) in forms and _selected(name, module, include, exclude)
    }
    for module, name in selected.items():
        _check_hooks(name, module, "replace_gelu")
    made = {}
    for old in selected:
        made[old] = GELU(form_of(old)).train(old.training)
        _take_hooks(made[old], old)
    _put(model, made)
    if replaced is not None:
        replaced.extend(selected.values())
    return made.get(model, model)


def _put(model, made: dict) -> None:
    """Puts each new module at every place in the model where its old module was."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child in made:
                parent._modules[name] = made[child]
    _encoders_call_layers(model)


def _encoders_call_layers(model) -> None:
    """Turns off torch's fast path for inference in encoder layers that contain switchback layers.

    The fast path reads the weights of linear1, linear2 and self_attn without calling these modules: it would
    compute in floating point, and prepared layers have no weight. It only handles layers whose attribute says
    that it supports their activation. No other code reads that attribute. This also turns off the nested
    tensors that nn.TransformerEncoder makes for the fast path.
    """
    layer, encoder = torch.nn.TransformerEncoderLayer, torch.nn.TransformerEncoder
    for module in model.modules():
        if not isinstance(module, (layer, encoder)) or not any(map(_is_ours, module.modules())):
            continue
        if isinstance(module, layer):
            module.activation_relu_or_gelu = 0
        else:
            module.enable_nested_tensor = module.use_nested_tensor = False


def _is_ours(module) -> bool:
    return isinstance(module, (Int8Layer, SwitchBackMultiheadAttention))


def prepare_for_eval(model):
    """Calls prepare_for_eval() of every switchback layer of a model, in place; returns the model.

    Tied weights stay tied. Layers that share a weight get the same codes. If a module of another
    kind uses the weight too (the embedding of a tied head), the weight stays, shared with that
    module. The codes are not added to state_dict, whose keys and size stay the same.
    """
    layers = [module for module in model.modules() if isinstance(module, Int8Layer)]
    if not layers:
        warnings.warn(
            f"prepare_for_eval: there is no switchback layer in {type(model).__name__}; call replace_linear "
            "first",
            stacklevel=2,
        )
    elif not any(MODES[module.mode].is_int8 for module in layers):
        modes = " and ".join(sorted({repr(module.mode) for module in layers}))
        warnings.warn(
            f"prepare_for_eval: the layers of {type(model).__name__} are in mode {modes}, which computes "
            "with float weights: nothing is prepared",
            stacklevel=2,
        )
    _prepared.prepare_model(model, Int8Layer)
    _encoders_call_layers(model)
    return model


def _warn_of_unknown(exclude, names) -> None:
    """Warns (UserWarning) of patterns in `exclude` that match no module, because they are probably mistyped.
    """
    rules = (exclude,) if isinstance(exclude, str) else exclude
    if rules is None or callable(rules):
        return
    for rule in rules:
        if isinstance(rule, str) and not any(fnmatch.fnmatchcase(name, rule) for name in names):
            warnings.warn(
                f"replace_linear: exclude = {rule!r} matches no module, so it "
                "excludes nothing",
                stacklevel=3,
            )


def _warn_of(left: dict) -> None:
    names = ", ".join(f"{name!r} ({type(module).__name__})" for module, name in left.items())
    hints = []
    if any(type(module) is torch.nn.MultiheadAttention for module in left):
        hints.append("attention=True replaces nn.MultiheadAttention")
    if any(isinstance(module, torch.nn.LazyLinear) for module in left):
        hints.append("run a batch through LazyLinear first, which makes it an nn.Linear")
    if any(is_conv1d(module) for module in left):
        hints.append("a Conv1D needs a layer that is a SwitchBackLinear")
    hints.append("to avoid this warning, exclude modules that should stay")
    warnings.warn(
        f"replace_linear did not replace {names}: only modules whose type is nn.Linear itself or "
        f"transformers' Conv1D are replaced; {'; '.join(hints)}",
        stacklevel=3,
    )


def _check_rotation(selected: dict, rotation: int) -> None:
    """Checks that the numbers of inputs of the selected modules are multiples of the rotation, if there is
    one."""
    odd = {}
    for module, name in selected.items():
        linear = module.out_proj if type(module) is torch.nn.MultiheadAttention else module
        inputs = linear.weight.shape[0 if is_conv1d(linear) else 1]
        if rotation in ROTATIONS and inputs % rotation:
            odd[name] = inputs
    if odd:
        name, inputs = next(iter(odd.items()))
        raise InvalidArgument(
            f"replace_linear: {name!r} has {inputs} inputs, which is not a multiple of rotation = {rotation}; "
            f"exclude such layers: {', '.join(map(repr, odd))}"
        )


def _check_replaceable(name: str, module) -> None:
    if set(module._parameters) != {"weight", "bias"}:
        raise ValueError(
            f"replace_linear: the parameters of {name!r} are {sorted(module._parameters)}; they must be "
            "weight and bias: remove weight_norm or pruning, or exclude it"
        )
    _check_hooks(name, module)


def _check_hooks(name: str, module, caller: str = "replace_linear") -> None:
    for kind, hooks in vars(module).items():
        if "state_dict" in kind and hooks:
            raise ValueError(
                f"{caller}: {name!r} has hooks in {kind}, which may keep a reference to it; remove them, or "
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
    """Creates the module that replaces `old`; None if `layer` does not create one for modules of its kind."""
    if is_conv1d(old):
        inner = _made(layer, *old.weight.shape, old.bias is not None, old.weight.dtype, options)
        return conv1d_like(old, inner) if isinstance(inner, Int8Layer) else None
    if type(old) is torch.nn.MultiheadAttention:
        out_proj = _replacement_of_linear(old.out_proj, layer, options)
        return attention_like(old, out_proj, out_proj) if isinstance(out_proj, Int8Layer) else None
    return _replacement_of_linear(old, layer, options)


def _replacement_of_linear(old, layer, options):
    bias, dtype = old.bias is not None, old.weight.dtype
    new = _made(layer, old.in_features, old.out_features, bias, dtype, options)
    new.weight, new.bias = old.weight, old.bias
    new.train(old.training)
    _take_hooks(new, old)
    return new


def _take_hooks(new, old) -> None:
    for name, value in vars(old).items():
        if "_hook" in name and "state_dict" not in name:
            vars(new)[name] = value


def _made(layer, in_features: int, out_features: int, bias: bool, dtype, options):
    # On the meta device nothing is allocated or initialised: the module gets the old module's parameters.
    return layer(in_features, out_features, bias=bias, device="meta", dtype=dtype, **options)
