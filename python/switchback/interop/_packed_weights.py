# SPDX-License-Identifier: Apache-2.0
"""A cache of packed copies of int8 weights whose tensors belong to other programs, with a size limit.

Only for the CPU. A packed copy, called form here, is used again if the fingerprint of the codes is
unchanged, so that every write is noticed, whatever made it. Within reuse_weight_codes() torch's version
counter is compared instead, if the tensor has one.

A form is dropped when the memory of its weight is freed. The cache does not refer to the weight's
tensor, not even weakly: a finalizer is on its storage, so torch.utils.swap_tensors works.
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

# A packed weight that was not used in this number of look-ups may be dropped to make room for another. A
# smaller number would be useless: if the packed weights of a model do not all fit, each would be dropped
# before its next use.
_IDLE = 4096


class PackedWeights:
    """The cache: packed weights by the address and shape of the weight's codes, the last used at the end."""

    def __init__(self):
        self.limit = _memory_of_machine() // 8  # bytes
        self._kept: dict[tuple, _Form] = {}
        self._clock = itertools.count()

    def set_limit(self, limit: int) -> None:
        """Limits the bytes of all packed weights from now on. 0: none are kept."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise InvalidArgument(f"limit = {limit!r}; it must be a number of bytes, at least 0")
        self.limit = limit
        for place in list(self._kept):
            if self.nbytes() <= limit:
                break
            self._drop(place)

    def nbytes(self) -> int:
        """The bytes of all packed weights in the cache."""
        return sum(form.nbytes for form in list(self._kept.values()))

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Drops all packed weights."""
        for place in list(self._kept):
            self._drop(place)

    def of(self, weight):
        """The packed form of the codes weight[N,K] on the CPU, or `weight` itself if there is no room for it.
        """
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
            if not self._make_room(form.nbytes, now):  # it is larger than the codes: whole tiles
                return form.packed
            # The finalizer has the form's number, not the form itself, so that dropping a form frees its
            # memory.
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
        """Whether `needed` bytes fit into the limit, after dropping packed weights that are no longer used
        if necessary."""
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
    """A packed weight, with the fingerprint and version of the codes that it was made from."""

    __slots__ = ("end", "fingerprint", "nbytes", "number", "packed", "used", "version")
    _numbers = itertools.count()

    def __init__(self, packed: ops.PackedWeight, fingerprint: tuple, version: int):
        self.packed, self.fingerprint, self.version = packed, fingerprint, version
        self.nbytes = packed.nbytes
        self.number = next(self._numbers)


def _forget(kept: dict, place: tuple, number: int) -> None:
    """Drops the packed form of a freed weight. For finalizers, which run at any time: never waits for a lock.
    """
    form = kept.get(place)
    if form is not None and form.number == number:
        kept.pop(place, None)


def _fingerprint(context, weight) -> tuple:
    matrix, _memory = matrix_of(weight)
    digest = (ctypes.c_uint64 * 2)()
    check(library().switchback_fingerprint(context.pointer, ctypes.byref(matrix), digest))
    return tuple(digest)


def _memory_of_machine() -> int:
    """The number of bytes of memory of this machine; 0 if the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0
