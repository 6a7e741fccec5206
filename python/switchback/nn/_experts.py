# SPDX-License-Identifier: Apache-2.0
"""The experts of a mixture-of-experts model as grouped layers, and their insertion into transformers' models.
"""

from __future__ import annotations

import functools
import warnings

import torch

from .._errors import InvalidArgument
from .._tensors import needs_operator
from ._grouped import SwitchBackGroupedLinear, combine
from ._replace import _selected
from ._trace import as_leaf, is_traced

# The names that models use for the projections of a gated MLP, down(act(gate(x)) * up(x)).
_PARTS = ("gate_proj", "up_proj", "down_proj")
_NAMES = (_PARTS, ("w1", "w3", "w2"))
# Classes of transformers 4: mixture-of-experts blocks whose own forward loops over a plain list of experts.
_BLOCKS = (
    "MixtralSparseMoeBlock",
    "OlmoeSparseMoeBlock",
    "Qwen2MoeSparseMoeBlock",
    "Qwen3MoeSparseMoeBlock",
)


class SwitchBackExperts(torch.nn.Module):
    """Experts of a mixture: gated MLPs down(act(gate(x)) * up(x)), each for the tokens routed to it.

    It replaces the list of experts in a model: see replace_experts. Its layers are
    SwitchBackGroupedLinear: gate_proj, up_proj and down_proj, or gate_up_proj and down_proj.

    Args:
        experts, hidden_features, intermediate_features: the number of experts, the features of x, and the
            features between the projections.
        bias, device, dtype: as for SwitchBackGroupedLinear.
        activation: a function of a tensor.
        fused: gate and up are one layer, with the rows of gate first.
        options: mode, rotation, dw and dw_block_rows: as for SwitchBackGroupedLinear, for all layers.
    """

    def __init__(
        self,
        experts: int,
        hidden_features: int,
        intermediate_features: int,
        *,
        bias: bool = False,
        activation=torch.nn.functional.silu,
        fused: bool = False,
        device=None,
        dtype=None,
        **options,
    ):
        super().__init__()
        options.update(bias=bias, device=device, dtype=dtype)
        make = functools.partial(SwitchBackGroupedLinear, experts, **options)
        self.experts = experts
        if fused:
            self.gate_up_proj = make(hidden_features, 2 * intermediate_features)
        else:
            self.gate_proj = make(hidden_features, intermediate_features)
            self.up_proj = make(hidden_features, intermediate_features)
        self.down_proj = make(intermediate_features, hidden_features)
        self.activation = activation

    def forward(self, hidden_states, top_k_index, top_k_weights):
        """The sum over the k chosen experts of a token of weight * expert(token), in order of choice.

        hidden_states[..., H]; top_k_index[T,k], from 0 to the number of experts, which means no
        expert; top_k_weights[T,k]. The sum is in float32 and rounded once to the type of the hidden
        states.
        """
        if is_traced(hidden_states):
            return as_leaf(self, hidden_states, top_k_index, top_k_weights)
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        self._check(x, top_k_index, top_k_weights)
        offs, token, slots = self._route(top_k_index)
        if hasattr(self, "gate_up_proj"):
            both = self.gate_up_proj.forward_slots(x, offs, token, slots)
            gate, up = both.chunk(2, -1)
        else:
            gate = self.gate_proj.forward_slots(x, offs, token, slots)
            up = self.up_proj.forward_slots(x, offs, token, slots)
        y = self.down_proj(self.activation(gate) * up, offs)
        return combine(y, slots, top_k_weights.float()).reshape(hidden_states.shape)

    def _check(self, x, index, weights) -> None:
        if index.dim() != 2 or index.shape[0] != x.shape[0] or weights.shape != index.shape:
            raise InvalidArgument(
                f"SwitchBackExperts: top_k_index has shape {tuple(index.shape)} and top_k_weights "
                f"{tuple(weights.shape)}; both must be [T,k] for the T = {x.shape[0]} hidden states"
            )
        if index.dtype not in (torch.int32, torch.int64):
            raise TypeError(
                f"SwitchBackExperts: top_k_index has dtype {index.dtype}; it must be torch.int32 or "
                "torch.int64"
            )
        # Under a compiler the values of the index are not known, and on a device the host would wait for
        # them.
        if not needs_operator(x, index) and index.device.type == "cpu" and index.numel():
            low, high = int(index.min()), int(index.max())
            if low < 0 or high > self.experts:
                raise InvalidArgument(
                    f"SwitchBackExperts: top_k_index is from {low} to {high}; it must be from 0 to "
                    f"{self.experts}, the number of experts, which means no expert"
                )

    def _route(self, top_k_index):
        """Returns the ends of the experts' rows, the token of each row, and the rows of each token.

        Rows are sorted by expert, and within an expert by token. The host does not wait for the device.
        """
        tokens, choices = top_k_index.shape
        flat = top_k_index.detach().reshape(-1)
        experts, order = torch.sort(flat, stable=True)
        numbers = torch.arange(self.experts, dtype=flat.dtype, device=flat.device)
        offs = torch.searchsorted(experts, numbers, right=True, out_int32=True)
        token = torch.div(order, max(choices, 1), rounding_mode="floor").to(torch.int32)
        slots = torch.empty_like(order, dtype=torch.int32)
        slots[order] = torch.arange(order.numel(), dtype=torch.int32, device=flat.device)
        slots = torch.where(slots < offs[-1], slots, torch.full_like(slots, -1))
        return offs, token, slots.view(tokens, choices)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        """Loads a state_dict, also with the weights of a list of experts: "0.gate_proj.weight" or
        "0.w1.weight"."""
        for names in _NAMES:
            for name, part in zip(names, _PARTS):
                for kind in ("weight", "bias"):
                    keys = [f"{prefix}{i}.{name}.{kind}" for i in range(self.experts)]
                    if hasattr(self, part) and all(key in state_dict for key in keys):
                        stacked = torch.stack([state_dict.pop(key) for key in keys])
                        state_dict[f"{prefix}{part}.{kind}"] = stacked
        super()._load_from_state_dict(state_dict, prefix, *rest)


