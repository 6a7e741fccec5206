# SPDX-License-Identifier: Apache-2.0
"""Gradients without second derivatives, which raise an error if one is requested.

torch's once_differentiable is not enough. With create_graph=True it records gradients only if the
incoming gradients are recorded. But dx of a layer depends on its weight and dw on x, even if the
gradient of y is a constant. The weight's gradient would then silently ignore a penalty on dx.
"""

from __future__ import annotations

import functools

import torch
from torch.autograd import Function

from .._errors import InvalidState


def differentiable_once(name, depends):
    """Decorator for a Function's backward. `name`, or name(ctx), is the operation's name in messages.

    depends(ctx): whether the results depend on inputs that require gradients, even if the incoming
    gradients do not.
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
    """Attaches a graph node that raises an error to the results of a backward."""
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
