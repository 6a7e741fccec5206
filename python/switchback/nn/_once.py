# SPDX-License-Identifier: Apache-2.0
"""Gradients that have no derivative of their own, and say so when one is asked for.

torch's once_differentiable is not enough. With create_graph=True it records gradients only if those
that came in are recorded. But dx of a layer depends on its weight and dw on x, also where the
gradient of y is a constant: a penalty on dx would then be left out of the weight's gradient silently.
"""

from __future__ import annotations

import functools

import torch
from torch.autograd import Function

from .._errors import InvalidState


def differentiable_once(name, depends):
    """For a Function's backward. `name`, or name(ctx), is what users call what it computes.

    depends(ctx): whether its results depend on inputs for which gradients are wanted, too, though no
    gradient that comes in does.
    """

    def decorate(backward):
        @functools.wraps(backward)
        def called(ctx, *grads):
            if not torch.is_grad_enabled():
                return backward(ctx, *grads)
            with torch.no_grad():
                made = backward(ctx, *grads)
            if depends(ctx) or any(g is not None and g.requires_grad for g in grads):
                return _recorded(name if isinstance(name, str) else name(ctx), made)
            return made

        return called

    return decorate


def _recorded(name: str, made):
    """The results of a backward with a graph that raises an error."""
    several = made if isinstance(made, tuple) else (made,)
    places = [place for place, grad in enumerate(several) if grad is not None]
    marked = _Refusal.apply(name, *(several[place].detach().requires_grad_() for place in places))
    results = list(several)
    for place, grad in zip(places, marked):
        results[place] = grad
    return tuple(results)


class _Refusal(Function):
    @staticmethod
    def forward(ctx, name: str, *grads):
        ctx.name = name
        return tuple(grad.view_as(grad) for grad in grads)

    @staticmethod
    def backward(ctx, *_grads):
        raise InvalidState(
            f"backward: switchback has no second derivative of {ctx.name} (a derivative of gradients "
            "that were made with create_graph=True); use torch's own operations, nn.Linear or nn.GELU, "
            "in its place"
        )
