# SPDX-License-Identifier: Apache-2.0
"""Chooses how calls of the layers reach the library: compiled code if available, else ctypes.

The extension module switchback._torch_dispatch (csrc/torch_dispatch.cpp) is optional. It handles calls
with plain tensors and a weight that the layer already holds. For all other calls it returns None, and
Python handles them. Both paths share the state of a layer (_layer.py) and the rules for making its
codes again (_rules.py), so each call may use either path.
"""

from __future__ import annotations

import ctypes
import os

import torch
from torch.autograd import forward_ad

from .. import _library, _tensors
from . import _rules

VARIABLE = "SWITCHBACK_DISPATCH"
_VERSION = 8  # version of the interface between the extension module and this file


def _load():
    """Returns the compiled extension module, or None and the reason."""
    wanted = os.environ.get(VARIABLE) or "auto"
    if wanted not in ("auto", "compiled", "ctypes"):
        raise ValueError(f"{VARIABLE} = {wanted!r}; it must be 'auto', 'compiled' or 'ctypes'")
    if wanted == "ctypes":
        return None, f"{VARIABLE} = 'ctypes'"
    try:
        if _tensors.TORCH_VERSION < (2, 10):
            raise ImportError(f"it needs torch 2.10 or later, and this is torch {torch.__version__}")
        from .. import _torch_dispatch as found

        if found.VERSION != _VERSION:
            raise ImportError(f"{found.__file__} was built for another version of switchback")
    except ImportError as error:
        not_built = isinstance(error, ModuleNotFoundError) or "cannot import name" in str(error)
        reason = "not built" if not_built else str(error)
        if wanted == "compiled":
            raise ImportError(
                f"{VARIABLE} = 'compiled', but switchback._torch_dispatch cannot be used: {reason}"
            ) from error
        return None, reason
    return found, ""


native, _reason = _load()
_used = None


def dispatch_path() -> str:
    """How eager calls of layers reach the library: "compiled", or "ctypes" with the reason.

    Results are the same. $SWITCHBACK_DISPATCH selects the path when switchback.nn is imported: "ctypes", or
    "compiled", which raises an error if it is not available.
    """
    return "compiled" if native else f"ctypes ({_reason})"


def use(library) -> None:
    """Passes the addresses of the library's functions to the compiled code."""
    global _used
    if library is not _used:
        functions = (getattr(library, name) for name in native.FUNCTIONS)
        native.use(tuple(ctypes.cast(function, ctypes.c_void_p).value for function in functions))
        _used = library


def describe(layer) -> None:
    """Passes the properties of a Layer (nn/_layer.py) to the compiled code."""
    if not native:
        return
    use(_library.library())
    context = layer.context
    layer._describe(
        layer.pointer,
        context.pointer,
        context.device_index,
        layer._code,
        *layer._sizes,
        layer._block_rows,
        -1 if context.torch_threads is None else context.torch_threads,
        context,
        context.lock.acquire,
        context.lock.release,
    )


def linear_of_codes(x, codes, absmax, bias, dtype: int, rotation: int, activation: int):
    """Computes y[..., N] from x[..., K] and int8 codes[N,K] with absmax[N] or [1] in one compiled call.

    Returns None if the compiled code cannot handle the call. Nothing is recorded. dtype, rotation and
    activation are the library's numbers (_abi.py).
    """
    if not native or _tensors.is_compiling():
        return None
    use(_library.library())
    context = _tensors.context_of(x.device, "linear", "x")
    lock = context.lock
    return native.linear_of_codes(
        context, context.pointer, lock.acquire, lock.release, x, codes, absmax, bias, dtype, rotation,
        activation,
    )


def _handles() -> tuple:
    """Two functions and a flag with which the compiled code converts tensors, for torch before 2.14.

    The first makes a capsule with torch's handle of a Python tensor. The second makes a Python tensor
    of such a capsule. The flag says whether the second deletes the handle, which depends on torch's
    version. From torch 2.14 on there are C functions for both, and these are not used.
    """
    functions = getattr(torch._C, "_aoti", None)
    to_capsule = getattr(functions, "unsafe_alloc_void_ptr_from_tensor", None)
    from_capsule = getattr(functions, "alloc_tensor_by_stealing_from_void_ptr", None)
    if _tensors.TORCH_VERSION >= (2, 14):
        return to_capsule, from_capsule, None
    tensor = torch.empty(0, device="cpu")
    from_capsule(to_capsule(tensor))
    return to_capsule, from_capsule, tensor._use_count() == 1


def connect(apply, apply_prepared) -> None:
    """Passes to the compiled code the Python objects that it checks and calls."""
    native.connect(
        _tensors.PLAIN_TYPES,
        _tensors.DISTURBANCES,
        forward_ad,
        *_handles(),
        _rules.reuse,
        _library.check,
        apply,
        apply_prepared,
        _rules.FEW_ROWS,
        _rules.MANY_CODES,
        _rules.PLANS,
    )
