# SPDX-License-Identifier: Apache-2.0
"""nn.MultiheadAttention whose projections are computed by the library."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from .._errors import InvalidArgument
from ._function import linear
from ._layer import LayerSet
from ._module import outside_graphs
from ._options import LayerOptions
from ._trace import as_leaf, is_traced
from .linear import adopt

_sdpa = getattr(functional, "scaled_dot_product_attention", None)


class SwitchBackMultiheadAttention(torch.nn.MultiheadAttention):
    """nn.MultiheadAttention whose projections are products of a switchback layer.

    Created by replace_linear(model, layer, attention=True). Parameters, state_dict and arguments of
    forward are those of nn.MultiheadAttention. torch computes everything between the
    projections, in floating point. prepare_for_eval() does not change the float weights of the input
    projections. The output projection, out_proj, is a module of the class `layer`.
    """

    def _init_int8(self, mode: str, mem_efficient: bool) -> None:
        self.mode = mode
        self.mem_efficient = mem_efficient
        self._sets: dict = {}

    def _linear(self, x, weight, bias, name: str):
        layers = self._sets.get(name)
        if layers is None:
            out_features, in_features = weight.shape
            layers = LayerSet(in_features, out_features, LayerOptions(self.mode))
            self._sets[name] = layers
        return linear(x, weight, bias, layers, self.mem_efficient)

    def weight_updated(self) -> None:
        """Like SwitchBackLinear.weight_updated, for the weights of the input projections."""
        for layers in self._sets.values():
            layers.weight_updated()

    def _apply(self, fn, *args, **kwargs):
        super()._apply(fn, *args, **kwargs)
        self._sets = {}
        return self

    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica._sets = {}
        return replica

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        """Like nn.MultiheadAttention.forward. As in torch, is_causal is only a hint in addition to attn_mask.
        """
        if is_traced(query):
            rest = (key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
            return as_leaf(self, query, key, value, *rest)
        if is_causal and attn_mask is None:
            raise RuntimeError(
                "SwitchBackMultiheadAttention: is_causal = True without attn_mask; it is a hint about "
                "attn_mask, which must be given"
            )
        batched = query.dim() == 3
        same, same_kv = query is key and key is value, key is value
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = self._projections(query, key, value, same, same_kv)
        batch, length = q.shape[:2]
        added = 0  # positions of keys and values that no input has (bias_k, add_zero_attn)
        if self.bias_k is not None:
            k = torch.cat([k, self.bias_k.to(k.dtype).expand(batch, 1, -1)], 1)
            v = torch.cat([v, self.bias_v.to(v.dtype).expand(batch, 1, -1)], 1)
            added += 1
        if self.add_zero_attn:
            k, v = (torch.cat([x, x.new_zeros(batch, 1, x.shape[2])], 1) for x in (k, v))
            added += 1
        q, k, v = (
            x.reshape(batch, x.shape[1], self.num_heads, self.head_dim).transpose(1, 2)
            for x in (q, k, v)
        )
        mask = self._mask(attn_mask, key_padding_mask, q, k.shape[2], added)
        y, weights = self._attend(q, k, v, mask, need_weights)
        y = self.out_proj(y.transpose(1, 2).reshape(batch, length, self.embed_dim))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            y, weights = y.squeeze(0), None if weights is None else weights.squeeze(0)
        elif not self.batch_first:
            y = y.transpose(0, 1)
        return y, weights

    def _projections(self, query, key, value, same: bool, same_kv: bool):
        """Computes q, k and v [batch, length, embed_dim]; those with the same input in one product."""
        e, bias = self.embed_dim, self.in_proj_bias
        if not self._qkv_same_embed_dim:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
            biases = (None,) * 3 if bias is None else bias.split(e)
            return tuple(map(self._linear, (query, key, value), weights, biases, "qkv"))
        weight = self.in_proj_weight

        def part(x, begin, end, name):
            some = None if bias is None else bias[begin * e : end * e]
            return self._linear(x, weight[begin * e : end * e], some, name)

        if same:
            return self._linear(query, weight, bias, "qkv").split(e, -1)
        if same_kv:
            return part(query, 0, 1, "q"), *part(key, 1, 3, "kv").split(e, -1)
        return part(query, 0, 1, "q"), part(key, 1, 2, "k"), part(value, 2, 3, "v")

    def _mask(self, attn_mask, key_padding_mask, q, keys: int, added: int):
        """Joins both masks to one that is added to the scores [batch, heads, length, keys]; None without
        masks."""
        total = None
        for mask, padding in ((attn_mask, False), (key_padding_mask, True)):
            if mask is None:
                continue
            if mask.dtype is torch.bool:
                mask = q.new_zeros(mask.shape).masked_fill(mask, -math.inf)
            mask = functional.pad(mask.to(q.dtype), (0, added))
            if padding:
                mask = mask.view(q.shape[0], 1, 1, keys)
            elif mask.dim() == 3:
                mask = mask.view(q.shape[0], self.num_heads, q.shape[2], keys)
            total = mask if total is None else total + mask
        return total

    def _attend(self, q, k, v, mask, need_weights: bool):
        dropout = self.dropout if self.training else 0.0
        if _sdpa is not None and not need_weights:
            return _sdpa(q, k, v, mask, dropout), None
        scores = (q / math.sqrt(self.head_dim)) @ k.transpose(-2, -1)
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        weights = functional.dropout(weights, dropout, self.training)
        return weights.to(v.dtype) @ v, weights if need_weights else None


def attention_like(old, inner, out_proj):
    """Creates the module that replaces the attention `old`, in the mode of the switchback layer `inner`."""
    if inner.rotation or inner.dw != "floating":
        raise InvalidArgument(
            f"replace_linear: attention = True with rotation = {inner.rotation} and dw = {inner.dw!r}; they "
            "must be 0 and 'floating', because the input projections of nn.MultiheadAttention support "
            "neither: replace it in a separate call"
        )
    new = SwitchBackMultiheadAttention.__new__(SwitchBackMultiheadAttention)
    adopt(new, old)
    new._init_int8(inner.mode, inner.mem_efficient)
    new.out_proj = out_proj
    return new


outside_graphs(SwitchBackMultiheadAttention, "_linear")
