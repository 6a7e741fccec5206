# SPDX-License-Identifier: Apache-2.0
"""Makes switchback's modules leaves of graphs of torch.fx.symbolic_trace, like torch's own modules."""

from __future__ import annotations

from torch.fx import Proxy

from .._errors import Unsupported

_INSTEAD = "use torch.export, make_fx or torch.compile, or nn.Linear in its place"


def is_traced(x) -> bool:
    """Whether x is a value in a graph that torch.fx is tracing."""
    return isinstance(x, Proxy)


def as_leaf(module, x, *others, **named):
    """Records the call of a module as one node in the graph that contains x."""
    kind = type(module).__name__
    if module._forward_hooks or module._forward_pre_hooks:
        # torch.fx calls the hooks of modules that are not its leaves, and the graph's node would call them
        # again.
        raise Unsupported(
            f"torch.fx.symbolic_trace: {kind} has forward hooks, which would run twice; remove them, "
            f"or {_INSTEAD}"
        )
    path = x.tracer.path_of_module(module)
    if not path:  # this module is the traced model itself
        raise Unsupported(
            f"torch.fx.symbolic_trace: {kind} must be a submodule of the traced model, because its "
            "products run outside of torch and the graph calls it as a module; put it into an "
            f"nn.Sequential, {_INSTEAD}"
        )
    return x.tracer.create_proxy("call_module", path, (x, *others), named)
