# SPDX-License-Identifier: Apache-2.0
"""Computes layers that read the same input, such as the projections of attention, as one layer."""

from __future__ import annotations

import threading
import warnings
import weakref

import torch
from torch.autograd import Function, forward_ad

from .._modes import MODES, names_where
from .._tensors import (
    PLAIN_TYPES,
    autocast_dtype,
    in_transform,
    is_compiling,
    key_of,
    memory_of,
    needs_operator,
)
from ._function import check_dtypes, checked_wide_input, forward_pass, gradients, kept_form
from ._layer import LayerSet
from ._once import differentiable_once
from ._wanted import wanted_gradients
from .linear import Int8Layer

# The names of attention projections that read the same input, in transformers' and diffusers' models.
PROJECTIONS = (("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), ("to_q", "to_k", "to_v"))


def fuse_qkv(model, *, names=PROJECTIONS, fused=None):
    """Computes the query, key and value layers of a model as one layer if they read the same tensor.

    In place; returns the model. The input is quantized once, and its gradient is one product and not a
    sum of three. y, dW and db keep the bits of separate layers. dX is that of one layer with all the
    outputs: it is rounded once, and not three times.

    The modules, their names, Parameters and hooks stay. The first layer that gets an input computes
    for all. The other layers return their part if they get the same tensor, unchanged. Otherwise,
    in compiled models and with torch.func, they compute separately. Layers whose inputs keep differing
    (cross-attention) compute separately after a few calls. The weights are moved once, so that they are
    adjacent in memory. If model.to(...), load_state_dict with assign=True, or deepcopy moves them, call
    fuse_qkv again: until then the layers compute separately.

    Args:
        names: tuples of names of a module's children to fuse, one tuple for each kind of module.
        fused: a list. The names of the modules that hold fused layers are appended to it.
    """
    left = []
    for name, parent in model.named_modules():
        for children in names:
            layers = [parent._modules.get(child) for child in children]
            if not all(isinstance(layer, Int8Layer) for layer in layers):
                continue
            reason = _why_not(layers)
            if reason:
                left.append(f"{name or type(parent).__name__!r} ({reason})")
                continue
            _join(layers)
            if fused is not None:
                fused.append(name)
    if left:
        warnings.warn(f"fuse_qkv did not fuse {', '.join(left)}", stacklevel=2)
    return model


def _why_not(layers) -> str:
    first = layers[0]
    if len(set(map(id, layers))) < len(layers):
        return "a layer appears twice"
    if any(layer.is_prepared for layer in layers):
        return "a layer is prepared for inference"
    if any(type(layer._parameters.get("weight")) is not torch.nn.Parameter for layer in layers):
        return "a weight is not a plain Parameter"
    if any(layer._layers.is_empty for layer in layers):
        return "a layer has no inputs or no outputs"
    if not MODES[first.mode].of_rows:
        return f"mode {first.mode!r}; it must be {names_where(lambda each: each.of_rows)}"
    if first.rounding != "nearest" or first.transposed:
        return "stochastic rounding" if first.rounding != "nearest" else "weights [in, out]"
    for name in ("in_features", "mem_efficient"):
        if len({getattr(layer, name) for layer in layers}) > 1:
            return f"layers with different {name}"
    if len({layer._options() for layer in layers}) > 1:
        return "layers with different options"
    if len({layer.bias is None for layer in layers}) > 1:
        return "a bias is missing"
    parameters = [p for layer in layers for p in (layer.weight, layer.bias) if p is not None]
    if len({(p.dtype, p.device) for p in parameters}) > 1 or parameters[0].is_meta:
        return "parameters with different dtypes or devices, or on the meta device"
    if any(p.is_shared() and p.device.type == "cpu" for p in parameters):
        return "parameters in memory that several processes share"
    return ""


def _join(layers) -> None:
    with torch.no_grad():
        for tensors in ([m.weight for m in layers], [m.bias for m in layers]):
            if tensors[0] is not None and _together(tensors) is None:
                whole, at = torch.cat([tensor.detach() for tensor in tensors]), 0
                for tensor in tensors:
                    tensor.data = _rows(whole, at, len(tensor))
                    at += len(tensor)
    joined = Joined(layers)
    for layer in layers:
        layer._joined = joined


def _rows(whole, begin: int, count: int):
    """Rows of a tensor, whole[begin:begin+count], as a tensor that is not a view, so that it can be changed
    in place."""
    part = torch.empty(0, dtype=whole.dtype, device=whole.device)
    at = whole.storage_offset() + begin * whole.stride(0)
    return part.set_(_storage(whole), at, (count, *whole.shape[1:]), whole.stride())


def _columns(whole, begin: int, count: int):
    """Columns of a tensor, whole[..., begin:begin+count], as a tensor that is not a view."""
    part = torch.empty(0, dtype=whole.dtype, device=whole.device)
    at = whole.storage_offset() + begin
    return part.set_(_storage(whole), at, (*whole.shape[:-1], count), whole.stride())


def _storage(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _together(tensors):
    """Joins tensors to one without a copy; None unless they are adjacent in one storage."""
    first = tensors[0]
    at = first.data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != at or not tensor.is_contiguous() or tensor.dtype is not first.dtype:
            return None
        at += tensor.numel() * tensor.element_size()
    # Tensors that are adjacent in memory may still belong to different storages.
    storage = _storage(first)
    if at > storage.data_ptr() + storage.nbytes():
        return None
    rows = sum(map(len, tensors))
    with torch.inference_mode(False), torch.no_grad():
        whole = torch.empty(0, dtype=first.dtype, device=first.device)
        return whole.set_(storage, first.storage_offset(), (rows, *first.shape[1:]), first.stride())


# A function that returns the hooks for saved tensors, which checkpointing sets; None for a torch without it.
_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


class Joined:
    """Layers with the same input. One call computes all their outputs; each is kept until its layer has
    read it."""

    # If some layer did not read this number of inputs in a row, the layers compute separately from then on.
    ENOUGH = 3

    def __init__(self, members):
        self.members = list(members)
        first = self.members[0]
        self.sizes = [member.out_features for member in self.members]
        self.layers = LayerSet(first.in_features, sum(self.sizes), first._options())
        self._clear()

    def _clear(self) -> None:
        self._local = threading.local()
        self._unread = 0
        self._apart = False  # whether the layers compute separately from now on
        self._graphs: weakref.WeakSet = weakref.WeakSet()  # recorded forwards that a checkpoint may repeat
        self._whole: tuple = (None, None, None)
        self._versions: tuple = ()

    def __getstate__(self):
        return self.members, self.sizes, self.layers

    def __setstate__(self, state):
        self.members, self.sizes, self.layers = state
        self._clear()

    def weight_updated(self) -> None:
        self.layers.weight_updated()
        self._local = threading.local()

    def release(self) -> None:
        self.layers.release()
        self._clear()

    def forward(self, member, x):
        """Returns y of the layer `member`; None if that layer must compute separately."""
        if (
            self._apart
            or is_compiling()
            or type(x) not in PLAIN_TYPES
            or in_transform()
            or needs_operator(x)
            or torch.jit.is_tracing()
            or getattr(forward_ad, "_current_level", -1) >= 0
            or key_of(x)[0] < 0
        ):
            return None
        weights = [each._parameters.get("weight") for each in self.members]
        biases = [each._parameters.get("bias") for each in self.members]
        if any(type(weight) is not torch.nn.Parameter for weight in weights):
            return None
        if any((bias is None) != (biases[0] is None) for bias in biases):
            return None
        place = self.members.index(member)
        parameters = weights if biases[0] is None else weights + biases
        state = (
            x._version,
            x.requires_grad,
            torch.is_grad_enabled(),
            autocast_dtype(x.device.type),
            [(p._version, p.data_ptr(), p.requires_grad) for p in parameters],
        )
        waiting = getattr(self._local, "waiting", None)
        if waiting is not None and waiting.x() is x and waiting.state == state:
            y = waiting.take(place)
            if y is not None:
                if waiting.is_read:
                    self._local.waiting, self._unread = None, 0
                return y
        if waiting is not None:
            self._unread += not waiting.is_read
            waiting = self._local.waiting = None  # also frees the autograd graph that it holds
            # A checkpoint that repeats its forward must save the same tensors as the first time, so the
            # layers stay joined.
            if self._unread >= self.ENOUGH and not self._graphs:
                self._apart = True
                return None
        whole = self.whole(weights)
        bias = None if biases[0] is None else _together(biases)
        if whole is None or (bias is None) != (biases[0] is None):
            return None
        waiting = _Waiting(x, state)
        waiting.ys = list(self._compute(x, whole, bias, weights, biases, waiting))
        y = waiting.take(place)
        self._local.waiting = waiting
        return y

    def whole(self, weights):
        """The weights of all layers as one tensor; None unless they are adjacent in memory."""
        key = [weight.data_ptr() for weight in weights], weights[0].dtype
        if self._whole[:2] != key:
            self._whole = (*key, _together(weights))
        return self._whole[2]

    def _compute(self, x, whole, bias, weights, biases, waiting):
        layers, mem_efficient = self.layers, self.members[0].mem_efficient
        x, dtype = checked_wide_input(x, whole, layers)
        check_dtypes(x, whole)
        # The version counters of the joined tensors do not count changes of the Parameters, so these are
        # compared.
        versions = tuple(p._version for p in (*weights, *biases) if p is not None)
        if versions != self._versions:
            self._versions = versions
            layers.updates += 1
        recorded = torch.is_grad_enabled() and (
            x.requires_grad or any(p is not None and p.requires_grad for p in (*weights, *biases))
        )
        if not recorded:
            return self._parts(forward_pass(x, whole, bias, layers, None, dtype)[0])
        wants_dw = any(weight.requires_grad for weight in weights)
        if x.dtype is not dtype and wants_dw and not (layers.keeps_blocks or mem_efficient):
            x = x.to(dtype)  # one cast for forward and backward, and less memory is kept
        call = self, mem_efficient, dtype, whole, bias, waiting
        given = weights if bias is None else (*weights, *biases)
        return _Joined.apply(x, call, *given)

    def _new_graph(self):
        """If a checkpoint is on, returns an object that lives until the backward of a recorded forward;
        else None."""
        graph = None
        if _hooks is not None and _hooks(True) is not None:
            graph = _Graph()
            self._graphs.add(graph)
        return graph

    def _parts(self, y):
        parts, at = [], 0
        for size in self.sizes:
            parts.append(_columns(y, at, size))
            at += size
        return tuple(parts)


class _Graph:
    """Stands for a recorded forward that a checkpoint may compute again."""


class _Waiting:
    """The outputs of one joined call that some layers have not read yet."""

    def __init__(self, x, state):
        self.x, self.state = weakref.ref(x), state
        self.ys: list = []

    def take(self, place: int):
        y, self.ys[place] = self.ys[place], None
        return y

    @property
    def is_read(self) -> bool:
        return all(y is None for y in self.ys)


def _is_product_of_two(ctx) -> bool:
    """Whether dx depends on a weight that requires a gradient, or the gradient of a weight on such an x."""
    of_x, _, *of_parameters = ctx.needs_input_grad
    return of_x and any(of_parameters[: len(ctx.call[0].sizes)])


class _Joined(Function):
    """The joined layers as an autograd function, like _Linear in _function.py but with several weights."""

    @staticmethod
    def forward(ctx, x, call, *parameters):
        joined, mem_efficient, dtype, whole, bias, waiting = call
        count, layers = len(joined.sizes), joined.layers
        wants_dx, wants_dw = ctx.needs_input_grad[0], any(ctx.needs_input_grad[2 : 2 + count])
        keeps = kept_form(layers, mem_efficient, wants_dw)
        y, codes, absmax, layer = forward_pass(x, whole, bias, layers, keeps, dtype)
        ctx.set_materialize_grads(False)
        ctx.call = joined, dtype, whole.dtype, None if bias is None else bias.dtype, layer
        ctx.graph = joined._new_graph()
        # Backward clears the outputs that are still waiting, because they then have no graph.
        ctx.waiting = weakref.ref(waiting)
        kept_x = x if wants_dw and codes is None else None
        ctx.save_for_backward(kept_x, codes, absmax, *(parameters[:count] if wants_dx else ()))
        return joined._parts(y)

    @staticmethod
    @differentiable_once(lambda ctx: str(ctx.call[0].layers), _is_product_of_two)
    def backward(ctx, *grads):
        x, codes, absmax, *weights = ctx.saved_tensors
        joined, dtype, of_weight, of_bias, layer = ctx.call
        count, layers = len(joined.sizes), joined.layers
        ctx.graph = None
        waiting = ctx.waiting()
        if waiting is not None:
            waiting.ys = [None] * count
        wanted = wanted_gradients(ctx)
        some = next((g for g in grads if g is not None), None)
        if some is None:
            return (None,) * len(wanted)
        shape = some.shape[:-1]
        given = []
        for g, size in zip(grads, joined.sizes):
            if g is None:
                given.append(some.new_zeros((*shape, size), dtype=dtype))
            else:
                g = memory_of(g, "backward", "the gradient")
                given.append(g if g.dtype is dtype else g.to(dtype))
        whole = None
        if wanted[0]:
            whole = joined.whole(weights)
            if whole is None:
                whole = torch.cat([weight.detach() for weight in weights])
        wants = wanted[0], any(wanted[2 : 2 + count]), any(wanted[2 + count :])
        dx, dw, db = gradients(
            torch.cat(given, -1),
            (*shape, layers.in_features),
            (x, whole, codes, absmax),
            wants,
            (of_weight, of_bias),
            layers,
            layer,
        )
        of_parameters = []
        for place, wants_it in enumerate(wanted[2:]):
            of_all = dw if place < count else db
            place %= count
            at = sum(joined.sizes[:place])
            is_used = wants_it and grads[place] is not None
            of_parameters.append(_rows(of_all, at, joined.sizes[place]) if is_used else None)
        return dx, None, *of_parameters
