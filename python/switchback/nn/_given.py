# SPDX-License-Identifier: Apache-2.0
"""Codes that one layer was given and that the layers of other contexts share."""

from __future__ import annotations

import ctypes
import weakref

from .. import _abi
from .._context import Context
from .._library import check, library


class GivenCodes:
    """Codes that a layer was given, for the layers of other contexts.

    It holds them in a library layer that no pass uses: so it can be shared while the
    others run, and while they get other codes.
    """

    def __init__(self, layer, keys: tuple, updates: int):
        """layer: it was given the codes just now, whose keys these are, with the scales' and the bias's."""
        self.pointer = shared(layer.pointer, layer.context)
        destroy = weakref.finalize(self, layer.context.destroy_layer, self.pointer)
        destroy.atexit = False
        self.bytes = _bytes_of_library(self.pointer)
        self.keys, self.sources, self.made_of = keys, layer._sources, layer._made_of
        self.updates = updates


def shared(layer: int, context: Context) -> int:
    """A library layer on `context` that has the same prepared weight."""
    out = ctypes.c_void_p()
    check(library().switchback_linear_share(layer, context.pointer, ctypes.byref(out)))
    return out.value


def bytes_of(layers) -> int:
    """Bytes that layers hold; codes that they share count once."""
    given = {id(layer.given): layer.given.bytes for layer in layers if layer.given is not None}
    return sum(given.values()) + sum(
        layer.cached_bytes() - (0 if layer.given is None else layer.given.bytes) for layer in layers
    )


def _bytes_of_library(layer: int) -> int:
    info = _abi.LayerInfo()
    check(library().switchback_linear_get_info(layer, ctypes.byref(info)))
    return info.cached_weight_bytes
