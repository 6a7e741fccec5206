# SPDX-License-Identifier: Apache-2.0
"""Shares the int8 codes of a prepared layer among the library's layers on several contexts."""

from __future__ import annotations

import ctypes
import weakref

from .. import _abi
from .._context import Context
from .._library import check, library


class GivenCodes:
    """The codes that a layer was given when it was prepared, for layers of the module on other contexts.

    A separate layer of the C library holds them, and no forward or backward uses it. So the codes can be
    shared while the other layers run, or while they get other codes.
    """

    def __init__(self, layer, keys: tuple, updates: int):
        """layer: the layer that was just given the codes. keys: key_of() of the codes, the scales and the
        bias."""
        self.pointer = shared(layer.pointer, layer.context)
        destroy = weakref.finalize(self, layer.context.destroy_layer, self.pointer)
        destroy.atexit = False
        self.bytes = _bytes_of_library(self.pointer)
        self.keys, self.sources, self.made_of = keys, layer._sources, layer._made_of
        self.updates = updates


def shared(layer: int, context: Context) -> int:
    """Creates a layer of the C library on `context` that shares the prepared weight of `layer`."""
    out = ctypes.c_void_p()
    check(library().switchback_linear_share(layer, context.pointer, ctypes.byref(out)))
    return out.value


def bytes_of(layers) -> int:
    """The bytes that the layers hold in the library; codes that several layers share count once."""
    given = {id(layer.given): layer.given.bytes for layer in layers if layer.given is not None}
    return sum(given.values()) + sum(
        layer.cached_bytes() - (0 if layer.given is None else layer.given.bytes) for layer in layers
    )


def _bytes_of_library(layer: int) -> int:
    info = _abi.LayerInfo()
    check(library().switchback_linear_get_info(layer, ctypes.byref(info)))
    return info.cached_weight_bytes
