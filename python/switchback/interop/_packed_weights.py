# SPDX-License-Identifier: Apache-2.0
"""Packed forms of int8 weights that belong to others, kept from call to call within a bound.

Only for the CPU. A form is used again if the codes have the fingerprint of those it was made of, so
that no write goes unnoticed, whoever makes it and however. Within reuse_weight_codes() the version
that torch counts is asked in its place, where there is one.

A form is dropped when the memory of its weight is freed. Nothing refers to the weight's tensor, not
even weakly: a finalizer stands on its storage, so torch.utils.swap_tensors works.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import weakref

from .. import ops
from .._errors import InvalidArgument
from .._library import check, library
from .._tensors import context_of, key_of, matrix_of
from ..nn._rules import reuse

# A form that so many look-ups have not asked for may be dropped for another one. Below that it stays:
# a model whose weights do not all fit would otherwise replace each form before its next use.
_IDLE = 4096


class PackedWeights:
    """The forms, by the place of the weight in memory, the one used last at the end."""

    def __init__(self):
        self.limit = _memory_of_machine() // 8  # bytes
        self._kept: dict[tuple, _Form] = {}
        self._clock = itertools.count()

    def set_limit(self, limit: int) -> None:
        """At most so many bytes from now on; 0: none are kept."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise InvalidArgument(f"limit = {limit!r}; it must be a number of bytes, at least 0")
        self.limit = limit
        for place in list(self._kept):
            if self.nbytes() <= limit:
                break
            self._drop(place)

    def nbytes(self) -> int:
        """The bytes that all forms hold."""
        return sum(form.nbytes for form in list(self._kept.values()))

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Drops all forms."""
        for place in list(self._kept):
            self._drop(place)

    def of(self, weight):
        """The packed form of codes weight[N,K] on the CPU, or the weight itself if there is no room."""
        if self.limit == 0 or weight.numel() == 0:
            return weight
        version, place = key_of(weight)
        context = context_of(weight.device, "int8_linear", "weight")
        with context.lock:
            form, now = self._kept.pop(place, None), next(self._clock)
            if form is not None and reuse.on and 0 <= version == form.version:
                return self._keep(place, form, now)
            fingerprint = _fingerprint(context, weight)
            if form is not None and fingerprint == form.fingerprint:
                form.version = version
                return self._keep(place, form, now)
            if form is not None:
                form.end()
            if not self._make_room(weight.numel(), now):
                return weight
            form = _Form(ops.PackedWeight(weight), fingerprint, version)
            if not self._make_room(form.nbytes, now):  # it has whole tiles, the weight may not
                return form.packed
            # The finalizer holds a number, not the form: a form that is dropped frees its memory.
            storage = weight.untyped_storage()
            end = weakref.finalize(storage, _forget, self._kept, place, form.number)
            end.atexit = False
            form.end = end.detach
            return self._keep(place, form, now)

    def _keep(self, place: tuple, form: _Form, now: int):
        form.used = now
        self._kept[place] = form
        return form.packed

    def _make_room(self, needed: int, now: int) -> bool:
        """Whether there is room for so many bytes, which idle forms may have made."""
        while self.nbytes() + needed > self.limit:
            oldest = next(iter(list(self._kept.items())), None)
            if oldest is None or now - oldest[1].used <= _IDLE:
                return False
            self._drop(oldest[0])
        return True

    def _drop(self, place: tuple) -> None:
        form = self._kept.pop(place, None)
        if form is not None:
            form.end()


class _Form:
    """A packed weight, and what it was made of."""

    __slots__ = ("end", "fingerprint", "nbytes", "number", "packed", "used", "version")
    _numbers = itertools.count()

    def __init__(self, packed: ops.PackedWeight, fingerprint: tuple, version: int):
        self.packed, self.fingerprint, self.version = packed, fingerprint, version
        self.nbytes = packed.nbytes
        self.number = next(self._numbers)


def _forget(kept: dict, place: tuple, number: int) -> None:
    """The weight's memory was freed. For finalizers, which run anywhere: waits for no lock."""
    form = kept.get(place)
    if form is not None and form.number == number:
        kept.pop(place, None)


def _fingerprint(context, weight) -> tuple:
    matrix, _memory = matrix_of(weight)
    digest = (ctypes.c_uint64 * 2)()
    check(library().switchback_fingerprint(context.pointer, ctypes.byref(matrix), digest))
    return tuple(digest)


def _memory_of_machine() -> int:
    """Bytes of memory of this machine; 0 if the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
