# SPDX-License-Identifier: Apache-2.0
"""Tensor parallel layers whose results have the bits of the whole layer, for any number of processes.

If a product is summed over processes, scales are first reduced (max) over the processes, and the
factors are quantized with these scales. Then int32 sums of codes are added, which is exact.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.autograd import Function

from .. import ops
from .._errors import InvalidArgument
from .._tensors import memory_of
from ._function import (
    check_dtypes,
    checked_input,
    gradients,
    quantize_columnwise_transpose,
    quantize_rowwise,
)
from ._layer import LayerSet
from ._once import differentiable_once
from ._options import LayerOptions
from ._shards import largest, with_column, with_row
from ._trace import as_leaf, is_traced
from ._wanted import wanted_gradients

_gemm = ops.gemm_s8s8s32.__wrapped__
_LARGEST_K = 131071  # the largest K with exact int32 sums
# 1 / 127^2 in float32: see docs/numerics.md.
_C = torch.tensor(1.0, dtype=torch.float64).div(127 * 127).to(torch.float32)


def _dequantized(sums, absmax_a, absmax_b, bias, dtype):
    """Computes absmax_b * (absmax_a * (f32(s) * c)) + bias from int32 sums s, each operation rounded to
    float32."""
    d = sums.float() * _C.to(sums.device)
    d = absmax_a.unsqueeze(1) * d
    d = absmax_b * d
    return (d if bias is None else d + bias.float()).to(dtype)


def _summed(sums, group):
    dist.all_reduce(sums, group=group)
    return sums


def _absmax_of(matrix, dim: int):
    """The absmax of each row (dim 1) or column (dim 0) of a matrix; 0 if it is empty."""
    if matrix.numel() == 0:
        return matrix.new_zeros(matrix.shape[1 - dim], dtype=torch.float32)
    return matrix.abs().amax(dim).float()


class _Parallel(torch.nn.Module):
    """Base of the tensor parallel layers: this process' shard of an nn.Linear's Parameters, and the group
    of processes."""

    def __init__(self, whole, group, mode: str):
        super().__init__()
        if mode not in ("rowwise", "global"):
            raise InvalidArgument(
                f"{type(self).__name__}: mode = {mode!r}; it must be 'rowwise' or 'global'"
            )
        if getattr(whole, "rotation", 0) or getattr(whole, "dw", "floating") != "floating":
            raise InvalidArgument(
                f"{type(self).__name__}: the layer has rotation={whole.rotation} and dw={whole.dw!r}; a "
                "parallel one needs rotation=0 and dw='floating'"
            )
        if getattr(whole, "rounding", "nearest") != "nearest":
            raise InvalidArgument(
                f"{type(self).__name__}: the layer has rounding={whole.rounding!r}; a parallel one needs "
                "'nearest'"
            )
        self.group = dist.group.WORLD if group is None else group
        self.mode = mode
        self.in_features, self.out_features = whole.in_features, whole.out_features
        world, rank = dist.get_world_size(self.group), dist.get_rank(self.group)
        size = whole.weight.shape[self._DIM]
        if size < world:
            raise InvalidArgument(
                f"{type(self).__name__}: {self._FEATURES} = {size} for {world} processes; there must be "
                "at least one each"
            )
        for features in (self.in_features, self.out_features):
            if features > _LARGEST_K:
                raise InvalidArgument(
                    f"{type(self).__name__}: {features} features; int32 sums are exact up to {_LARGEST_K}"
                )
        shard = whole.weight.detach().tensor_split(world, self._DIM)[rank].clone()
        self.weight = torch.nn.Parameter(shard, requires_grad=whole.weight.requires_grad)
        if whole.bias is None:
            self.register_parameter("bias", None)
        else:
            bias = whole.bias.detach()
            bias = (bias.tensor_split(world)[rank] if self._DIM == 0 else bias).clone()
            self.bias = torch.nn.Parameter(bias, requires_grad=whole.bias.requires_grad)
        self._layers = LayerSet(shard.shape[1], shard.shape[0], LayerOptions(mode))

    def forward(self, input):
        if is_traced(input):
            return as_leaf(self, input)
        x = checked_input(input, self.weight, self._layers)
        check_dtypes(x, self.weight)
        return self._FUNCTION.apply(x, self.weight, self.bias, self)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"shard={tuple(self.weight.shape)}, mode={self.mode}"
        )

    def _scale_of_all(self, weight):
        return largest(weight.abs().amax().reshape(1), self.group)

    def _own_gradients(self, g, x, wanted, of_bias):
        """Computes dw and db for this process' shard of the weight."""
        kept = (x if wanted[0] else None, None, None, None)
        dtypes = self.weight.dtype, of_bias
        if not any(wanted):
            return None, None
        return gradients(g, None, kept, (False, *wanted), dtypes, self._layers)[1:]