def replace_experts(model, *, include=None, exclude=None, replaced=None, **options):
    """Replaces the experts of a model's mixtures by SwitchBackExperts, in place; returns the model.

    It recognises lists of gated MLPs of one shape, whose nn.Linears are gate_proj, up_proj and
    down_proj, or w1, w3 and w2. It also recognises modules that hold gate_up_proj[E,2I,H], with the rows
    of gate first, and down_proj[E,H,I]. They must compute down(act_fn(gate(x)) * up(x)).

    Their caller must pass (hidden_states, top_k_index, top_k_weights), as the models of
    transformers do since 4.57. In older versions the blocks of Mixtral, OLMoE, Qwen2-MoE and Qwen3-MoE
    loop over a plain list; there the block's forward is replaced too. A UserWarning names
    other plain lists of gated MLPs, which are not replaced.

    The weights of a list are copied into new Parameters [E,out,in], so create optimizers afterwards. A
    state_dict of the list still loads. Modules that already hold this form keep their Parameters.

    Args:
        include, exclude, replaced: as for replace_linear, of lists and modules of experts.
        options: as for SwitchBackExperts.

    ValueError, with nothing replaced, if experts have hooks, or if their features are not a multiple of
    the rotation in the options.
    """
    parents = {}
    for parent in model.modules():
        for child in parent._modules.values():
            parents.setdefault(child, []).append(parent)
    made, names, left, blocks = {}, [], [], []
    for name, module in model.named_modules():
        form = _form_of(module)
        if form is None or not _selected(name, module, include, exclude):
            continue
        loops = type(module) is torch.nn.ModuleList
        above = parents.get(module, ())
        if loops and not (above and all(_is_known_block(parent) for parent in above)):
            left.append(name)
            continue
        _check_no_hooks(name, module)
        made[module] = form
        names.append(name)
        blocks += above if loops else ()
    made = {module: make(module, options) for module, make in made.items()}
    for module, new in made.items():
        new.train(module.training)
        for parent in parents.get(module, ()):
            for name, child in parent._modules.items():
                if child is module:
                    parent._modules[name] = new
    for block in blocks:
        block.__class__ = _routed_class(type(block))
    if replaced is not None:
        replaced.extend(names)
    if left:
        warnings.warn(
            f"replace_experts did not replace {', '.join(map(repr, left))}: their caller loops over them "
            "and is not a supported block; pass the tokens, top_k_index and top_k_weights to a "
            "SwitchBackExperts there, or exclude these experts",
            stacklevel=2,
        )
    return made.get(model, model)


