# SPDX-License-Identifier: Apache-2.0
"""Codes of a shard with the scales of the whole matrix, whose other parts other processes hold.

The library's kernels compute the scales themselves. An extra row or column with the absmax of the
whole matrix sets the scale, and is then removed.
"""

from __future__ import annotations

import torch

from ._function import quantize_columnwise_transpose, quantize_rowwise


def largest(absmax, group):
    """The element-wise maximum over all processes in float32; NaN if any process has a NaN."""
    absmax = absmax.float()
    is_nan = absmax.isnan()
    both = torch.stack([absmax.masked_fill(is_nan, 0.0), is_nan.float()])
    torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX, group=group)
    return torch.where(both[1] > 0, torch.full_like(both[0], float("nan")), both[0])


def with_column(matrix, absmax):
    """Codes[M,K] of a matrix[M,K] with the scales absmax[M], which are at least its rows' own."""
    codes, _ = quantize_rowwise(torch.cat([matrix, absmax.to(matrix.dtype).unsqueeze(1)], 1))
    return codes[:, :-1]


def with_row(matrix, absmax):
    """Codes[K,N], transposed, of a matrix[N,K] with the scales absmax[K] of its columns."""
    row = absmax.to(matrix.dtype).unsqueeze(0)
    codes, _ = quantize_columnwise_transpose(torch.cat([matrix, row]))
    return codes[:, :-1]
