# SPDX-License-Identifier: Apache-2.0
"""Nested tensors as inputs: one call computes all their rows, as for any other input."""

from __future__ import annotations

import torch


def by_rows(function, x):
    """Calls function(rows) once for all rows of a nested x[batch, (rows), ..., K]; nested like x."""
    if x.layout is getattr(torch, "jagged", None):
        y = function(x.values())
        return torch.nested.nested_tensor_from_jagged(
            y, x.offsets(), lengths=x.lengths(), jagged_dim=x._ragged_idx
        )
    parts = x.unbind()
    if not parts:
        return x
    flat = [part.reshape(-1, part.shape[-1]) for part in parts]
    y = function(torch.cat(flat)).split([len(part) for part in flat])
    shaped = [rows.view(*part.shape[:-1], rows.shape[-1]) for rows, part in zip(y, parts)]
    return torch.nested.as_nested_tensor(shaped)
