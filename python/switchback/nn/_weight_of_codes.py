# SPDX-License-Identifier: Apache-2.0
"""The attribute `weight` of a prepared module, for code that reads it: the dequantized int8 codes."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from .._errors import InvalidState
from .._tensors import is_compiling
from . import _prepared


def weight_of_codes(module):
    """A read-only tensor with the shape and dtype of the module's former weight.

    Each operation that reads its elements computes them: codes times scales, without the
    rotation. Reading shape, dtype or device costs nothing. A compiler gets a plain tensor.
    """
    if is_compiling():
        return _numbers(module)
    like = torch.empty(module._weight_shape(), dtype=module._float["dtype"], device="meta")
    return _ReadOnly(like, module.W_int8.device, lambda: _numbers(module), module)


def _numbers(module):
    rows = _prepared.float_rows(module).to(module._float["dtype"])
    return rows.t().contiguous() if module.transposed else rows


class _ReadOnly(torch.Tensor):
    """A read-only tensor whose elements are computed when they are read. Its views are such tensors too."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, like, device, make, module):
        return torch.Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), dtype=like.dtype, device=device
        )

    def __init__(self, like, device, make, module):
        self._make, self._module = make, module

    def __repr__(self):
        return repr(self._make())

    def __reduce_ex__(self, protocol):
        return self._make().__reduce_ex__(protocol)

    def __deepcopy__(self, memo):
        return self._make()

    def numpy(self, *, force: bool = False):
        """Returns a copy as a NumPy array."""
        return self._make().numpy()

    def tolist(self):
        """Returns the values as a nested list, like torch.Tensor.tolist."""
        return self._make().tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = next(t for t in pytree.tree_flatten((args, kwargs))[0] if isinstance(t, cls))
        _check_unwritten(func, args, kwargs, first._module)
        if func in _SAME:
            return cls(first, first.device, first._make, first._module)
        args, kwargs = pytree.tree_map(
            lambda t: t._make() if isinstance(t, cls) else t, (args, kwargs)
        )
        result = func(*args, **kwargs)
        if not any(returned.alias_info for returned in func._schema.returns):
            return result
        return pytree.tree_map(
            lambda t: cls(t, t.device, lambda: t, first._module) if type(t) is torch.Tensor else t,
            result,
        )


_SAME = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)


def _check_unwritten(func, args, kwargs, module) -> None:
    """Raises InvalidState if the operation writes to a read-only weight."""
    arguments = func._schema.arguments
    given = [*zip(arguments, args)]
    given += [(argument, kwargs[argument.name]) for argument in arguments if argument.name in kwargs]
    for argument, value in given:
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if any(isinstance(t, _ReadOnly) for t in pytree.tree_flatten(value)[0]):
            raise InvalidState(
                f"{func}: the weight of {module!r} cannot be written, because the layer is prepared and has "
                "int8 codes instead; load a state_dict with a float weight, or exclude the layer (exclude= "
                "of replace_linear)"
            )
