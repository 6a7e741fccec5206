# SPDX-License-Identifier: Apache-2.0
"""Prepared codes that the layers on several contexts share."""

from __future__ import annotations

import ctypes
import weakref

from .. import _abi
from .._context import Context
from .._library import check, library


class GivenCodes:
    """The prepared codes of a layer, for the layers on other contexts.

    A separate library layer holds them, which no pass uses. So the codes can be shared while the other
    layers run, or while they get other codes.
    """

    def __init__(self, layer, keys: tuple, updates: int):
        """layer has just been given the codes. keys: those of the codes, the scales and the bias."""
        self.pointer = shared(layer.pointer, layer.context)
        destroy = weakref.finalize(self, layer.context.destroy_layer, self.pointer)
        destroy.atexit = False
        self.bytes = _bytes_of_library(self.pointer)
        self.keys, self.sources, self.made_of = keys, layer._sources, layer._made_of
        self.updates = updates


def shared(layer: int, context: Context) -> int:
    """A new library layer on `context` with the same prepared weight."""
    out = ctypes.c_void_p()
    check(library().switchback_linear_share(layer, context.pointer, ctypes.byref(out)))
    return out.value


def bytes_of(layers) -> int:
    """The bytes that layers hold. Shared codes count once."""
    given = {id(layer.given): layer.given.bytes for layer in layers if layer.given is not None}
    return sum(given.values()) + sum(
        layer.cached_bytes() - (0 if layer.given is None else layer.given.bytes) for layer in layers
    )


def _bytes_of_library(layer: int) -> int:
    info = _abi.LayerInfo()
    check(library().switchback_linear_get_info(layer, ctypes.byref(info)))
    return info.cached_weight_bytes
