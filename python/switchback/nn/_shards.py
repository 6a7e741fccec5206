# SPDX-License-Identifier: Apache-2.0
"""Codes of a shard of a matrix, with the scales of the whole matrix. Other processes hold the other shards.

The library's kernels compute the scales themselves. An extra row or column with the absmax of the
whole matrix sets the scale, and is then removed.
"""

from __future__ import annotations

import torch

from ._function import quantize_columnwise_transpose, quantize_rowwise


def largest(absmax, group):
    """The element-wise maximum of absmax over all processes, in float32; NaN if any process has a NaN."""
    absmax = absmax.float()
    is_nan = absmax.isnan()
    both = torch.stack([absmax.masked_fill(is_nan, 0.0), is_nan.float()])
    torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX, group=group)
    return torch.where(both[1] > 0, torch.full_like(both[0], float("nan")), both[0])


def with_column(matrix, absmax):
    """Quantizes a matrix[M,K] with given scales absmax[M], at least the absmax of its rows; returns
    codes[M,K]."""
    codes, _ = quantize_rowwise(torch.cat([matrix, absmax.to(matrix.dtype).unsqueeze(1)], 1))
    return codes[:, :-1]


def with_row(matrix, absmax):
    """Quantizes a matrix[N,K] with given scales absmax[K] of its columns; returns codes[K,N], transposed."""
    row = absmax.to(matrix.dtype).unsqueeze(0)
    codes, _ = quantize_columnwise_transpose(torch.cat([matrix, row]))
    return codes[:, :-1]