def _form_of(module):
    """Returns the function that creates the replacement of a module of experts; None for other modules."""
    if isinstance(module, torch.nn.ModuleList):
        names = [_gated_names(expert) for expert in module]
        if not names or names[0] is None or any(found != names[0] for found in names):
            return None
        shapes = {tuple(_form_of_linear(getattr(e, n)) for n in names[0]) for e in module}
        kinds = {type(getattr(e, "act_fn", None)) for e in module}
        return functools.partial(_of_list, names[0]) if len(shapes) == len(kinds) == 1 else None
    parameters = module._parameters
    if set(parameters) != {"gate_up_proj", "down_proj"} or module._modules.keys() - {"act_fn"}:
        return None
    both, down = parameters["gate_up_proj"], parameters["down_proj"]
    if both is None or down is None or both.dim() != 3 or down.dim() != 3:
        return None
    experts, width, hidden = both.shape
    fits = width % 2 == 0 and down.shape == (experts, hidden, width // 2)
    known = callable(getattr(module, "act_fn", None)) and both.dtype is down.dtype
    return _of_parameters if fits and known and _has_plain_form(module) else None


def _has_plain_form(module) -> bool:
    """Whether a module of experts has the plain form: no attribute names another layout or another gate
    formula."""
    said = {"is_transposed": False, "is_concatenated": True, "has_gate": True, "has_bias": False}
    if any(getattr(module, name, plain) != plain for name, plain in said.items()):
        return False
    gate = getattr(type(module), "_apply_gate", None)
    return gate is None or gate.__name__ == "_default_apply_gate"


def _gated_names(expert):
    """The names of the gate, up and down projections in a gated MLP; None for other modules."""
    for names in _NAMES:
        parts = [expert._modules.get(name) for name in names]
        others = expert._modules.keys() - set(names) - {"act_fn"}
        if all(type(part) is torch.nn.Linear for part in parts) and not others:
            gate, up, down = (part.weight for part in parts)
            fits = gate.shape == up.shape == down.shape[::-1]
            biases = {part.bias is None for part in parts}
            return names if fits and len(biases) == 1 and not expert._parameters else None
    return None


def _form_of_linear(part) -> tuple:
    return part.weight.shape, part.weight.dtype, part.weight.device, part.bias is None


def _of_list(names, old, options: dict):
    first = getattr(old[0], names[0])
    made = SwitchBackExperts(
        len(old),
        first.in_features,
        first.out_features,
        bias=first.bias is not None,
        activation=getattr(old[0], "act_fn", torch.nn.functional.silu),
        device="meta",
        dtype=first.weight.dtype,
        **options,
    )
    for name, part in zip(names, _PARTS):
        layer = getattr(made, part)
        for kind in ("weight", "bias"):
            given = [getattr(getattr(expert, name), kind) for expert in old]
            if given[0] is not None:
                stacked = torch.stack([parameter.detach() for parameter in given])
                trains = any(parameter.requires_grad for parameter in given)
                setattr(layer, kind, torch.nn.Parameter(stacked, requires_grad=trains))
    return made


def _of_parameters(old, options: dict):
    experts, width, hidden = old.gate_up_proj.shape
    made = SwitchBackExperts(
        experts,
        hidden,
        width // 2,
        activation=old.act_fn,
        fused=True,
        device="meta",
        dtype=old.gate_up_proj.dtype,
        **options,
    )
    made.gate_up_proj.weight, made.down_proj.weight = old.gate_up_proj, old.down_proj
    return made


def _check_no_hooks(name: str, module) -> None:
    for inner, part in module.named_modules():
        for kind, hooks in vars(part).items():
            if "_hook" in kind and hooks and hasattr(hooks, "__len__"):
                where = f"{name}.{inner}" if inner else name
                raise ValueError(
                    f"replace_experts: {where!r} has hooks in {kind}, which would no longer be called; "
                    "remove them, or exclude it"
                )


def _is_known_block(block) -> bool:
    gate = block._modules.get("gate")
    return (
        type(block).__name__ in _BLOCKS
        and isinstance(gate, torch.nn.Linear)
        and gate.out_features == len(getattr(block, "experts", ()))
        and isinstance(getattr(block, "top_k", None), int)
    )


class _Routed:
    """A mixin for the class of a known mixture-of-experts block: its forward, with all experts in one call.
    """

    def forward(self, hidden_states):
        """Returns the block's output and the router's logits."""
        if self.training and getattr(self, "jitter_noise", 0) > 0:
            noise = torch.empty_like(hidden_states)
            noise.uniform_(1.0 - self.jitter_noise, 1.0 + self.jitter_noise)
            hidden_states = hidden_states * noise
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        logits = self.gate(x)
        weights = torch.softmax(logits, 1, dtype=torch.float32)
        weights, chosen = torch.topk(weights, self.top_k, -1)
        if getattr(self, "norm_topk_prob", True):
            weights = weights / weights.sum(-1, keepdim=True)
        y = self.experts(x, chosen, weights.to(x.dtype))
        if hasattr(self, "shared_expert"):
            y = y + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return y.reshape(hidden_states.shape), logits

    def __reduce_ex__(self, protocol):
        return _new_routed, (type(self).__bases__[1],), self.__dict__


@functools.cache
def _routed_class(kind: type) -> type:
    return type("SwitchBack" + kind.__name__, (_Routed, kind), {"__module__": __name__})


def _new_routed(kind: type):
    made = _routed_class(kind)
    return made.__new__(made)
