# SPDX-License-Identifier: Apache-2.0
"""What torch says of whether a weight has changed."""

from __future__ import annotations

import contextlib
import threading

from .. import _abi
from .._tensors import DTYPES, as_rows, check_storage, memory_of


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


def matrix_of(weight) -> tuple:
    """A tensor of any strides and dtype as a matrix whose fingerprint can be taken; and its memory."""
    source = memory_of(weight.detach(), "forward", "weight")
    check_storage(source, "forward", "weight")
    if source.stride(-2) == 1 and source.stride(-1) > 1:
        # A transposed matrix of contiguous rows need not be copied.
        source = source.transpose(-2, -1)
    cols = source.shape[-1]
    source, rows, stride = as_rows(source, cols)
    return _abi.Matrix(source.data_ptr(), DTYPES[source.dtype], rows, cols, stride), source


def bias_matrix_of(bias) -> _abi.Matrix:
    """A contiguous bias as a matrix, of dtype -1 where the library has none such."""
    count = bias.shape[-1]
    return _abi.Matrix(
        bias.data_ptr(), DTYPES.get(bias.dtype, -1), bias.numel() // count, count, count
    )
