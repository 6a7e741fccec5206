# SPDX-License-Identifier: Apache-2.0
"""Which gradients the running backward has to compute."""

from __future__ import annotations

import torch

from .._tensors import is_compiling

_will_run = getattr(torch._C, "_will_engine_execute_node", None)


def wanted_gradients(ctx) -> tuple[bool, ...]:
    """For each argument of a Function's forward, whether this backward must compute its gradient.

    ctx.needs_input_grad says which arguments require a gradient at all. torch.autograd.grad(y, x),
    backward(inputs=...) and pipelines that compute dX first and dW later need only some of these.
    """
    needs = ctx.needs_input_grad
    if _will_run is None or is_compiling():
        return tuple(needs)
    # Arguments that do not require a gradient have no node.
    nodes = [node for node, _ in ctx.next_functions if node is not None]
    if len(nodes) != sum(needs):
        return tuple(needs)
    of_needed = iter(nodes)
    return tuple(need and _runs(next(of_needed)) for need in needs)


def _runs(node) -> bool:
    try:
        return _will_run(node)
    except RuntimeError:  # a leaf whose gradient is returned, or a backward that no engine runs
        return True
