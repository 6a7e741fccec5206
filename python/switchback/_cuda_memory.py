# SPDX-License-Identifier: Apache-2.0
"""Callbacks that allocate a context's device memory from torch's caching allocator.

So torch's statistics include that memory, and torch frees its cache before memory runs out. The
library calls these functions inside its own calls: no exception may leave them. They live as
long as the process, because a layer may outlive its context.
"""

from __future__ import annotations

import ctypes
import sys

from . import _abi

_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_Release = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)

# The stream for which torch allocated each address: torch reuses memory in the order of that stream.
_stream_of: dict[int, int] = {}


def options_for(device_index: int) -> dict:
    """The members of ContextOptions that make a CUDA context use these callbacks."""
    return {
        "allocate": ctypes.cast(_allocate, ctypes.c_void_p),
        "release": ctypes.cast(_release, ctypes.c_void_p),
        "allocator_user": device_index + 1,  # any address that is not null
    }


def _cuda():
    return sys.modules["torch"].cuda


def _torch_stream(stream: int) -> int:
    return 0 if stream == _abi.LEGACY_STREAM else stream


@_Allocate
def _allocate(user, size, stream):
    try:
        stream = _torch_stream(stream or 0)
        address = _cuda().caching_allocator_alloc(size, user - 1, stream)
        _stream_of[address] = stream
        return address
    except BaseException:
        return None  # the library reports that it is out of memory


@_Release
def _release(user, data, size, stream):
    try:
        cuda = _cuda()
        if stream is None:  # the context is being destroyed, so its stream no longer orders the work
            cuda.synchronize(user - 1)
        elif _torch_stream(stream) != _stream_of.get(data):
            cuda.ExternalStream(stream, device=user - 1).synchronize()
        cuda.caching_allocator_delete(data)
        _stream_of.pop(data, None)
    except BaseException:
        pass  # leaking the memory is better than reusing memory that is in use
