# SPDX-License-Identifier: Apache-2.0
"""Weights for FSDP2 (torch.distributed.fsdp.fully_shard) that are gathered as int8 codes.

Each process keeps a float shard, rows of the weight. When FSDP gathers the weight, each process
quantizes its shard and sends codes. The gathered codes are those of the whole weight, to the bit.
The scale of a row is local. The largest magnitude of a column or of the whole weight is reduced over
the processes before the shards are quantized.
"""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from .._errors import InvalidArgument, InvalidState, Unsupported
from .._tensors import HAS_OPERATORS
from . import _function
from ._options import LayerOptions
from ._shards import largest, with_row
from .linear import Int8Layer


def shard_int8(model, *, lean: bool = False):
    """Lets FSDP2 gather the weights of a model's layers as int8 codes; returns the model.

    Call it before fully_shard. Layers in mode global send one byte per element in each gather. Layers
    in mode rowwise send two: codes with scales per row for forward, and with scales per column for
    the gradient of the input. lean: each forward and each backward sends only the codes that it reads. This
    needs reshard_after_forward=True and no checkpointing; other uses raise InvalidState.

    Results do not depend on the number of processes: they are those of the layer with the whole
    weight. Optimizers and checkpoints see the float shards.
    """
    if not HAS_OPERATORS:
        raise Unsupported("shard_int8: it needs torch 2.4 or later")
    done: dict = {}
    for module in model.modules():
        if not isinstance(module, Int8Layer) or module.is_prepared:
            continue
        if module.mode not in ("rowwise", "global"):
            continue
        if module.rotation or module.dw != "floating":
            raise Unsupported(
                f"shard_int8: a layer has rotation={module.rotation} and dw={module.dw!r}; weights that "
                "are gathered as codes need rotation=0 and dw='floating'"
            )
        if module.rounding != "nearest":
            raise Unsupported(
                f"shard_int8: a layer has rounding={module.rounding!r}; weights that are gathered as "
                "codes need 'nearest'"
            )
        weight = module.weight
        if type(weight) is not torch.nn.Parameter:
            raise InvalidArgument(
                f"shard_int8: a layer's weight is a {type(weight).__name__}; it must be a plain "
                "parameter: call shard_int8 once, and before fully_shard"
            )
        if module._weight_rows() is not weight:
            continue  # transposed (Conv1D): FSDP gathers it in floating point
        if weight not in done:
            shard = ShardedWeight(weight.detach(), module.mode, lean)
            done[weight] = torch.nn.Parameter(shard, requires_grad=weight.requires_grad)
        module.weight = done[weight]
    return model