def _keep(ctx, x, weight, bias, layer) -> None:
    ctx.layer, ctx.shape, ctx.dtype = layer, x.shape, x.dtype
    ctx.of_bias = None if bias is None else bias.dtype
    ctx.save_for_backward(x, weight)


class _Column(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, layer):
        _keep(ctx, x, weight, bias, layer)
        rows, weight = x.reshape(-1, x.shape[-1]), weight.to(x.dtype)
        q, scale = quantize_rowwise(rows)
        if layer.mode == "rowwise":
            codes, absmax = quantize_rowwise(weight)
        else:
            absmax = layer._scale_of_all(weight)
            codes = with_column(weight, absmax.expand(len(weight)))
        y = _dequantized(_gemm(q, codes), scale, absmax, bias, x.dtype)
        return y.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @differentiable_once("a parallel layer", lambda ctx: all(ctx.needs_input_grad[:2]))
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        layer, group = ctx.layer, ctx.layer.group
        g = memory_of(g, "backward", "the gradient").to(ctx.dtype)
        wanted, dx = wanted_gradients(ctx), None
        if wanted[0]:
            rows, weight = g.reshape(-1, g.shape[-1]), weight.to(ctx.dtype)
            of_rows = largest(_absmax_of(rows, 1), group)
            if layer.mode == "rowwise":
                absmax = largest(_absmax_of(weight, 0), group)
            else:
                absmax = layer._scale_of_all(weight)
            its = with_row(weight, absmax.expand(weight.shape[1]))
            sums = _summed(_gemm(with_column(rows, of_rows), its), group)
            dx = _dequantized(sums, of_rows, absmax, None, ctx.dtype).view(ctx.shape)
        dw, db = layer._own_gradients(g, x, wanted[1:3], ctx.of_bias)
        return dx, dw, db, None


class _Row(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, layer):
        _keep(ctx, x, weight, bias, layer)
        rows, weight = x.reshape(-1, x.shape[-1]), weight.to(x.dtype)
        scale = largest(_absmax_of(rows, 1), layer.group)
        if layer.mode == "rowwise":
            absmax = largest(_absmax_of(weight, 1), layer.group)
        else:
            absmax = layer._scale_of_all(weight)
        codes = with_column(weight, absmax.expand(len(weight)))
        sums = _summed(_gemm(with_column(rows, scale), codes), layer.group)
        y = _dequantized(sums, scale, absmax, bias, x.dtype)
        return y.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    @differentiable_once("a parallel layer", lambda ctx: all(ctx.needs_input_grad[:2]))
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        layer = ctx.layer
        g = memory_of(g, "backward", "the gradient").to(ctx.dtype)
        wanted, dx = wanted_gradients(ctx), None
        if wanted[0]:
            q, scale = quantize_rowwise(g.reshape(-1, g.shape[-1]))
            weight = weight.to(ctx.dtype)
            if layer.mode == "rowwise":
                its, absmax = quantize_columnwise_transpose(weight)
            else:
                absmax = layer._scale_of_all(weight)
                its = with_row(weight, absmax.expand(weight.shape[1]))
            dx = _dequantized(_gemm(q, its), scale, absmax, None, ctx.dtype).view(ctx.shape)
        dw, db = layer._own_gradients(g, x, wanted[1:3], ctx.of_bias)
        return dx, dw, db, None


class SwitchBackColumnParallel(_Parallel):
    """A linear layer whose weight is split by rows among the processes of a group.

    x[..., in_features] is the same in all processes. y has this process' part of out_features, as
    torch.Tensor.tensor_split divides them. The gradient of x is complete and the same in all processes.

    Args:
        whole: an nn.Linear, the same in all processes; its values are copied.
        group: a group of torch.distributed. None: all processes.
        mode: "rowwise" or "global".
    """

    _DIM, _FEATURES, _FUNCTION = 0, "out_features", _Column

    def __init__(self, whole, group=None, *, mode: str = "rowwise"):
        super().__init__(whole, group, mode)


class SwitchBackRowParallel(_Parallel):
    """A linear layer whose weight is split by columns among the processes of a group.

    x has this process' part of in_features, as SwitchBackColumnParallel returns it.
    y[..., out_features] is complete and the same in all processes. It has the arguments of
    SwitchBackColumnParallel.
    """

    _DIM, _FEATURES, _FUNCTION = 1, "in_features", _Row

    def __init__(self, whole, group=None, *, mode: str = "rowwise"):
        super().__init__(whole, group, mode)
