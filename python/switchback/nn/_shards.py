# SPDX-License-Identifier: Apache-2.0
"""Codes of a shard with scales of the whole matrix, which other processes hold parts of.

The library's kernels find scales themselves. A row or column that is appended brings in the scale of
the whole, and is dropped again.
"""

from __future__ import annotations

import torch

from ._function import quantize_columnwise_transpose, quantize_rowwise


def largest(absmax, group):
    """The largest of all processes, element by element, float32; NaN if one of them has it."""
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
