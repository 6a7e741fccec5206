# SPDX-License-Identifier: Apache-2.0
"""What torch says of whether a weight has changed."""

from __future__ import annotations

import contextlib
import threading


class _Reuse(threading.local):
    on = False


reuse = _Reuse()


@contextlib.contextmanager
def reuse_weight_codes():
    """Within it, in this thread, a weight counts as changed only if torch says so.

    For gradient accumulation: the first microbatch quantizes the weight, and the others use its
    codes. For inference: a forward does not check whether the weight, or the codes of a prepared
    layer, have changed. Inside the block, call `weight_updated()` after changes that autograd's version
    counter does not see (through `.data` or NumPy, by collectives, or by optimizers and sharding that
    work there). The reuse ends with the block.
    """
    before = reuse.on
    reuse.on = True
    try:
        yield
    finally:
        reuse.on = before


def place_of(tensor) -> tuple | None:
    """Equal places: the same memory, read in the same way."""
    return None if tensor is None else (tensor.data_ptr(), tensor.shape, tensor.stride())


def version_of(tensor) -> int:
    """How often torch has seen the tensor change; -1 if it does not count that."""
    if tensor is None:
        return 0
    try:
        return tensor._version
    except RuntimeError:  # an inference tensor
        return -1


def key_of(tensor) -> tuple:
    """Equal keys: the same memory, unchanged as far as torch knows."""
    return version_of(tensor), place_of(tensor)


def is_counted(key: tuple) -> bool:
    """Whether torch counts the changes of the tensor with this key."""
    return key[0] >= 0