class _Wrapper(torch.Tensor):
    """Base of tensors that represent other tensors. `_layer_operator` handles the operators of switchback
    layers."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        found = _OPERATORS.get(func)
        if found is not None:
            return found(*args, **(kwargs or {}))
        return cls._other(func, args, kwargs or {})


class ShardedWeight(_Wrapper):
    """A float weight, or a shard of its rows, with the functions through which FSDP gathers it."""

    @staticmethod
    def __new__(cls, tensor, mode: str, lean: bool):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            tensor.size(),
            strides=tensor.stride(),
            storage_offset=tensor.storage_offset(),
            dtype=tensor.dtype,
            layout=tensor.layout,
            device=tensor.device,
            requires_grad=tensor.requires_grad,
        )

    def __init__(self, tensor, mode: str, lean: bool):
        self._tensor, self._mode, self._lean = tensor, mode, lean

    def __tensor_flatten__(self):
        return ["_tensor"], (self._mode, self._lean)

    @staticmethod
    def __tensor_unflatten__(inner, context, outer_size, outer_stride):
        return ShardedWeight(inner["_tensor"], *context)

    def __repr__(self):
        return f"ShardedWeight({self._tensor}, mode={self._mode!r}, lean={self._lean})"

    @classmethod
    def _other(cls, func, args, kwargs):
        """Runs an operator that is not a layer's on the float tensors. Those in _KEEP return a ShardedWeight.
        """
        first = next(t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, cls))
        plain = pytree.tree_map_only(cls, lambda t: t._tensor, (args, kwargs))
        result = func(*plain[0], **plain[1])
        if func._schema.is_mutable:  # an in-place operator returns the caller's tensors
            return args[0] if isinstance(result, torch.Tensor) else result
        if func.overloadpacket in _KEEP:
            return pytree.tree_map_only(
                torch.Tensor, lambda t: ShardedWeight(t, first._mode, first._lean), result
            )
        return result

    def fsdp_pre_all_gather(self, mesh, outer_size, outer_stride, module, mp_policy):
        """Called by FSDP: returns the tensors that this process sends, and the metadata to use them."""
        group, world = mesh.get_group(), mesh.size()
        dtype = mp_policy.param_dtype or self.dtype
        rows, cols = -(-outer_size[0] // world), outer_size[1]
        shard = self._tensor.to(dtype)
        backward = torch._C._current_graph_task_id() != -1
        scales = None
        if self._mode == "global":
            scales = largest(
                shard.abs().amax().reshape(1) if len(shard) else shard.new_zeros(1), group
            )
            sent = [_padded(with_row(shard, scales.expand(cols)).t(), rows)]
            held = "both"
        else:
            sent, held = [], "both"
            if self._lean:
                held = "backward" if backward else "forward"
            if held != "backward":
                codes, absmax = _codes_rowwise(shard)
                sent.append(_padded(codes, rows))
                scales = _gathered_scales(_padded(absmax, rows), outer_size[0], group, world)
            if held != "forward":
                of_columns = largest(_column_absmax(shard, cols), group)
                sent.append(_padded(with_row(shard, of_columns).t(), rows))
                scales = (scales, of_columns)
            else:
                scales = (scales, None)
        return tuple(sent), (self._mode, held, scales, outer_size)

    def fsdp_post_all_gather(self, all_gather_outputs, metadata, param_dtype, *, out=None):
        """Called by FSDP: returns the gathered weight. `out` is that of the previous gather; its memory is
        used again."""
        mode, held, scales, size = metadata
        whole = [codes[: size[0]] for codes in all_gather_outputs]
        forward = whole[0] if held != "backward" else None
        backward = whole[-1] if held != "forward" else None
        if mode == "global":
            of_rows = of_columns = scales
        else:
            of_rows, of_columns = scales
        parts = (forward, of_rows, backward, of_columns)
        if out is not None:
            weight = out.data if isinstance(out, torch.nn.Parameter) else out
            for holder in (out, weight):
                if isinstance(holder, GatheredWeight):
                    holder.parts = parts
            return None
        return GatheredWeight(parts, mode, param_dtype, size, whole[0].device), ()


class GatheredWeight(_Wrapper):
    """A gathered weight as int8 codes: with one scale, or with a scale per row for forward and per column
    for dX."""

    @staticmethod
    def __new__(cls, parts, mode: str, dtype, size, device):
        return torch.Tensor._make_wrapper_subclass(cls, tuple(size), dtype=dtype, device=device)

    def __init__(self, parts, mode: str, dtype, size, device):
        self._parts = [parts]  # shared with the aliases that FSDP and autograd create
        self._mode = mode

    @property
    def parts(self):
        return self._parts[0]

    @parts.setter
    def parts(self, parts):
        self._parts[0] = parts

    def __repr__(self):
        return f"GatheredWeight({tuple(self.shape)}, mode={self._mode!r})"

    def _alias(self):
        made = GatheredWeight(None, self._mode, self.dtype, self.shape, self.device)
        made._parts = self._parts
        return made

    @classmethod
    def _other(cls, func, args, kwargs):
        size = args[1] if len(args) > 1 else args[0].shape
        if func.overloadpacket in _ALIASES and tuple(size) == tuple(args[0].shape):
            return args[0]._alias()
        raise Unsupported(
            f"switchback: {func} of a weight that was gathered as int8 codes; only its layer can use it "
            "(shard_int8)"
        )


def _check_options(options: str) -> None:
    if LayerOptions.parse(options).activation:
        raise Unsupported(
            f"forward: options = {options!r} with a weight that was gathered as int8 codes; apply the "
            "activation before the layer"
        )


def _part(weight: GatheredWeight, forward: bool):
    codes, absmax = weight.parts[:2] if forward else weight.parts[2:]
    if codes is None:
        raise InvalidState(
            f"{'forward' if forward else 'backward'}: the weight was gathered for the other pass; with "
            "reshard_after_forward=False or checkpointing use shard_int8(model, lean=False)"
        )
    return codes, absmax


# ---- Codes of shards, with the scales of the whole weight


def _gathered_scales(absmax, rows: int, group, world: int):
    parts = absmax.new_empty(world * absmax.numel())
    torch.distributed.all_gather_into_tensor(parts, absmax, group=group)
    return parts[:rows]


def _column_absmax(shard, cols: int):
    return shard.abs().amax(0).float() if len(shard) else shard.new_zeros(cols, dtype=torch.float32)


def _codes_rowwise(shard):
    if len(shard) == 0:
        return shard.new_empty(shard.shape, dtype=torch.int8), shard.new_empty(
            0, dtype=torch.float32
        )
    return _function.quantize_rowwise(shard)


def _padded(tensor, rows: int):
    if tensor.shape[0] == rows:
        return tensor.contiguous()
    made = tensor.new_zeros((rows, *tensor.shape[1:]))
    made[: tensor.shape[0]] = tensor
    return made


# ---- The operators of switchback layers for these weights


def _rows_of(x):
    return x.reshape(-1, x.shape[-1])


def _product(x, codes, absmax, bias, q=None):
    y = x.new_empty((*x.shape[:-1], codes.shape[0]))
    if y.numel():
        q, scale = _function.quantize_rowwise(_rows_of(x)) if q is None else q
        y = _function.gemm_dequantize(q, codes, scale, absmax, bias, x.dtype).view(y.shape)
    return y


def _linear(x, weight, bias, options):
    if isinstance(weight, ShardedWeight):
        return torch.ops.switchback.linear(x, weight._tensor, bias, options)
    _check_options(options)
    return _product(x, *_part(weight, forward=True), bias)


def _linear_codes(x, weight, bias, options):
    if isinstance(weight, ShardedWeight):
        return torch.ops.switchback.linear_codes(x, weight._tensor, bias, options)
    q = torch.ops.switchback.quantize_rowwise(_rows_of(x))
    return _product(x, *_part(weight, forward=True), bias, q), *q


def _linear_backward(g, x, codes, absmax, weight, of_weight, of_bias, options):
    backward = torch.ops.switchback.linear_backward
    if isinstance(weight, ShardedWeight):
        return backward(g, x, codes, absmax, weight._tensor, of_weight, of_bias, options)
    dx = g.new_empty((*g.shape[:-1], weight.shape[1]))
    if g.numel():
        its_codes, its_absmax = _part(weight, forward=False)
        q, scale = _function.quantize_rowwise(_rows_of(g))
        transposed = its_codes.t().contiguous()
        dx = _function.gemm_dequantize(q, transposed, scale, its_absmax, None, g.dtype).view(
            dx.shape
        )
    if x is None and codes is None and of_bias is None:
        return dx, g.new_empty(0), g.new_empty(0)
    if x is None and codes is None:
        db = _rows_of(g).sum(0, dtype=torch.float32).to(of_bias)
        return dx, g.new_empty(0), db
    _, dw, db = backward(g, x, codes, absmax, None, of_weight, of_bias, options)
    return dx, dw, db


_OPERATORS: dict = {}
_KEEP: set = set()
_ALIASES: set = set()

if HAS_OPERATORS:
    from . import _operators  # noqa: F401, defines them

    _OPERATORS.update(
        {
            torch.ops.switchback.linear.default: _linear,
            torch.ops.switchback.linear_codes.default: _linear_codes,
            torch.ops.switchback.linear_backward.default: _linear_backward,
        }
    )
    _aten = torch.ops.aten
    _KEEP.update(
        (
            _aten.detach,
            _aten.alias,
            _aten.view,
            _aten.as_strided,
            _aten.slice,
            _aten.split,
            _aten.clone,
            _aten._to_copy,
            _aten.new_zeros,
            _aten.empty_like,
            _aten.zeros_like,
            _aten._pin_memory,
        )
    )
    _ALIASES.update((_aten.detach, _aten.alias, _aten.as_strided, _aten.view))
    del _aten
